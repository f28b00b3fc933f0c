"""The page that a simulated producer shares with its exporter: where the host is, ahead of its GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.shared_page import PageWriter, pack_recorded, recorded_word
from argus_simulator.engine.clockwork import Times
from argus_simulator.engine.job import JobStep
from argus_simulator.engine.plan import Ints, Plan

_OPERATIONS: Final = {
    "AllReduce": "all_reduce",
    "AllGather": "_all_gather_base",
    "ReduceScatter": "_reduce_scatter_base",
}
"""What torch's flight recorder calls a collective of NCCL, by what the name of its kernel has in it."""


class HostPage:
    """The shared page of one rank.

    Args:
        monotonic: CLOCK_MONOTONIC in ns.
    """

    def __init__(self, rank: int, monotonic: Callable[[], int]) -> None:
        self._rank, self._monotonic = rank, monotonic
        self._page = PageWriter()
        self._own: dict[Plan, dict[str, Ints]] = {}
        self._called: dict[str, int] = {}
        """Collectives of the steps before, by group."""
        self._open: set[int] = set()
        """Words that tell of an open span."""

    @property
    def fd(self) -> int:
        return self._page.fd

    def close(self) -> None:
        self._page.close()

    def show(self, done: JobStep, now_ns: int, epoch_ns: int) -> None:
        """Mark where the host is in a step.

        Args:
            done: the step that runs, or has just ended.
            now_ns: Unix time.
        """
        plan, times = done.plan, done.times
        monotonic, now = self._monotonic(), (now_ns - epoch_ns) / 1e9

        def on_monotonic(seconds: float) -> int:
            return max(1, monotonic - round((now - seconds) * 1e9))

        self._page.step(done.step)
        for group, nodes in self._collectives(plan).items():
            slot = self._page.group(group)
            if slot is None:
                continue
            called_at = times.host_end[plan.before[nodes]]
            called = nodes[called_at <= now]
            if len(called):
                self._page.words[slot] = self._called.get(group, 0) + len(called)
                self._page.words[slot + 1] = on_monotonic(float(called_at[len(called) - 1]))
            if done.hung:
                word = recorded(plan, times, self._page.words[slot], called)
                self._page.words[recorded_word(slot)] = word
        self._close_spans()
        for (phase, kind), since in open_spans(done, self._rank, now).items():
            slot = self._page.phase(phase, kind)
            if slot is not None:
                self._page.words[slot] = on_monotonic(since)
                self._open.add(slot)

    def ended(self, done: JobStep, now_ns: int, epoch_ns: int) -> None:
        """The step is over, and what was called in it is counted."""
        last_ns = epoch_ns + int(done.end_ns[self._rank])
        self._page.step(done.step)
        self._close_spans()
        for group, nodes in self._collectives(done.plan).items():
            called = self._called[group] = self._called.get(group, 0) + len(nodes)
            slot = self._page.group(group)
            if slot is not None:
                self._page.words[slot] = called
                self._page.words[slot + 1] = max(1, self._monotonic() - max(0, now_ns - last_ns))

    def _close_spans(self) -> None:
        for slot in self._open:
            self._page.words[slot] = 0
        self._open.clear()

    def _collectives(self, plan: Plan) -> dict[str, Ints]:
        """The rank's own exchanges in the order in which it enters them, by group."""
        known = self._own.get(plan)
        if known is None:
            own = plan.comm[(plan.rank[plan.comm] == self._rank) & (plan.exchange[plan.comm] >= 0)]
            groups = [plan.groups[plan.group_of_exchange[one]][1] for one in plan.exchange[own].tolist()]
            known = self._own[plan] = {
                name: own[[group == name for group in groups]] for name in dict.fromkeys(groups)
            }
        return known


def recorded(plan: Plan, times: Times, number: int, called: Ints) -> int:
    """What torch's flight recorder would say of a group in a hang, as a word of the page.

    Args:
        number: of the last collective that was called.
        called: the group's in this step that were called.
    """
    unfinished = called[~np.isfinite(times.end[called])]
    if not len(unfinished):
        return 0  # with NCCL a rank that has nothing under way lists nothing
    kernel = plan.names[plan.comm_name[plan.comm == unfinished[0]][0]]
    operation = next((name for part, name in _OPERATIONS.items() if part in kernel), "coalesced")
    return pack_recorded(number, operation, None, len(unfinished))


def open_spans(done: JobStep, rank: int, now: float) -> dict[tuple[str, wire.Kind], float]:
    """Since when, in seconds, a rank's host has been in which (phase, kind), as its hooks would mark it.

    A phase is open from where the host comes to its first launch until its last one is made. Waits of one
    stream for another are over at once; where the host itself waits, at the end of a step or after a launch
    that it synchronises with, it is in the phase around that, if any.
    """
    plan, times = done.plan, done.times
    begin_s = float(done.start_ns[rank]) / 1e9
    if begin_s <= now and done.data_end_ns[rank] > now * 1e9:
        return {("data", wire.Kind.HOST): begin_s}
    own = slice(int(plan.span_ends[rank - 1]) if rank else 0, int(plan.span_ends[rank]))
    first, last = plan.span_first[own], plan.span_last[own, 0]
    since, until = times.host_end[plan.before[first]], times.host_end[last]
    inside = (since <= now) & (now < until) & (plan.span_after[own, 0] < 0) & (first >= plan.topology.ranks)
    return {
        (phase, wire.Kind(int(span["kind"]))): float(at)
        for span, at in zip(plan.spans[own][inside], since[inside], strict=True)
        if not (phase := plan.span_texts[span["phase_id"] - 1]).endswith("-wait")  # of `Work.wait`
    }
