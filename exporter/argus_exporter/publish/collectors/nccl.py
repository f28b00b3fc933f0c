"""Collectives by communicator, as NCCL tells them to libargus_nccl; nothing where that is not loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_core.nccl_page import Communicator, NcclPage, Peer
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.nccl_groups import dimensions_of, group_name
from argus_exporter.ranks.nccl_oldest import WAITS, oldest
from argus_exporter.ranks.nccl_totals import NcclTotals
from argus_exporter.ranks.rank_state import RankState

COMMUNICATORS: Final = 8
"""Published with their sequences and peers, those with the most operations; sums by group are of all."""
PEERS: Final = 2
"""Of a communicator, those waited for longest: a ring has one to send to and one to receive from. One of them
is the peer whose open wait has gone on for longest, as a wait that does not end is in no sum."""
_DROPPED: Final = (
    "dropped_events",
    "foreign_events",
    "unknown_events",
    "stale_events",
    "dropped_communicators",
    "former_dropped_events",
)


class NcclCollector:
    name = "nccl"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        told = [(state, page) for state in ranks if (page := state.nccl()) is not None]
        dimensions = {
            job: dimensions_of(
                (state.identity, one)
                for state, page in told
                if state.identity.training_job == job
                for one in page.communicators
            )
            for job in {state.identity.training_job for state, _ in told}
        }
        families = _Families()
        for state, page in told:
            families.add(state, page, dimensions[state.identity.training_job], round(now * 1e9))
        return with_samples(families.all, "no rank has libargus_nccl loaded (ARGUS_NCCL is off by default)")


class _Families:
    def __init__(self) -> None:
        self.info = FamilyBuilder(catalogue.NCCL_INFO)
        self.dropped = FamilyBuilder(catalogue.NCCL_DROPPED)
        self.collectives = FamilyBuilder(catalogue.NCCL_COLLECTIVES)
        self.bytes = FamilyBuilder(catalogue.NCCL_BYTES)
        self.by_size = FamilyBuilder(catalogue.NCCL_SIZES)
        self.launches = FamilyBuilder(catalogue.NCCL_LAUNCHES)
        self.kernels = FamilyBuilder(catalogue.NCCL_KERNELS)
        self.bus_bytes = FamilyBuilder(catalogue.NCCL_BUS_BYTES)
        self.bus_seconds = FamilyBuilder(catalogue.NCCL_BUS_SECONDS)
        self.network = FamilyBuilder(catalogue.NCCL_NETWORK)
        self.entered = FamilyBuilder(catalogue.NCCL_ENTERED)
        self.finished = FamilyBuilder(catalogue.NCCL_FINISHED)
        self.wait = FamilyBuilder(catalogue.NCCL_WAIT)
        self.sent = FamilyBuilder(catalogue.NCCL_SENT)
        self.waiting = FamilyBuilder(catalogue.NCCL_WAITING)
        self.oldest = FamilyBuilder(catalogue.NCCL_OLDEST)
        self.all = tuple(vars(self).values())

    def add(self, state: RankState, page: NcclPage, dimensions: dict[int, str], now_ns: int) -> None:
        labels = rank_labels(state)
        self.info.add(
            labels
            | {
                "state": page.state,
                "reason": page.reason,
                "nccl": version_text(page.nccl_version),
                "interface": str(page.table),
                "former": page.former,
            },
            1,
        )
        for reason in _DROPPED:
            if count := getattr(page, reason):
                self.dropped.add(labels | {"reason": reason}, count)
        groups = {one.hash: group_name(state.identity, dimensions, one) for one in page.communicators}
        state.nccl_totals.add(page, groups)
        self._sums(labels, state.nccl_totals)
        # One process may hold several members of a communicator, of several GPUs: the busiest is shown.
        live = {one.hash: one for one in sorted(page.communicators, key=_operations) if one.live}.values()
        for one in sorted(live, key=_operations, reverse=True)[:COMMUNICATORS]:
            self._communicator(labels | _names(groups, one), one)
        for step in oldest(page, now_ns):
            where = _names(groups, step.communicator)
            what = {"operation": step.operation, **_ends(step.communicator, step.peer), "wait": step.wait}
            self.oldest.add(labels | where | what, state.unix_seconds(step.since_ns))

    def _sums(self, labels: dict[str, str], totals: NcclTotals) -> None:
        for (group, function), count in totals.collectives.items():
            if count:  # else it is of kernels alone
                where = labels | {"group": group, "operation": function}
                self.collectives.add(where, count)
                self.bytes.add(where, totals.bytes[group, function])
        for (group, size), count in totals.sizes.items():
            if count:
                self.by_size.add(labels | {"group": group, "size": size}, count)
        for (group, function), count in totals.kernels.items():
            if count:
                seconds = totals.kernel_ns[group, function] / 1e9
                self.kernels.add_summary(labels | {"group": group, "operation": function}, count, seconds)
        for (group, size), moved in totals.bus_bytes.items():
            if moved:
                where = labels | {"group": group, "size": size}
                self.bus_bytes.add(where, moved)
                self.bus_seconds.add(where, totals.bus_ns[group, size] / 1e9)
        for (group, function), count in totals.network.items():
            if count:
                seconds = totals.network_ns[group, function] / 1e9
                self.network.add_summary(labels | {"group": group, "operation": function}, count, seconds)
        for group, count in totals.launches.items():
            if count:
                self.launches.add_summary(labels | {"group": group}, count, totals.launch_ns[group] / 1e9)

    def _communicator(self, labels: dict[str, str], one: Communicator) -> None:
        for operation in one.operations:
            where = labels | {"operation": operation.function}
            if entered := max(operation.sequence, operation.called):
                self.entered.add(where, entered)
            if operation.finished:
                self.finished.add(where, operation.finished)
        for peer in _shown(one.peers):
            seconds: Counter[str] = Counter()
            steps: Counter[str] = Counter()
            for wait, ns, open_, done in zip(WAITS, peer.ns, peer.open, peer.steps, strict=True):
                if done or open_:
                    seconds[wait] += ns
                    steps[wait] += open_
            ends = labels | _ends(one, peer.rank)
            if peer.sent_bytes:
                self.sent.add(ends, peer.sent_bytes)
            for wait, ns in seconds.items():
                where = ends | {"wait": wait}
                self.wait.add(where, ns / 1e9)
                self.waiting.add(where, steps[wait])


def _names(groups: Mapping[int, str], one: Communicator) -> dict[str, str]:
    return {"group": groups[one.hash], "communicator": f"{one.hash:#x}"}


def _ends(one: Communicator, peer: int) -> dict[str, str]:
    return {"member": str(one.rank), "peer": str(peer) if peer >= 0 else "other"}


def version_text(version: int) -> str:
    """`2.30.7` for 23007; `unknown` for 0."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}" if version else "unknown"


def _operations(communicator: Communicator) -> int:
    return sum(operation.count for operation in communicator.operations)


def _shown(peers: Sequence[Peer]) -> list[Peer]:
    ranked = sorted(peers, key=_waited, reverse=True)
    shown = ranked[:PEERS]
    stuck = min((peer for peer in peers if any(peer.open)), key=lambda peer: peer.last_ns, default=None)
    return shown if stuck is None or stuck in shown else [*shown[:-1], stuck]


def _waited(peer: Peer) -> int:
    return sum(peer.ns)
