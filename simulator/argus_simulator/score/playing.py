"""One scenario, played in a process of its own: `python -m argus_simulator.score.playing ORDER`.

A process of its own, because the steps of several jobs must not wait for one interpreter. ORDER is a file
that says what to play; another file gets the log of it, when the job has ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from argus_simulator.lab import Scenario
from argus_simulator.player import Player, Progress
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import Playable

_NICE = 10
"""What comes after the job must not slow down the jobs that others still play."""


@dataclass(frozen=True)
class Order:
    """What to play, under which name, to which exporter, and where the log goes.

    `history_job`: name of the healthy run before; empty: there is none.
    """

    playable: Playable
    training_job: str
    history_job: str
    socket: str
    log: str

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        raw = json.loads(text)
        return cls(**{**raw, "playable": Playable(**raw["playable"])})


@dataclass(frozen=True)
class Log:
    """How it went.

    Attributes:
        start, end, step_ends: Unix times.
        effect: time of the faulty steps over that of the same steps without the faults, less 1; None where no
            step was faulty, or one never ends.
        history_start: when the healthy run before began; `start` where there was none.
        lag_seconds: by how much the player was behind its clock at worst.
        dropped: records that the exporter did not take.
    """

    history_start: float
    start: float
    end: float
    step_ends: tuple[float, ...]
    effect: float | None
    lag_seconds: float
    dropped: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Log:
        raw = json.loads(text)
        return cls(**{**raw, "step_ends": tuple(raw["step_ends"])})


def play(order: Order) -> Log:
    """Play the scenario in real time.

    Raises:
        ExporterUnreachable: nobody listens on the socket.
    """
    scene = Scene(order.playable)
    mark = unscraped_mark(Path(order.log))
    history_start = time.time()
    if order.history_job:
        before = _Run(scene.history(), order.history_job, order.socket, scene.history_steps)
        before.play(scene.pace.history_s)
    run = _Run(scene.scenario, order.training_job, order.socket, scene.steps)
    run.on_step = lambda step: _mark(mark, scene.unscraped(step))
    start = time.time()
    run.play(scene.seconds)
    end = time.time()
    progress = run.player.progress
    ends = tuple(progress.step_ends)
    os.nice(_NICE)
    effect = None if progress.hung else effect_of(scene, start, ends)
    return Log(history_start, start, end, ends, effect, run.worst_lag_s, progress.dropped)


class _Run:
    """One job in real time, for so many steps at most."""

    def __init__(self, scenario: Scenario, training_job: str, socket: str, steps: int) -> None:
        self.worst_lag_s = 0.0
        self.on_step: Callable[[int], None] = lambda _: None
        self._steps, self._step_s = steps, scenario.step_seconds
        self.player = Player(scenario.job(), training_job, Path(socket), on_step=self._after)

    def play(self, seconds: float) -> None:
        # The last step may end a little later than its share: the number of steps decides.
        self.player.play(seconds + self._step_s)

    def _after(self, progress: Progress) -> None:
        self.worst_lag_s = max(self.worst_lag_s, progress.lag_seconds)
        self.on_step(progress.steps)
        if progress.steps >= self._steps:
            self.player.stop()


def unscraped_mark(log: Path) -> Path:
    """A file that is there while Prometheus must not reach the exporter; who runs the stack sees to it."""
    return log.with_suffix(".unscraped")


def _mark(file: Path, there: bool) -> None:
    if there:
        file.touch()
    else:
        file.unlink(missing_ok=True)


def effect_of(scene: Scene, start: float, step_ends: Sequence[float]) -> float | None:
    """By how much the faults lengthened the steps that were played, against the same seed without them."""
    onset = scene.onset_step
    if not scene.scenario.faults or len(step_ends) <= onset:
        return None
    played = step_ends[-1] - (step_ends[onset - 1] if onset else start)
    return played / _healthy_seconds(scene, range(onset, len(step_ends))) - 1


def _healthy_seconds(scene: Scene, steps: range) -> float:
    """How long the same steps take without the faults."""
    job = dataclasses.replace(scene.scenario, faults={}).job()
    job.jump(steps.start)
    for _ in steps:
        done = job.next_step()
    return int(done.end_ns.max()) / 1e9


def main(arguments: list[str]) -> int:
    order = Order.from_json(Path(arguments[0]).read_text())
    log = play(order)
    draft = Path(order.log).with_suffix(".draft")
    draft.write_text(log.as_json())
    draft.rename(order.log)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
