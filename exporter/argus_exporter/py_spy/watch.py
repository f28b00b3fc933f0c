"""Watches the stacks of one rank: window after window, slower when dear, patient when refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from argus_core import wire
from argus_core.log import Log
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.governor import Governor
from argus_exporter.py_spy.refusals import Refusals
from argus_exporter.py_spy.sampler import Refused, Window, sample
from argus_exporter.py_spy.target import NotTraceable, Process
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.stacks.folded import Folded, Sink
from argus_exporter.stacks.state import Outside

log = Log(__name__)

_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 300.0
"""Refusals are mostly for good, but a job may still allow it (PR_SET_PTRACER), or py-spy be installed."""

Sampler = Callable[[Process, StacksConfig, int], Awaitable[Window]]
"""`sample`, or what stands in for it in a test."""


class Watch:
    """One rank's watch, as a task of the event loop.

    Args:
        state: the rank; its `stacks` take what is found.
        process: what to sample, or why that cannot be told.
        delay_s: before the first window, so that the ranks of a host take turns.
    """

    def __init__(
        self,
        state: RankState,
        process: Process | NotTraceable,
        config: StacksConfig,
        *,
        refusals: Refusals,
        sinks: Iterable[Sink],
        delay_s: float = 0.0,
        sampler: Sampler = sample,
    ) -> None:
        self.state = state
        self.process = process
        self.peer_pid = state.peer_pid
        self._config = config
        self._refusals = refusals
        self._sinks = sinks
        self._delay_s = delay_s
        self._sampler = sampler
        self._retry_s = _FIRST_RETRY_S
        self._outside = Outside()
        self._governor = Governor(config.rate, config.cpu_budget)

    async def run(self) -> None:
        """Until cancelled, or until there is nothing to watch any more."""
        if isinstance(self.process, NotTraceable):
            if self.process.reason != "target_gone":
                self._refused(self.process.reason, str(self.process))
            return
        await asyncio.sleep(self._delay_s)
        while self.process.is_alive():
            stacks = self.state.stacks
            if stacks.inside and (stacks.by_choice or not self._outside.reason):
                # It was not we who asked the rank to sample itself: twice would count everything twice.
                self._stand_aside()
                await asyncio.sleep(self._config.window_seconds)
                continue
            await asyncio.sleep(await self._window())

    async def _window(self) -> float:
        """Sample once; the result is how long to pause."""
        assert isinstance(self.process, Process)
        level = self._governor.level
        try:
            window = await self._sampler(self.process, self._config, level.hertz)
        except Refused as refusal:
            self.state.stacks.outside_cpu_seconds += refusal.cpu_seconds
            if refusal.reason != "target_gone":
                self._refused(refusal.reason, str(refusal))
            pause_s, self._retry_s = self._retry_s, min(self._retry_s * 2, _LAST_RETRY_S)
            return pause_s
        self._retry_s = _FIRST_RETRY_S
        pause_s = level.rest * float(self._config.window_seconds)
        self._governor.measured(window.cpu_seconds, (window.end_ns - window.begin_ns) / 1e9 + pause_s)
        self._sampled(window)
        return pause_s

    def _sampled(self, window: Window) -> None:
        if self._outside.reason:
            log.info("stacks sampled again", **self.state.identity.names)
            self._refusals.unset(self.state.identity)
        self._outside.reason = ""
        self.state.stacks.outside_cpu_seconds += window.cpu_seconds
        before, self._outside.hertz = self._outside.hertz, self._governor.level.mean_hertz
        if before and before != self._outside.hertz:
            log.info(
                "stack sampling rate changed",
                **self.state.identity.names,
                hertz=self._outside.hertz,
                cpu_share=window.cpu_seconds / ((window.end_ns - window.begin_ns) / 1e9),
            )
        channel = self.state.channel(wire.Channel.STACKS)
        channel.records += window.samples
        if window.errors:
            channel.dropped["unreadable"] += window.errors
        if window.unread:
            channel.dropped["unparsed"] += window.unread
        self._settle()
        self.state.stacks.totals.add(window.folded)
        deliver(self._sinks, self.state, window.begin_ns, window.end_ns, window.folded)

    def _refused(self, reason: str, detail: str) -> None:
        if reason != self._outside.reason:
            log.warning("stacks not sampled", **self.state.identity.names, reason=reason, detail=detail)
        self._outside.reason = reason
        self._outside.hertz = 0.0
        self._refusals.set(self.state.identity, reason)
        self._settle()

    def _settle(self) -> None:
        self.state.stacks.outside = self._outside
        self.state.settle_stacks()

    def _stand_aside(self) -> None:
        self._refusals.unset(self.state.identity)
        self._outside = Outside()
        self._retry_s = _FIRST_RETRY_S
        self.state.stacks.outside = None


def deliver(sinks: Iterable[Sink], state: RankState, begin_ns: int, end_ns: int, folded: Folded) -> None:
    """Hand a window to the sinks; one that fails does not end the watch."""
    for sink in sinks:
        try:
            sink(state.identity.key, begin_ns, end_ns, folded)
        except Exception:
            log.exception("stacks not taken", sink=sink, **state.identity.names)
