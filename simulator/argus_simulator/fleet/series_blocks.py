"""Series of a fleet in blocks: one metric, rows of labels, one value for each row and rank (or host)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from argus_core.remote_write import Labels
from argus_simulator.fast_play.storage import Floats


@dataclass(frozen=True)
class Row:
    """Labels that all series of a row share, and those that each rank has its own value of."""

    same: dict[str, str] = field(default_factory=dict)
    each: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """The series of one sample name.

    Attributes:
        name: sample name, such as `argus_phase_duration_seconds_sum`.
        family: name of its family in the catalogue (or its own).
        type: gauge, counter or summary.
        base: labels of each column, before those of the row.
        values: now, shape (rows, columns) or, of one row, (columns,); NaN where there is no series.
    """

    name: str
    family: str
    type: str
    base: Sequence[dict[str, str]]
    rows: Sequence[Row]
    values: Callable[[], Floats]

    @property
    def size(self) -> int:
        return len(self.rows) * len(self.base)

    def labels(self) -> Iterator[Labels]:
        """Of every series, row by row, in the order of the values."""
        for row in self.rows:
            shared = {"__name__": self.name} | row.same
            # All columns have the same names: sorted once for the row.
            order = sorted(shared.keys() | self.base[0].keys() | row.each.keys())
            for column, base in enumerate(self.base):
                own = shared | base | {name: values[column] for name, values in row.each.items()}
                yield tuple([(name, own[name]) for name in order])
