"""While an iteration is overdue: what this rank is in goes to the shared page, by torch's flight recorder,
and where its GPU is, by the events of the hooks. Once it hangs for certain, so does all that is recorded.

Nobody tells a training process that its job has stalled, so the sender's thread compares the age of the
running iteration with how long they take, as the rules do that call a job stalled, and at half of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from argus_core.overdue import overdue_after, stalled_after
from argus_core.shared_page import GPU_WORD, STEP_WORD
from argus_training.flight_recorder import FlightRecorder, LastCollective, Status
from argus_training.recorder import Recorder

_PERIOD_S: Final = 0.5
"""Between two looks, of 0.02 ms each, or 0.1 with many groups: 0.02 % while an iteration is overdue."""
_LISTING_SHARE: Final = 300
"""A list of entries, which takes turns with others at the GIL, is followed by so many times its duration
without one (20 s after one of 2,000): an iteration that goes on after all is made later by 0.3 % at most."""
_DUMP_PAUSE_S: Final = 300.0
"""From a dump to that of another iteration: a job that stands still now and then fills no store."""


class OverdueIteration:
    """Looks at the flight recorder while the running iteration is overdue. The sender's thread only.

    Args:
        recorder: has the page, the iteration and its usual duration.
        flight: torch's.
        gpu_is_in: the span that the GPU is in, see `Stopwatch`.
        clock: seconds, monotonic as the page's times are.
    """

    def __init__(
        self,
        recorder: Recorder,
        flight: FlightRecorder,
        gpu_is_in: Callable[[], tuple[int, int] | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder = recorder
        self._flight = flight
        self._gpu_is_in = gpu_is_in
        self._clock = clock
        self._looks_at = 0.0
        self._lists_at = 0.0
        self._status: Mapping[tuple[str, int], Status] = {}
        """Of the look before."""
        self._listed: Mapping[tuple[str, int], int] = {}
        """The last collective of each group when entries were listed."""
        self._shown: set[str] = set()
        """Groups about which the page says something."""
        self._gpu: tuple[int, int] | None = None
        """At the look before."""
        self._stands_since = float("inf")
        """The recorder has said the same since."""
        self._dumped = 0
        """The iteration of the last dump."""
        self._dumps_at = 0.0

    @property
    def overdue(self) -> bool:
        """Whether the running iteration takes far longer than usual."""
        return self._age() > overdue_after(self._usual())

    @property
    def hangs(self) -> bool:
        """Whether that is certain: it stalls, and has entered and completed nothing for half of that time."""
        limit_s = stalled_after(self._usual())
        return self._age() > limit_s and self._clock() - self._stands_since > limit_s / 2

    def _age(self) -> float:
        return self._clock() - self._recorder.words[STEP_WORD + 1] / 1e9

    def _usual(self) -> float:
        recorder = self._recorder
        return recorder.outbox.mean_iteration_s() if recorder.host.trains else 0.0

    def turn(self, names: Mapping[str, str], backends: Collection[str]) -> None:
        """About once a second.

        Args:
            names: of the process groups whose collectives the page counts, by torch's names of them; several
                may have one.
            backends: of all groups, as torch names them.
        """
        if not self.overdue:
            self._show({})
            self._show_gpu(None)
            self._status = {}
            self._stands_since = float("inf")
            return
        now = self._clock()
        if now < self._looks_at:
            return
        self._looks_at = now + _PERIOD_S
        before, self._status = self._status, self._flight.status(backends)
        if self._status != before:  # the rank goes on, and what it is in changes
            self._stands_since = now
            return
        self._stands_since = min(self._stands_since, now)
        enqueued = {group: status.enqueued for group, status in self._status.items()}
        if self._listed != enqueued and now >= self._lists_at:
            self._flight.list_entries(backends)
            self._listed = enqueued
            self._lists_at = now + _LISTING_SHARE * (self._clock() - now)
        self._show(self._flight.last(self._status, names))
        self._show_gpu(self._ask_gpu())  # late: what a GPU in trouble may keep from us is then told already
        if self.hangs and backends:
            self._dump(backends)

    def _dump(self, backends: Collection[str]) -> None:
        """All that the recorder has, once of an iteration."""
        step = self._recorder.words[STEP_WORD]
        if step == self._dumped or self._clock() < self._dumps_at:
            return
        self._dumped, self._dumps_at = step, self._clock() + _DUMP_PAUSE_S
        say = self._recorder.host.say
        said = self._flight.dump(backends)
        size = sum(map(len, said.values()))
        try:
            if not said:
                say("this rank hangs, and torch's flight recorder has nothing: see TORCH_FR_BUFFER_SIZE")
            elif not self._recorder.keep_dump(step, time.time_ns(), said):
                say(f"this rank hangs, and torch's flight recorder has too much for a dump: {size} bytes")
        except OSError as error:
            say(f"this rank hangs, and what torch's flight recorder has is not kept: {error}")

    def _ask_gpu(self) -> tuple[int, int] | None:
        """None also once a GPU has answered with an error, as after a fault it does to each question."""
        try:
            return self._gpu_is_in()
        except Exception as error:
            self._gpu_is_in = lambda: None
            self._recorder.host.say(f"where the GPU is, is not asked any more: {error!r}")
            return None

    def _show_gpu(self, span: tuple[int, int] | None) -> None:
        """What two looks agree on."""
        words, before = self._recorder.words, self._gpu
        self._gpu = span
        words[GPU_WORD + 1] = 0
        if span is not None and span == before:
            words[GPU_WORD], words[GPU_WORD + 1] = span

    def _show(self, last: Mapping[str, LastCollective]) -> None:
        for name in self._shown - last.keys():
            self._recorder.recorded(name, None)
        for name, one in last.items():
            self._recorder.recorded(name, one)
        self._shown = set(last)
