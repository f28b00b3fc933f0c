"""The training that a demo watches: what the story needs to know of it, and the simulated one."""

from __future__ import annotations

import bisect
import threading
from typing import Protocol

from argus_simulator.demo.plan import Plan
from argus_simulator.demo.truth import Truth
from argus_simulator.player import Player
from argus_simulator.stack import Stack

_STOP_S = 15.0


class Training(Protocol):
    """A job that starts healthy and then has one slow rank."""

    description: str

    @property
    def truth(self) -> Truth:
        """Only for the judge at the end."""

    @property
    def truth_text(self) -> str:
        """The truth in words, for the last lines."""

    def start(self, stack: Stack) -> None: ...

    def check(self) -> None:
        """Raise where the training failed."""

    def steps(self) -> int:
        """Steps done by all ranks."""

    def onset(self) -> float | None:
        """Unix time at which the fault began; None before."""

    def steps_since_onset(self, at: float) -> int:
        """Steps between the fault and a Unix time."""

    def stop(self) -> None: ...


class SimulatedTraining:
    """The fault lab's job, played by a thread of this process."""

    def __init__(self, plan: Plan) -> None:
        self.truth = plan.truth
        self.description = f"a simulated job of {plan.scenario.topology.dp} ranks (data-parallel)"
        truth = plan.truth
        self.truth_text = (
            f"rank {truth.rank} takes {truth.factor:g} times as long in {truth.phase} "
            f"from step {truth.onset_step} on"
        )
        self._scenario = plan.scenario
        self._player: Player | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, stack: Stack) -> None:
        player = self._player = Player(self._scenario.job(), self._scenario.training_job, stack.socket)
        self._thread = threading.Thread(target=self._play, args=(player,), name="player", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def steps(self) -> int:
        return self._player.progress.steps if self._player is not None else 0

    def onset(self) -> float | None:
        ends = self._step_ends()
        first_slow = self.truth.onset_step
        return ends[first_slow - 1] if len(ends) >= max(first_slow, 1) else None

    def steps_since_onset(self, at: float) -> int:
        return max(0, bisect.bisect_right(self._step_ends(), at) - self.truth.onset_step)

    def stop(self) -> None:
        if self._player is not None and self._thread is not None:
            self._player.stop()
            self._thread.join(_STOP_S)

    def _step_ends(self) -> list[float]:
        return self._player.progress.step_ends.tolist() if self._player is not None else []

    def _play(self, player: Player) -> None:
        try:
            player.play(float("inf"))
        except BaseException as error:
            self._error = error
