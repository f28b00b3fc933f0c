"""A complete window to what is published of it: modes of the top pairs, shares, issue latency, voids.

The expensive part of the exporter. It runs in a worker thread, one window of a rank after the other, and
shares no state with the event loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.modes import ModeConfig, Modes, find_modes
from argus_exporter.kernels.communicator_streams import is_communicator
from argus_exporter.kernels.communicators import find_dimensions
from argus_exporter.kernels.idle_time import Voids, find_voids, last_kernel_end
from argus_exporter.kernels.issue_latency import IssueLatency, issue_latency
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.kernels.pairs import Pairs, find_pairs
from argus_exporter.kernels.streams import StreamLabels
from argus_exporter.kernels.totals import KernelIds
from argus_exporter.place.topology import Identity

PairLabel = tuple[str, str]
"""Label values `kernel` and `stream`."""

_STAYS_WITHIN: Final = 1.25
"""A pair takes the place of a published one when its time share is larger by this factor. Without it, pairs
near the cutoff take turns: their shares move by some percent from minute to minute."""
_TICK_SAMPLE: Final = 4096
_COARSEST_CLOCK_NS: Final = 1000


@dataclass(frozen=True)
class PairStatistics:
    """One published (kernel, stream) pair in one window. Times in seconds."""

    kernel: str
    name: str
    stream: str
    count: int
    seconds: float
    modes: Modes

    @property
    def label(self) -> PairLabel:
        return self.kernel, self.stream


@dataclass(frozen=True)
class WindowStatistics:
    """What scrapes see of a window.

    Attributes:
        pairs: the published ones, by time share, largest first.
        coverage: share of all kernel time that they have.
        cutoff: a pair that is not among them had at most this share, and so had the smallest of them.
        streams: label by stream key, of every stream seen so far.
        dimensions: parallel dimension by stream key, where known (streams of collectives).
        issue_latency: by kernel class.
        voids: None where the window has no iteration marks.
    """

    boundary: Boundary
    pairs: tuple[PairStatistics, ...]
    coverage: float
    cutoff: float
    streams: Mapping[int, str]
    dimensions: Mapping[int, str]
    issue_latency: Mapping[str, IssueLatency]
    voids: Voids | None


class WindowSummariser:
    """Summarises the windows of one rank, in their order."""

    def __init__(self) -> None:
        self._ids = KernelIds()
        self._streams = StreamLabels()
        self._dimensions: dict[int, str] = {}
        self._topology: tuple[Identity, dict[str, str]] | None = None
        self._previous: tuple[int, int | None] | None = None

    def summarise(
        self,
        window: ClosedWindow,
        identity: Identity,
        published: Collection[PairLabel],
        top_pairs: int,
        config: ModeConfig,
        routing: Mapping[str, str] | None = None,
        communicators: Mapping[int, Collection[str]] | None = None,
    ) -> WindowStatistics:
        """Cluster the top pairs of a window by time share.

        Args:
            window: at least one record.
            identity: the rank's place.
            published: pairs of the window before, which stay unless another is clearly larger.
            top_pairs: how many to publish.
            config: how modes are told apart.
            routing: the user's phase patterns, see `communicators`. With another identity or routing than
                before, streams are named anew.
            communicators: what NCCL's communicators may be, see `communicators`.
        """
        records = window.records
        topology = identity, dict(routing or {})
        if self._topology not in (None, topology):
            self._streams, self._dimensions = StreamLabels(), {}
        self._topology = topology
        pairs = find_pairs(records)
        found = find_dimensions(
            records, pairs, window.names, identity, window.collectives, routing, communicators
        )
        # What a communicator is may become clear later, as more of its members are here; a guess stands.
        told = {key for key in pairs.stream.tolist() if is_communicator(key)}
        self._dimensions = found | {key: name for key, name in self._dimensions.items() if key not in told}
        labels = self._streams.update(pairs, window.names, self._dimensions.get)
        by_label, label_of_pair = self._label(pairs, window.names, labels)
        totals = np.bincount(label_of_pair, weights=pairs.seconds, minlength=len(by_label))
        seconds = dict(zip(by_label, totals.tolist(), strict=True))
        chosen, cutoff = choose_pairs(seconds, published, top_pairs)
        place = {label: index for index, label in enumerate(chosen)}
        place_of_label = np.array([place.get(label, len(chosen)) for label in by_label], np.intp)
        clustered = _cluster(
            len(chosen), place_of_label[label_of_pair][pairs.index], records["duration_ns"], config
        )
        statistics = tuple(
            PairStatistics(label[0], by_label[label], label[1], count, seconds[label], modes)
            for label, (count, modes) in zip(chosen, clustered, strict=True)
        )
        total = sum(seconds.values())
        covered = sum(seconds[label] for label in chosen)
        return WindowStatistics(
            boundary=window.boundary,
            pairs=statistics,
            coverage=covered / total if total else 0.0,
            cutoff=cutoff / total if total else 0.0,
            streams=labels,
            dimensions=dict(self._dimensions),
            issue_latency=issue_latency(records, pairs, window.names),
            voids=self._voids(window),
        )

    def _label(
        self, pairs: Pairs, names: Mapping[int, str], streams: Mapping[int, str]
    ) -> tuple[dict[PairLabel, str], NDArray[np.intp]]:
        """Labels with their full names, and the label of each pair; two pairs may share one."""
        by_label: dict[PairLabel, str] = {}
        place: dict[PairLabel, int] = {}
        index = np.empty(len(pairs.name_id), np.intp)
        for pair, (name_id, key) in enumerate(
            zip(pairs.name_id.tolist(), pairs.stream.tolist(), strict=True)
        ):
            name = names.get(name_id, f"unknown_{name_id}")
            label = self._ids[name], streams[key]
            by_label.setdefault(label, name)
            index[pair] = place.setdefault(label, len(place))
        return by_label, index

    def _voids(self, window: ClosedWindow) -> Voids | None:
        boundary, device = window.boundary, self._streams.main_device
        if boundary.steps == 0 or device is None:
            self._previous = None
            return None
        consecutive = self._previous is not None and self._previous[0] == boundary.last_step - boundary.steps
        previous_end = self._previous[1] if consecutive and self._previous is not None else None
        self._previous = boundary.last_step, last_kernel_end(window.records, device)
        return find_voids(window.records, window.step_ends_ns, previous_end, device)


def choose_pairs(
    seconds: Mapping[PairLabel, float], published: Collection[PairLabel], top: int
) -> tuple[list[PairLabel], float]:
    """The pairs to publish, largest first, and the time that no other pair exceeds.

    Args:
        seconds: time of each pair in the window.
        published: pairs of the window before.
        top: how many.

    Returns:
        Labels; and the larger of the smallest chosen time and the largest left out (with hysteresis, a pair
        left out may be larger than one that stays).
    """
    score = {
        label: value * (_STAYS_WITHIN if label in published else 1.0) for label, value in seconds.items()
    }
    ranked = sorted(
        (label for label in seconds if seconds[label] > 0), key=lambda label: (-score[label], label)
    )
    chosen = sorted(ranked[:top], key=lambda label: (-seconds[label], label))
    smallest = seconds[chosen[-1]] if chosen else 0.0
    return chosen, max([smallest, *(seconds[label] for label in ranked[top:])])


def clock_tick_seconds(durations_ns: NDArray[np.uint64]) -> float:
    """Resolution of the clock behind a window's durations; 0 where it is as fine as their unit.

    GPUs count in 32 ns or 1 us, and a mode cannot be told from a tick without knowing it. A common divisor
    above a microsecond is no clock but a window of few different durations.
    """
    sample = durations_ns[:: max(1, len(durations_ns) // _TICK_SAMPLE)]
    tick = int(np.gcd.reduce(sample))
    return tick / 1e9 if 1 < tick <= _COARSEST_CLOCK_NS else 0.0


def _cluster(
    count: int, index: NDArray[np.intp], durations_ns: NDArray[np.uint64], config: ModeConfig
) -> Iterator[tuple[int, Modes]]:
    """Events and modes of `count` groups of records.

    Args:
        count: how many groups.
        index: the group of each record, shape (n,); `count` for those of none.
        durations_ns: of each record, shape (n,).
    """
    tick = max(config.tick_seconds, clock_tick_seconds(durations_ns))
    config = dataclasses.replace(config, tick_seconds=tick)
    # 16 bits: numpy then sorts by radix, ten times faster.
    order = np.argsort(index.astype(np.uint16), kind="stable")
    durations = durations_ns[order].astype(np.float64) / 1e9
    ends = np.cumsum(np.bincount(index, minlength=count))
    for place in range(count):
        own = durations[ends[place - 1] if place else 0 : ends[place]]
        yield len(own), find_modes(own, config)
