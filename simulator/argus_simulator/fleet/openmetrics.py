"""Samples of a fleet as an OpenMetrics file, for `promtool tsdb create-blocks-from openmetrics FILE`.

OpenMetrics wants all samples of a metric together, by time, so they rest on disk until the last one is there:
one binary file a block, a row a sample time.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.series_blocks import Block

_SERIES_AT_ONCE: Final = 10_000


class OpenMetricsFile:
    """Writes `path` when closed; needs eight bytes a sample beside it until then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks: list[Block] = []
        self._times: list[float] = []
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=".fleet-", dir=path.parent)
        except OSError as error:
            raise ArgusSimulatorError(f"{path}: cannot write there: {error.strerror}") from error
        self._spools: list[Path] = []

    def open(self, blocks: Sequence[Block]) -> None:
        self._blocks = list(blocks)
        self._spools = [Path(self._folder.name) / f"{index}.f64" for index in range(len(blocks))]

    def write(self, at: float, values: Sequence[Floats]) -> int:
        self._times.append(at)
        present = 0
        try:
            for spool, value in zip(self._spools, values, strict=True):
                with spool.open("ab") as file:
                    np.ascontiguousarray(value).tofile(file)
                present += int((~np.isnan(value)).sum())
        except OSError as error:
            raise ArgusSimulatorError(f"{self._path}: cannot write: {error.strerror}") from error
        return present

    def close(self) -> None:
        try:
            with self._path.open("w", encoding="utf-8") as file:
                self._render(file)
        except OSError as error:
            raise ArgusSimulatorError(f"{self._path}: cannot write: {error.strerror}") from error
        finally:
            self._folder.cleanup()

    def _render(self, file: TextIO) -> None:
        stamps = [f"{time:.3f}" for time in self._times]
        of_family: dict[str, dict[object, list[int]]] = {}
        for index, block in enumerate(self._blocks):
            # A summary's count, sum and quantiles of one time stand together: blocks with the same columns.
            columns = len(block.rows), tuple(map(id, block.base))
            key: object = columns if block.type == "summary" else index
            of_family.setdefault(block.family, {}).setdefault(key, []).append(index)
        for family, together in of_family.items():
            type_ = self._blocks[next(iter(together.values()))[0]].type
            name = family.removesuffix("_total") if type_ == "counter" else family
            file.write(f"# TYPE {name} {type_}\n# HELP {name} {_help(family)}\n")
            for indices in together.values():
                parts = [self._series(index, len(stamps)) for index in indices]
                for samples in zip(*parts, strict=True):
                    file.writelines(_lines(samples, stamps))
        file.write("# EOF\n")

    def _series(self, index: int, times: int) -> Iterator[tuple[str, list[float]]]:
        """Name with labels, and the values at all times, of every series of a block."""
        block = self._blocks[index]
        table = np.memmap(self._spools[index], np.float64, "r", shape=(times, block.size))
        labels = block.labels()
        for first in range(0, block.size, _SERIES_AT_ONCE):
            for values in np.array(table[:, first : first + _SERIES_AT_ONCE]).T:
                yield _spelled(next(labels)), values.tolist()


def _lines(samples: Sequence[tuple[str, list[float]]], stamps: Sequence[str]) -> Iterator[str]:
    for number, stamp in enumerate(stamps):
        for series, values in samples:
            if not math.isnan(values[number]):
                yield f"{series} {values[number]!r} {stamp}\n"


def _spelled(labels: Labels) -> str:
    name = next(value for key, value in labels if key == "__name__")
    inner = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels if key != "__name__")
    return f"{name}{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _help(family: str) -> str:
    known = catalogue.BY_NAME.get(family)
    return _escaped(known.help) if known is not None else "As Prometheus or the process itself says it."
