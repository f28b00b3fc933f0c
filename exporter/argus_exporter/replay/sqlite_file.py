"""A SQLite file that someone else wrote, opened so that it can neither be changed nor do harm.

Only plain tables are read: a view or virtual table of a hostile file could compute for ever. A damaged tree
of pages can repeat itself, so no table may have more rows than its file has room for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from argus_exporter.replay.recording import RecordingError

MAGIC: Final = b"SQLite format 3\0"
_TEXT_LIMIT: Final = 1 << 20
_SMALLEST_ROW: Final = 5
"""Bytes: cell pointer, payload size, row id, header size, one column."""
_BATCH: Final = 4096


class SqliteFile:
    """The plain tables of a file, their columns, and their rows."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._row_limit = path.stat().st_size // _SMALLEST_ROW
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        self.tables: dict[str, frozenset[str]] = {}
        for name, sql in connection.execute(query):
            if isinstance(name, str) and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE"):
                columns = connection.execute(f"PRAGMA table_info({_quoted(name)})")
                self.tables[name] = frozenset(str(row[1]) for row in columns)

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset())

    def first_of(self, table: str, columns: Sequence[str]) -> str | None:
        """The first of these columns that a table has."""
        return next((column for column in columns if column in self.tables.get(table, ())), None)

    def count(self, table: str) -> int:
        """About how many rows a table has: its highest row id."""
        row = self._connection.execute(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def rows(self, table: str, columns: Sequence[str | None]) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of rows; None instead of a column stands for NULL in its place.

        Raises:
            RecordingError: more rows than the file has room for.
        """
        chosen = ", ".join("NULL" if column is None else _quoted(column) for column in columns)
        cursor = self._connection.execute(f"SELECT {chosen} FROM {_quoted(table)}")
        count = 0
        while batch := cursor.fetchmany(_BATCH):
            count += len(batch)
            if count > self._row_limit:
                raise RecordingError(
                    f"{self._path}: damaged: table {table} has more rows than the file has room for"
                )
            yield batch

    def value_by_id(self, table: str, id_: int) -> str | None:
        """Text `value` of the row with this `id`; None where there is none."""
        row = self._connection.execute(f"SELECT value FROM {_quoted(table)} WHERE id = ?", (id_,)).fetchone()
        return row[0] if row and isinstance(row[0], str) else None


@contextmanager
def opened(path: Path, what_to_do: str) -> Iterator[SqliteFile]:
    """The file, for reading.

    Raises:
        RecordingError: truncated or damaged; ends with `what_to_do`.
    """
    _check_size(path, what_to_do)
    # Immutable: no lock and no journal beside a file that may lie on a read-only or network disk.
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise RecordingError(f"{path}: cannot be opened: {error}") from error
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_LIMIT)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        yield SqliteFile(path, connection)
    except (
        sqlite3.Error,
        OverflowError,
        UnicodeDecodeError,
    ) as error:  # names in the schema need not be text
        why = " ".join(str(error).split())[:120]
        raise RecordingError(f"{path}: damaged SQLite file ({why}); {what_to_do}") from error
    finally:
        connection.close()


def _check_size(path: Path, what_to_do: str) -> None:
    """Refuse a file that is shorter than its header says: SQLite itself notices only where it looks.

    Source: https://www.sqlite.org/fileformat2.html section 1.3
    """
    with path.open("rb") as file:
        header = file.read(100)
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    is_current = header[24:28] == header[92:96]
    expected = pages * (65536 if page_size == 1 else page_size)
    size = path.stat().st_size
    if len(header) < 100 or (is_current and size < expected):
        raise RecordingError(f"{path}: truncated: {size} bytes of {max(expected, 512)}; {what_to_do}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
