"""The log of all our programs: logfmt on stderr, as Prometheus 3 writes it.

    time=2026-11-22T22:52:38.123Z level=INFO source=connection.py:121 msg="rank connected" job=llm rank=3

Names come from peers, so a value is quoted where it could end or forge a line: one event is always one line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TextIO

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class Log:
    """Writes the events of a module: a message that is always the same words, and what changes as values."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, message: str, /, **values: object) -> None:
        self.write(logging.INFO, message, values)

    def warning(self, message: str, /, **values: object) -> None:
        self.write(logging.WARNING, message, values)

    def error(self, message: str, /, **values: object) -> None:
        self.write(logging.ERROR, message, values)

    def exception(self, message: str, failure: BaseException | bool = True, /, **values: object) -> None:
        """An error that nobody expected (by default the one that is handled), its traceback as `error`."""
        self.write(logging.ERROR, message, values, failure)

    def write(
        self, level: int, message: str, values: Mapping[str, object], failure: BaseException | bool = False
    ) -> None:
        """For functions that wrap a log, as those above: `source` names the place that called them."""
        self._logger.log(level, _Line(message, values), exc_info=failure, stacklevel=3)


@dataclass(frozen=True)
class _Line:
    """What a record holds as its message, so that a line that nobody reads costs no formatting."""

    message: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join(
            f"{key}={_quoted(value)}" for key, value in {"msg": self.message, **self.values}.items()
        )


@contextlib.contextmanager
def on_stderr(level: str) -> Iterator[None]:
    """While the block runs, events of `level` and above are on stderr."""
    root, handler = logging.getLogger(), _StderrHandler()
    handler.setFormatter(_Formatter())
    handler.addFilter(_worth_a_line)
    before = root.level
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Ours, or a warning of a library: what libraries say below that has signatures of requests in it."""
    return record.name.startswith("argus_") or record.levelno >= logging.WARNING


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        event = record.msg if isinstance(record.msg, _Line) else _Line(record.getMessage(), {})
        line = f"time={time[:-6]}Z level={level} source={record.filename}:{record.lineno} {event}"
        return f"{line} error={_quoted(self.formatException(record.exc_info))}" if record.exc_info else line


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what is sys.stderr then, which a caller of main() may have replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _quoted(value: object) -> str:
    match value:
        case bool() | None:
            text = str(value).lower()
        case float():
            text = f"{value:.6g}"
        case _:
            text = str(value)
    if text.isprintable() and text and not any(c in text for c in ' "='):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    # JSON leaves line separators, control characters above ASCII and halves of surrogate pairs as they are.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)
