"""Published modes as columns: a million samples are some arrays, not a million objects. No I/O."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

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
        count_of = _vector(events)
        labels, form = count_of[0], _VALUE.split(events)[::2]
        medians_of, highs_of = (_vector_of(answer, labels, form) for answer in (p50, p99))
        return _joined(count_of, medians_of, highs_of)


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


_Vector = tuple[Sequence[Mapping[str, str]], Sequence[float]]
# Within a label's value quotes are escaped, so this is an element's value and nothing else.
_VALUE: Final = re.compile(rb'"value":\[[^,\]]*,"([^"]*)"\]')


def _vector(answer: bytes) -> tuple[list[Mapping[str, str]], list[float]]:
    elements: list[Any] = result_of(answer, "vector")
    with readable(answer):
        return [one["metric"] for one in elements], [float(one["value"][1]) for one in elements]


def _vector_of(answer: bytes, labels: Sequence[Mapping[str, str]], form: Sequence[bytes]) -> _Vector:
    """An answer that is expected to have these labels, which then are not parsed again.

    Prometheus answers queries of one form alike but for the values, as long as they name the same series.

    Args:
        form: what stands between the values of the answer that has the labels.
    """
    parts = _VALUE.split(answer)  # between values, and values, by turns
    if len(form) != len(labels) + 1 or parts[::2] != form:
        return _vector(answer)
    with readable(answer):
        return labels, [float(value) for value in parts[1::2]]


def _joined(events: _Vector, p50: _Vector, p99: _Vector) -> ModeColumns:
    labels, counts = events
    count = np.array(counts, dtype=np.float64)
    median, high = _aligned(labels, p50), _aligned(labels, p99)
    ranks, rank = _coded(of.get("rank", "") for of in labels)
    pairs, pair = _coded((of.get("kernel", ""), of.get("stream", "")) for of in labels)
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
    taken = np.ones(len(labels), dtype=bool)
    left_out = {}
    for reason, hit in reasons.items():
        if found := int((hit & taken).sum()):
            left_out[reason] = found
            taken &= ~hit
    high = np.maximum(high, median)
    triple = median[taken], high[taken], count[taken]
    return ModeColumns(ranks, pairs, rank[taken], pair[taken], *triple, left_out)


def _aligned(labels: Sequence[Mapping[str, str]], other: _Vector) -> Floats:
    """Values of `other` in the order of `labels`, NaN where it has none."""
    other_labels, values = other
    if other_labels is labels or other_labels == labels:
        return np.array(values, dtype=np.float64)
    by_key = {_key(of): value for of, value in zip(other_labels, values, strict=True)}
    return np.array([by_key.get(_key(of), np.nan) for of in labels], dtype=np.float64)


def _key(labels: Mapping[str, str]) -> tuple[str, str, str, str]:
    get = labels.get
    return get("rank", ""), get("kernel", ""), get("stream", ""), get("mode", "")
