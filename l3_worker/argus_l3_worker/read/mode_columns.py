"""Published modes as columns: a million samples are some arrays, not a million objects. No I/O."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from argus_core import native
from argus_l3_worker.read.prometheus import decoding, readable, result_of
from argus_l3_worker.triples import Bools, Floats, Ints

Name = TypeVar("Name", bound=Hashable)

# Durations and counts outside of these are no measurements, and their squares may leave the float range.
_PLAUSIBLE_SECONDS: Final = (1e-9, 1e7)
PLAUSIBLE_EVENTS: Final = 1e15
_ROUNDING: Final = 1e-3


@dataclass(frozen=True)
class ModeColumns:
    """One row a mode of a pair on a rank, in no order.

    Attributes:
        ranks, pairs: names; a pair is (kernel, stream).
        rank, pair: which of them a row is about, shape (rows,).
        p50, p99, count: the triple, plausible, p99 >= p50; durations in seconds, shape (rows,).
        left_out: rows that were not taken, by reason.
    """

    ranks: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    rank: Ints
    pair: Ints
    p50: Floats
    p99: Floats
    count: Floats
    left_out: Mapping[str, int] = field(default_factory=dict)


def decode_modes(events: bytes, p50: bytes, p99: bytes) -> ModeColumns:
    """Columns from the answers of three instant queries by rank, kernel, stream and mode.

    Raises:
        QueryError: an error answer, an incomplete one, or not an instant vector.
    """
    with decoding():
        return _joined(*map(_vector, (events, p50, p99)))


def concatenate(parts: Sequence[ModeColumns]) -> ModeColumns:
    """Parts of one answer as one."""
    left_out: Counter[str] = Counter()
    for part in parts:
        left_out.update(part.left_out)

    def column(name: str) -> Floats:
        return np.concatenate([np.empty(0), *(getattr(part, name) for part in parts)])

    ranks, rank = _recoded([part.ranks for part in parts], [part.rank for part in parts])
    pairs, pair = _recoded([part.pairs for part in parts], [part.pair for part in parts])
    return ModeColumns(
        ranks, pairs, rank, pair, column("p50"), column("p99"), column("count"), dict(left_out)
    )


def _coded(names: Iterable[Name]) -> tuple[tuple[Name, ...], Ints]:
    """(the different ones, which of them each is)."""
    place: dict[Name, int] = {}
    codes = np.array([place.setdefault(name, len(place)) for name in names], dtype=np.intp)
    return tuple(place), codes


def _recoded(names: Sequence[Sequence[Name]], codes: Sequence[Ints]) -> tuple[tuple[Name, ...], Ints]:
    """Codes of several tables, each with its own names, as those of one."""
    known, new = _coded(itertools.chain.from_iterable(names))
    begin = np.cumsum([0, *map(len, names)])
    parts = [of_part + at for of_part, at in zip(codes, begin, strict=False)]
    return known, new[np.concatenate([np.empty(0, dtype=np.intp), *parts])]


_LABELS: Final = ("rank", "kernel", "stream", "mode")
_ELEMENTS: Final = b'"result":['
# Within a label's value quotes are escaped, so there are as many of these as elements.
_VALUE: Final = b'"value":['


@dataclass(frozen=True)
class _Vector:
    """The elements of an answer.

    Attributes:
        labels: by label of `_LABELS` its distinct values and which of them an element has, shape (n,).
        values: shape (n,).
    """

    labels: Sequence[tuple[Sequence[str], Ints | native.Codes]]
    values: Floats

    def has_series_of(self, other: _Vector) -> bool:
        return all(
            names == others and np.array_equal(codes, of_other)
            for (names, codes), (others, of_other) in zip(self.labels, other.labels, strict=True)
        )

    def series(self) -> Iterator[tuple[str, ...]]:
        return zip(*([names[code] for code in codes.tolist()] for names, codes in self.labels), strict=True)


def _vector(answer: bytes) -> _Vector:
    return _as_prometheus_writes(answer) or _of_elements(result_of(answer, "vector"), answer)


def _as_prometheus_writes(answer: bytes) -> _Vector | None:
    """An answer of the usual form, for which no million objects are made; None: it has another."""
    compiled, place = native.library(), answer.find(_ELEMENTS)
    if compiled is None or place < 0:
        return None
    begin = place + len(_ELEMENTS)
    with readable(answer):
        read = compiled.read_vector(answer, begin, _LABELS, answer.count(_VALUE))
    if read is None:
        return None
    labels, values, end = read
    result_of(answer[:begin] + b"]" + answer[end:], "vector")  # what stands around the elements
    return _Vector(labels, values)


def _of_elements(elements: Sequence[Any], answer: bytes) -> _Vector:
    with readable(answer):
        labels = [_coded(one["metric"].get(label, "") for one in elements) for label in _LABELS]
        return _Vector(labels, np.array([float(one["value"][1]) for one in elements], dtype=np.float64))


def _joined(events: _Vector, p50: _Vector, p99: _Vector) -> ModeColumns:
    (ranks, rank), (kernels, kernel), (streams, stream), _ = events.labels
    of_pairs, pair = np.unique(kernel.astype(np.intp) * len(streams) + stream, return_inverse=True)
    pairs = tuple((kernels[of // len(streams)], streams[of % len(streams)]) for of in of_pairs.tolist())
    count, median, high = events.values, _aligned(events, p50), _aligned(events, p99)
    of_nobody = np.array([not name for name in ranks], dtype=np.bool_)
    of_nothing = np.array([not kernel for kernel, _ in pairs], dtype=np.bool_)
    low_seconds, high_seconds = _PLAUSIBLE_SECONDS
    with np.errstate(invalid="ignore"):
        reasons: dict[str, Bools] = {
            "without rank or kernel": of_nobody[rank] | of_nothing[pair],
            "incomplete or not finite": ~(np.isfinite(count) & np.isfinite(median) & np.isfinite(high)),
            "without events": count <= 0.0,
            "implausible duration or count": ~(
                (median >= low_seconds) & (median <= high_seconds) & (high > 0.0) & (high <= high_seconds)
                & (count <= PLAUSIBLE_EVENTS)
            ),
            "p99 below p50": high < median * (1.0 - _ROUNDING),
        }  # fmt: skip
    taken = np.ones(len(count), dtype=bool)
    left_out = {}
    for reason, hit in reasons.items():
        if found := int((hit & taken).sum()):
            left_out[reason] = found
            taken &= ~hit
    high = np.maximum(high, median)
    triple = median[taken], high[taken], count[taken]
    return ModeColumns(tuple(ranks), pairs, rank[taken].astype(np.intp), pair[taken], *triple, left_out)


def _aligned(events: _Vector, other: _Vector) -> Floats:
    """Values of `other` in the order of `events`, NaN where it has none."""
    if other.has_series_of(events):
        return other.values
    value_of = dict(zip(other.series(), other.values.tolist(), strict=True))
    return np.array([value_of.get(series, np.nan) for series in events.series()], dtype=np.float64)
