"""Clocks of different hosts brought onto one time by what must have ended together.

A collective ends on all its members within microseconds, so the difference of its ends on two hosts is the
difference of their clocks. Where two hosts share only transfers, the smaller delays of both directions are
taken as equal, as NTP does. Offset and drift are fitted robustly; ranks of one node share a clock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from argus_traces.exchanges import Exchange, Exchanges
from argus_traces.operations import Fleet, Operations
from argus_traces.tables import Times

_DRIFT_SAMPLES = 8
_DRIFT_SPAN_S = 0.5
"""Below this, a drift cannot be told from noise, and at 20 ppm it is under 10 us."""

_Points = list[tuple[float, float]]
"""(time, difference of clocks), ns."""


@dataclass(frozen=True)
class Alignment:
    """How clocks were brought together.

    Attributes:
        hosts: how many clocks there are.
        used: ends that were compared across hosts.
        spread_ns: median difference of ends that remains.
        apart: ranks that share no communication with the first: their times mean nothing beside the others'.
    offset_ns, drift: by rank; what is added to its times, at `origin_ns` and a ns after that.
    """

    hosts: int
    used: int
    spread_ns: float
    apart: tuple[int, ...]
    offset_ns: NDArray[np.float64]
    drift: NDArray[np.float64]
    origin_ns: float

    def common(self, rank: int, times: Times) -> Times:
        """Times of a rank's clock on the common clock, ns."""
        shift = self.offset_ns[rank] + self.drift[rank] * (times - self.origin_ns)
        common: Times = times + np.rint(shift).astype(np.int64)
        return common


def align(fleet: Fleet, exchanges: Exchanges) -> tuple[Operations, Alignment]:
    """The operations with the times of the first trace's clock."""
    hosts: dict[str, int] = {}
    host_of = np.array(
        [
            hosts.setdefault(trace.window.node or f"rank {rank}", len(hosts))
            for rank, trace in enumerate(fleet.traces)
        ],
        np.int64,
    )
    aligned = fleet.operations.copy()
    pairs = _differences(fleet, exchanges, host_of)
    origin = float(aligned["start"].min()) if len(aligned) else 0.0
    lines: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}
    waiting = [0]
    while waiting:
        known = waiting.pop(0)
        for (left, right), points in pairs.items():
            if known not in (left, right) or (other := right if known == left else left) in lines:
                continue
            offset, drift = _line(points, origin)
            sign = 1.0 if known == left else -1.0
            lines[other] = (lines[known][0] + sign * offset, lines[known][1] + sign * drift)
            waiting.append(other)
    apart = tuple(rank for rank in range(len(fleet.traces)) if int(host_of[rank]) not in lines)
    used = sum(len(points) for points in pairs.values())
    of_rank = np.array([lines.get(int(host), (0.0, 0.0)) for host in host_of]).reshape(-1, 2)
    alignment = Alignment(len(hosts), used, 0.0, apart, of_rank[:, 0], of_rank[:, 1], origin)
    for rank in range(len(fleet.traces)):
        mine = aligned["rank"] == rank
        for name in ("start", "end", "launch"):
            aligned[name][mine] = alignment.common(rank, aligned[name][mine])
    return aligned, replace(alignment, spread_ns=_spread(aligned, exchanges))


def _differences(
    fleet: Fleet, exchanges: Exchanges, host_of: NDArray[np.int64]
) -> dict[tuple[int, int], _Points]:
    """(end on the lower host - end on the higher host) by pair of hosts."""
    operations = fleet.operations
    collective: dict[tuple[int, int], _Points] = defaultdict(list)
    delays: dict[tuple[int, int], dict[bool, _Points]] = defaultdict(lambda: defaultdict(list))
    for exchange in exchanges.all:
        by_host: dict[int, int] = {}
        for member in exchange.members:
            by_host.setdefault(int(host_of[operations["rank"][member]]), member)
        hosts = sorted(by_host)
        for position, left in enumerate(hosts):
            for right in hosts[position + 1 :]:
                ends = [float(operations["end"][by_host[host]]) for host in (left, right)]
                point = (ends[1], ends[0] - ends[1])
                if exchange.transfer:
                    delays[left, right][_sent_from(exchange, fleet, host_of) == left].append(point)
                else:
                    collective[left, right].append(point)
    pairs = dict(collective)
    for pair, directions in delays.items():
        if pair not in pairs:
            pairs[pair] = _of_transfers(directions)
    return pairs


def _sent_from(exchange: Exchange, fleet: Fleet, host_of: NDArray[np.int64]) -> int:
    sender = int(exchange.scope.split()[1])
    rank = next(rank for rank, trace in enumerate(fleet.traces) if trace.window.rank == sender)
    return int(host_of[rank])


def _of_transfers(directions: dict[bool, _Points]) -> _Points:
    if len(directions) < 2:
        return next(iter(directions.values()))
    # Receivers end later: that adds to one direction's differences and takes from the other's.
    medians = {sent: float(np.median([point[1] for point in points])) for sent, points in directions.items()}
    middle = (medians[True] + medians[False]) / 2
    return [
        (time, value - medians[sent] + middle)
        for sent, points in directions.items()
        for time, value in points
    ]


def _line(points: _Points, origin: float) -> tuple[float, float]:
    """Offset at `origin` and drift of the differences; robust against ends that are not together."""
    table = np.array(sorted(points))
    times, values = table[:, 0] - origin, table[:, 1]
    drift = 0.0
    third = len(times) // 3
    if len(times) >= _DRIFT_SAMPLES and times[-1] - times[0] >= _DRIFT_SPAN_S * 1e9:
        run = np.median(times[-third:]) - np.median(times[:third])
        if run > 0:
            drift = float((np.median(values[-third:]) - np.median(values[:third])) / run)
    return float(np.median(values - drift * times)), drift


def _spread(operations: Operations, exchanges: Exchanges) -> float:
    spreads = [
        float(np.ptp(operations["end"][list(exchange.members)]))
        for exchange in exchanges.all
        if not exchange.transfer
    ]
    return float(np.median(spreads)) if spreads else 0.0
