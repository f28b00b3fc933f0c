"""What a rank says beside its spans: pauses of its host, work, what it does, and how its channel is."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from argus_core import wire
from argus_core.link import Link
from argus_training.activity import Activities
from argus_training.pauses import Pauses

_UNITS_LIMIT: Final = 200
_COMPILERS_LIMIT: Final = 8
_GENERATIONS: Final = 3
_CHANGES_LIMIT: Final = 64
_LONG_PAUSE_NS: Final = 1_000_000  # a collection worth a word at once; short ones wait for the next state


class HostReport:
    """Hooks add to it in any thread; one thread at a time sends it. Totals are the producer's own.

    Args:
        facts: said with every state, such as what the job trains.
    """

    def __init__(self, facts: Sequence[wire.Record] = ()) -> None:
        self._facts = facts
        self.work_totals: defaultdict[str, float] = defaultdict(int)
        self._collections = [Pauses() for _ in range(_GENERATIONS)]
        self._compilations: dict[str, Pauses] = {}
        self._activities = Activities()
        self._changes: deque[tuple[int, wire.Activity]] = deque(maxlen=_CHANGES_LIMIT)
        """(when, what) since the last flush: one that the sender was too busy for is told all the same."""
        self._reason = ""
        self.limit = ""
        self._said: set[str] = set()
        self.changed = True
        """The state is another one than was sent."""
        self.warm = True
        """Warm-up is over."""

    def collection(self, generation: int, start_ns: int, duration_ns: int) -> None:
        """A garbage collection has ended."""
        self._collections[min(generation, _GENERATIONS - 1)].add(start_ns, duration_ns)

    def compilation(self, compiler: str, start_ns: int, duration_ns: int) -> None:
        """A JIT compilation on the host has ended."""
        if compiler in self._compilations or len(self._compilations) < _COMPILERS_LIMIT:
            self._compilations.setdefault(compiler, Pauses()).add(start_ns, duration_ns)

    @property
    def trains(self) -> bool:
        """Nothing else is under way."""
        return self._activities.current(warm=True) == wire.Activity.TRAIN

    def work(self, unit: str, amount: float) -> bool:
        """So many more tokens, samples or pixels were processed; False where there are too many units."""
        if unit not in self.work_totals and len(self.work_totals) >= _UNITS_LIMIT:
            return False
        self.work_totals[unit] += amount
        return True

    def enter(self, activity: wire.Activity, at_ns: int) -> bool:
        """The rank does something else than train. Whether it did not do so already."""
        return self._activities.enter(activity) and self._activity_changed(at_ns)

    def leave(self, activity: wire.Activity, at_ns: int) -> None:
        """Back from what `enter` said."""
        if self._activities.leave(activity):
            self._activity_changed(at_ns)

    def degraded(self, reason: str) -> None:
        """A part of the channel has failed: it counts as down. `reason` is a label: a few fixed words."""
        self._reason = reason
        self.changed = True

    def limited(self, reason: str) -> None:
        """The channel sees less than it might, and goes on. `reason` as for `degraded`."""
        self.limit = reason
        self.changed = True

    def say(self, text: str) -> None:
        """One line on stderr, once."""
        if text not in self._said:
            self._said.add(text)
            with contextlib.suppress(Exception):  # stderr may be closed or None
                sys.stderr.write(f"argus: {text}\n")

    def _activity_changed(self, at_ns: int) -> bool:
        self._changes.append((at_ns, self._activities.current(warm=self.warm)))
        self.changed = True
        return True

    # -- one thread at a time -------------------------------------------------------------------------------

    def send_work(self, link: Link) -> None:
        for unit, total in list(self.work_totals.items()):  # another thread may add one
            link.add(wire.Work(total, link.name_id(unit)))

    def send_pauses(self, link: Link, offset: int, *, every: bool) -> None:
        """Collections and compilations since the last time; short collections with the state only."""
        for generation, pauses in enumerate(self._collections):
            if pauses.unsent and (every or pauses.latest_ns >= _LONG_PAUSE_NS):
                pauses.unsent = False
                start = pauses.start_ns + offset
                link.add(
                    wire.GarbageCollection(start, pauses.latest_ns, pauses.count, pauses.seconds, generation)
                )
        for compiler, pauses in list(self._compilations.items()):
            if pauses.unsent:
                pauses.unsent = False
                start, id_ = pauses.start_ns + offset, link.name_id(compiler)
                link.add(wire.Compilation(start, pauses.latest_ns, pauses.count, pauses.seconds, id_))

    def send_state(self, link: Link, at_ns: int, offset: int, *, cost_ns: int, dropped: int) -> None:
        """Activity, channel and what the job is, at `at_ns` on the clock of spans."""
        self.changed = False
        while self._changes:
            changed_ns, what = self._changes.popleft()
            link.add(wire.ActivityChange(changed_ns + offset, what))
        for fact in self._facts:
            link.add(fact)
        link.add(wire.ActivityChange(at_ns + offset, self._activities.current(warm=self.warm)))
        link.add(
            wire.ChannelState(
                cpu_ns=cost_ns,
                dropped=dropped,
                reason_id=link.name_id(reason) if (reason := self._reason or self.limit) else 0,
                channel=wire.Channel.PHASES,
                up=int(not self._reason),
            )
        )
