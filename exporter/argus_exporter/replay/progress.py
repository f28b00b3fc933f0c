"""How far reading has come: one bar over all files, on a terminal, and only where reading takes a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Never, Protocol, TextIO

from tqdm import tqdm

_INTERVAL_S: Final = 0.1
_DELAY_S: Final = 0.5
"""Small files are read before a bar would be of use."""


class Progress(Protocol):
    """What a reader tells: the file it begins, and the bytes of it that it has read."""

    def begin(self, path: Path) -> None: ...

    def advance(self, read: int) -> None: ...


class NoProgress:
    def begin(self, path: Path) -> None:
        pass

    def advance(self, read: int) -> None:
        pass


@contextmanager
def shown(
    files: Sequence[Path], stream: TextIO, *, quiet: bool = False, delay_s: float = _DELAY_S
) -> Iterator[Progress]:
    """A progress bar on `stream` if that is a terminal; cleared at the end, so that messages stand alone."""
    if quiet or not stream.isatty():
        yield NoProgress()
        return
    total = sum(path.stat().st_size for path in files if path.is_file())
    with tqdm(
        total=total,
        unit="B",
        unit_scale=True,
        unit_divisor=1000,
        delay=delay_s,
        mininterval=min(_INTERVAL_S, delay_s),
        miniters=1,
        leave=False,
        dynamic_ncols=True,
        file=stream,
    ) as bar:
        yield _Bar(bar, len(files))


class _Bar:
    def __init__(self, bar: tqdm[Never], files: int) -> None:
        self._bar = bar
        self._files = files
        self._begun = 0

    def begin(self, path: Path) -> None:
        self._begun += 1
        place = f" {self._begun}/{self._files}" if self._files > 1 else ""
        self._bar.set_description_str(f"reading{place} {path.name}", refresh=False)

    def advance(self, read: int) -> None:
        self._bar.update(read)
