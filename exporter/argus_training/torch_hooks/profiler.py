"""Makes room for torch.profiler, and takes CUPTI back from whoever forgot to: for libargus_cupti.

CUPTI has one pair of buffer callbacks a process. A profiler takes them at the start of its window and
switches the kinds of records off at its end, without a word to whoever had them before: our stream would be
silent from then on. So the library stands aside during windows that are seen here, and a watchdog notices
those that are not (another tool, Kineto's daemon): steps go on, no record comes, they are taken back. Not
from who has CUPTI for as long as the process lives (native/injector/other_users.hpp): there the channel ends.
"""

from __future__ import annotations

import os
from typing import Any, Final

from argus_core.injection import SLOT
from argus_training import settings
from argus_training.hook import Hook, Observer
from argus_training.kernels_control import KernelsControl
from argus_training.profiler_windows import around_profiler_windows
from argus_training.spans import now

_STEPS: Final = 2
"""Seconds with a step that must pass without a record: one step may be long, or be all on the host."""


class ProfilerHook(Hook):
    name = "profiler"

    def __init__(self, observer: Observer, control: KernelsControl | None = None) -> None:
        super().__init__(observer)
        self._control = control if control is not None else KernelsControl()
        self._silence_ns = 0
        self._looked_at = now()
        self._steps = 0
        self._records: int | str | None = None
        self._paused = False

    def attach(self, torch: Any) -> None:
        """Nothing is wrapped where no library was to be injected."""
        if not os.environ.get(SLOT):
            return
        config, _ = settings.read(os.environ)
        self._profiler_enabled = torch.autograd._profiler_enabled
        self._undo.append(around_profiler_windows(torch, self._window_begins, self._window_ended))
        self._silence_ns = config.watchdog_seconds * 1_000_000_000
        if self._silence_ns:
            listeners = self.observer.periodic
            listeners.append(self._step)
            self._undo.append(lambda: listeners.remove(self._step))

    def _window_begins(self) -> None:
        if self.alive:
            self._paused = self._control.pause() or self._paused

    def _window_ended(self) -> None:
        if self.alive and self._paused:
            self._paused = False
            self._look_anew()
            self._control.rearm()

    def _step(self) -> None:
        self._steps += 1
        if now() - self._looked_at < self._silence_ns or not self.alive:
            return
        try:
            self._look()
        except Exception as error:
            self.failed(error)

    def _look(self) -> None:
        """Every watchdog period: have records come since?"""
        if self._paused:
            if self._profiler_enabled():
                self._look_anew()
            else:  # the window was left without its end, by an exception say
                self._window_ended()
            return
        statistics = self._control.statistics()
        records = statistics.get("records")
        # Before its first record the library may be watching a process that uses no GPU.
        expected = bool(records) or self.observer.stopwatch.on_events
        silent = records is not None and records == self._records and expected and self._steps >= _STEPS
        self._look_anew()
        self._records = records
        if silent and statistics["collecting"]:
            armed = self._control.rearm(because_silent=True)
            reason = self._control.statistics().get("reason", "")
            self.recorder.host.say(
                f"no kernel records for {self._silence_ns // 1_000_000_000} s of training: "
                + (
                    "CUPTI's callbacks are taken back from whoever has them"
                    if armed
                    else f"{reason}, given up"
                )
            )

    def _look_anew(self) -> None:
        self._looked_at = now()
        self._steps = 0
        self._records = None
