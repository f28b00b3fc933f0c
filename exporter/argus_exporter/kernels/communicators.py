"""Along which parallel dimension the collectives of a stream run.

A collective kernel's name tells the operation and not the process group. But a communicator has a stream of
its own (PyTorch makes one for each process group), so the group is a property of the stream. Where NCCL says
which communicator launched a kernel (`communicator_streams`), its members tell what it may be, and what
follows here only chooses among that. In this order:

1. the user says so: a `routing` entry whose pattern matches the collective's phase name (`send_recv: pp`);
2. by evidence: its kernels were launched, or ran, inside host-side spans of collectives of one dimension;
3. by elimination: only one dimension of the job is larger than 1, or only one of these uses the stream's
   operations: dp, tp and ep have collectives, pp and ep sends and receives. With several dimensions, two
   streams with the same operation are not told apart so: one may be the whole job's (the norm of gradients).

A communicator that fits no dimension has none by elimination, unless it only sends and receives: PyTorch
makes one for each pair of ranks that does.

Otherwise it is not known. Then the stream is `nccl0`, and no phase is derived from it: a collective that is
compared with ranks which had no part in it would blame the wrong one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_names import collective_phase
from argus_core.kernel_records import KernelArray
from argus_exporter.kernels.communicator_streams import is_communicator
from argus_exporter.kernels.pairs import Pairs
from argus_exporter.place.topology import Identity

_POINT_TO_POINT: Final = ("pp", "ep")
"""NCCL's all-to-all, which expert parallelism uses, is made of sends and receives."""
_PAIRED: Final = ("pp", "ep", "cp")
"""Dimensions along which a communicator may only send and receive; cp does in ring attention."""
_COLLECTIVE: Final = ("dp", "tp", "ep")
_LEAST_KERNELS: Final = 3
_LEAST_SHARE: Final = 0.8
_NEVER: Final = 2**63 - 1
_TOLERANCE_NS: Final = 100_000
"""CUPTI and CUDA events are tied to Unix time separately: tens of microseconds apart."""


class CollectiveSpan(NamedTuple):
    """A collective as the host saw it. `on_device`: its times are of the GPU and not of the launch."""

    begin_ns: int
    end_ns: int
    dimension: str
    on_device: bool


def find_dimensions(
    records: KernelArray,
    pairs: Pairs,
    names: Mapping[int, str],
    identity: Identity,
    spans: Sequence[CollectiveSpan] = (),
    routing: Mapping[str, str] | None = None,
    communicators: Mapping[int, Collection[str]] | None = None,
) -> dict[int, str]:
    """Stream key to dimension (`dp`, `tp`, `pp`, `ep`, ..., `world`), for the streams where it is known.

    Args:
        records: kernel records of one window, shape (n,).
        pairs: of these records.
        names: kernel names by `name_id`.
        identity: the rank's place; a dimension without a size counts as larger than 1.
        spans: host-side collectives of about the same time.
        routing: phase name pattern to dimension, as configured by the user.
        communicators: by stream of a communicator, the dimensions that it may be along.
    """
    pairs_of: dict[int, list[int]] = {}
    operations: dict[int, set[str]] = {}
    for pair, (name_id, key) in enumerate(zip(pairs.name_id.tolist(), pairs.stream.tolist(), strict=True)):
        phase = collective_phase(names.get(name_id, ""))
        if phase:
            pairs_of.setdefault(key, []).append(pair)
            operations.setdefault(key, set()).add(phase)
    seen: dict[str, _Seen] | None = None
    found: dict[int, str] = {}
    for key, phases in operations.items():
        fitting = (communicators or {}).get(key & 0xFFFF_FFFF)
        if fitting is not None and len(fitting) == 1:
            found[key] = next(iter(fitting))
            continue
        dimension = _by_routing(phases, routing or {})
        if not dimension and spans:
            seen = _seen(spans, records) if seen is None else seen
            dimension = _by_evidence(records[np.isin(pairs.index, pairs_of[key])], seen)
        if is_communicator(key):
            dimension = _of_communicator(phases, fitting or (), dimension, identity)
        if dimension:
            found[key] = dimension
    left = {
        key: phases for key, phases in operations.items() if key not in found and not is_communicator(key)
    }
    return found | _by_elimination(left, identity)


def _of_communicator(
    operations: Collection[str], fitting: Collection[str], guess: str | None, identity: Identity
) -> str | None:
    """One of several dimensions that fit, or what a communicator of two is that fits none."""
    if guess in fitting:
        return guess
    if not {"send_recv", "all_to_all"}.issuperset(operations):
        return None
    able = set(fitting or _larger(identity)).intersection(_PAIRED)
    return able.pop() if len(able) == 1 else None


def _larger(identity: Identity) -> list[str]:
    """Dimensions of more than one rank."""
    return [name for name in identity.coordinates if identity.sizes.get(name, 2) > 1]


def _by_routing(operations: Collection[str], routing: Mapping[str, str]) -> str | None:
    for pattern, dimension in routing.items():
        # "*" and the like are about phases in general, not a statement on collectives.
        if pattern.strip("*") and all(fnmatch.fnmatchcase(phase, pattern) for phase in operations):
            return dimension
    return None


def _by_elimination(operations: Mapping[int, Collection[str]], identity: Identity) -> dict[int, str]:
    larger = _larger(identity)
    if len(larger) == 1:
        return dict.fromkeys(operations, larger[0])
    found: dict[int, str] = {}
    for key, phases in operations.items():
        point_to_point = {phase in ("send_recv", "all_to_all") for phase in phases}
        if len(point_to_point) != 1:  # both on one stream: NCCL before 2.14 names kernels wrongly
            continue
        able = [
            name for name in larger if name in (_POINT_TO_POINT if True in point_to_point else _COLLECTIVE)
        ]
        shared = any(set(phases) & set(other) for at, other in operations.items() if at != key)
        if len(able) == 1 and (True in point_to_point or not shared):
            found[key] = able[0]
    return found


@dataclass(frozen=True)
class _Spans:
    """Stretches of time, ascending by their begin, that do not overlap: ns, shape (n,)."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def hold(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which intervals lie within one of them."""
        if not len(self.begin):
            return np.zeros(len(begin), np.bool_)
        place = np.searchsorted(self.begin, begin, side="right") - 1
        return np.asarray((place >= 0) & (end <= self.end[place]))


class _Seen(NamedTuple):
    """The collectives of one dimension, by whose clock they were seen, with the tolerance."""

    on_host: _Spans
    on_device: _Spans


def _seen(spans: Sequence[CollectiveSpan], records: KernelArray) -> dict[str, _Seen]:
    """By dimension, in the order of their names; without those that ended before the first launch."""
    launched = records["start_ns"].astype(np.int64) - np.maximum(records["issue_ns"], 0)
    first = int(launched.min(initial=_NEVER)) - _TOLERANCE_NS
    spans = [span for span in spans if span.end_ns >= first]
    if not spans:
        return {}
    begin, end, dimension, on_device = zip(*spans, strict=True)
    begins, ends = np.array(begin, np.int64) - _TOLERANCE_NS, np.array(end, np.int64) + _TOLERANCE_NS
    dimensions, of_device = np.array(dimension), np.array(on_device, np.bool_)
    order = np.argsort(begins, kind="stable")

    def chosen(which: NDArray[np.bool_]) -> _Spans:
        own = order[which[order]]
        return _Spans(begins[own], ends[own])

    return {
        name: _Seen(chosen(of & ~of_device), chosen(of & of_device))
        for name in sorted(set(dimension))
        for of in [dimensions == name]
    }


def _by_evidence(records: KernelArray, seen: Mapping[str, _Seen]) -> str | None:
    """The dimension whose spans hold at least 80 % of the kernels that any span holds, and three or more."""
    start = records["start_ns"].astype(np.int64)
    end = start + records["duration_ns"].astype(np.int64)
    launch = start - records["issue_ns"]
    launched = records["issue_ns"] >= 0
    if not seen:
        return None
    held = {
        dimension: int(
            np.count_nonzero(spans.on_host.hold(launch, launch) & launched | spans.on_device.hold(start, end))
        )
        for dimension, spans in seen.items()
    }
    best = max(held, key=lambda dimension: held[dimension])
    return best if held[best] >= max(_LEAST_KERNELS, _LEAST_SHARE * sum(held.values())) else None
