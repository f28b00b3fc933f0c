"""Keeps one watch for each local rank that can be sampled, and collects what ranks sample themselves."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_core.log import Log
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.refusals import Refusals
from argus_exporter.py_spy.sampler import sample
from argus_exporter.py_spy.target import NotTraceable, Process, is_self, process_of
from argus_exporter.py_spy.watch import Sampler, Watch, deliver
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.stacks.folded import Sink
from argus_exporter.stacks.state import Outside

log = Log(__name__)

_TICK_S: Final = 1.0
_DISABLED: Final = "disabled"
"""Reason of a channel that is down because the configuration wants that: no alert tells of it."""
_GOLDEN: Final = 0.6180339887
"""Multiples of the golden ratio, modulo 1, lie evenly apart however many there are."""


class StackSupervisor:
    """All watches of a host. Lives on the event loop, between `start` and `stop`.

    Args:
        socket: where producers connect; marks for ranks that were refused lie beside it.
        sampler: samples one window; tests put in their own.
    """

    def __init__(
        self, ranks: RankRegistry, config: StacksConfig, socket: Path, *, sampler: Sampler = sample
    ) -> None:
        self.sinks: list[Sink] = []
        """Takers of whole stacks; more may be added at any time."""
        self._ranks = ranks
        self._config = config
        self._refusals = Refusals(socket)
        self._sampler = sampler
        self._watches: dict[tuple[str, int], tuple[Watch, asyncio.Task[None]]] = {}
        self._begun = 0
        self._collected_at = 0.0
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for ranks."""
        self._refusals.clear()
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """End every watch; no py-spy of ours is left when this returns."""
        tasks = [task for _, task in self._watches.values()]
        if self._ticker is not None:
            tasks.append(self._ticker)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()
        self._refusals.clear()

    @property
    def watched(self) -> int:
        """Ranks that have a watch."""
        return len(self._watches)

    def reconfigure(self, config: StacksConfig) -> None:
        """Take a new configuration: watches begin anew with it."""
        if config != self._config:
            self._config = config
            for key in list(self._watches):
                self._end(key)

    async def _tick(self) -> None:
        while True:
            try:
                self.reconcile()
            except Exception:
                log.exception("stacks: ranks not reconciled")
            await asyncio.sleep(_TICK_S)

    def reconcile(self) -> None:
        """Begin and end watches so that they fit the ranks that are here."""
        states = {state.identity.key: state for state in self._ranks}
        for key, (watch, task) in list(self._watches.items()):
            state = states.get(key)
            if state is not watch.state or not state.connected or self._has_moved(watch):
                self._end(key)
            elif task.done() and not task.cancelled() and (failure := task.exception()) is not None:
                log.exception("watch of stacks failed", failure, **watch.state.identity.names)
                self._end(key)
        speakers = Counter(state.peer_pid for state in states.values() if state.connected)
        for key, state in states.items():
            state.stacks.totals.top_frames = self._config.top_frames
            # A simulator or a replay speaks for many ranks; its own stacks are none of theirs.
            shared = bool(state.peer_pid) and speakers[state.peer_pid] > 1
            if self._wanted(state) and not shared and key not in self._watches:
                self._begin(state)
        self._collect(list(states.values()))

    def _wanted(self, state: RankState) -> bool:
        return (
            self._config.enabled
            and state.connected
            and state.peer_pid is not None
            and not is_self(state.peer_pid)
        )

    def _has_moved(self, watch: Watch) -> bool:
        """Whether another process speaks for the rank by now, be it under the same pid."""
        if watch.peer_pid != watch.state.peer_pid:
            return True
        return isinstance(watch.process, Process) and not watch.process.is_alive()

    def _process(self, state: RankState) -> Process | NotTraceable:
        try:
            owners = {state.uid} if state.uid is not None else {0, os.getuid()}
            return process_of(state.peer_pid or 0, state.identity.pid, frozenset(owners))
        except NotTraceable as reason:
            return reason

    def _begin(self, state: RankState) -> None:
        watch = Watch(
            state,
            self._process(state),
            self._config,
            refusals=self._refusals,
            sinks=self.sinks,
            delay_s=self._begun * _GOLDEN % 1 * self._config.window_seconds,
            sampler=self._sampler,
        )
        self._begun += 1
        self._watches[state.identity.key] = watch, asyncio.create_task(watch.run())

    def _end(self, key: tuple[str, int]) -> None:
        watch, task = self._watches.pop(key)
        task.cancel()
        watch.state.stacks.outside = None if self._config.enabled else Outside(_DISABLED)
        watch.state.settle_stacks()
        self._refusals.unset(watch.state.identity)

    def _collect(self, states: list[RankState]) -> None:
        """Once a window: what ranks have sampled of themselves."""
        now = time.monotonic()
        if now - self._collected_at < self._config.window_seconds:
            return
        self._collected_at = now
        for state in states:
            begin_ns, end_ns, folded = state.stacks.tree.take()
            if folded:
                state.channel(wire.Channel.STACKS).records += folded.total()
                state.stacks.totals.add(folded)
                deliver(self.sinks, state, begin_ns, end_ns, folded)
