"""Plays a job in real time: each rank speaks as its producer would, when what it says has happened."""

from __future__ import annotations

import dataclasses
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import NEVER, Job, JobStep
from argus_simulator.engine.network import Traffic
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.producers import MakeLink, Producer, host_clocks, link_to

_REPEAT_STATE_S: Final = 5.0
"""How often activity and channel states are said again, for an exporter that was restarted."""
_KILLED: Final = 143
"""Exit status of a job that is told to restart."""


class ExporterUnreachable(ArgusSimulatorError):
    """Nobody listens on the socket."""


@dataclass
class Progress:
    """How far a job has been played. Written by the player, read by anybody."""

    began_ns: int = 0
    """Unix time of the job's start; 0: not yet."""
    steps: int = 0
    lag_seconds: float = 0.0
    """How much later than real time the last step was sent."""
    step_ends: array[float] = field(default_factory=lambda: array("d"))
    """Unix time at which the last rank finished each step."""
    dropped: int = 0
    hung: bool = False
    """The job will finish no further step."""


class Player:
    """Sends a job's records when they happen.

    Args:
        job: what to play.
        training_job: its name.
        socket: of the exporter, where `link` does not say how to reach it.
        clock: Unix time in ns.
        monotonic: CLOCK_MONOTONIC in ns.
        wait: waits some seconds, returns True to end early; default: sleeps unless `stop` was called.
        on_step: called after each step that was sent.
        link: connects each rank to its exporter.
    """

    def __init__(
        self,
        job: Job,
        training_job: str,
        socket: Path,
        *,
        clock: Callable[[], int] = time.time_ns,
        wait: Callable[[float], bool] | None = None,
        on_step: Callable[[Progress], None] | None = None,
        monotonic: Callable[[], int] = time.monotonic_ns,
        link: MakeLink | None = None,
    ) -> None:
        self._job, self._training_job, self._socket = job, training_job, socket
        self._clock, self._monotonic = clock, monotonic
        self._link = link or link_to(socket)
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._on_step = on_step
        self._producers: list[Producer] = []
        self._away: set[int] = set()
        """Ranks whose producer is not there."""
        self._running: JobStep | None = None
        self._activity = wire.Activity.TRAIN
        self._states_said_at = float("-inf")
        self._epoch_ns = 0
        self._dropped_before = 0
        self._traffic: Traffic | None = None
        self.progress = Progress()

    def play(self, duration_s: float) -> None:
        """Play until `duration_s` of the job have passed, or `stop`; then say BYE.

        Raises:
            ExporterUnreachable: the exporter does not listen at the start. Later it may come and go.
        """
        self._epoch_ns = self.progress.began_ns = self._clock()
        self._start_producers()
        status = 0
        try:
            self._check_connected()
            while not self._stopped.is_set():
                self._restart()
                done = self._job.next_step()
                begin_s, end_ns = int(done.start_ns.min()) / 1e9, int(done.end_ns.max())
                if begin_s >= duration_s or (end_ns > duration_s * 1e9 and end_ns != NEVER):
                    return
                if self._reach(begin_s):
                    return
                self._begin(done)
                if end_ns == NEVER:
                    self._hang(done, duration_s)
                    return
                if self._reach(end_ns / 1e9):
                    return
                self._finish(done)
        except BaseException:
            status = 1
            raise
        finally:
            self._running = None
            for producer in self._producers:
                producer.close(status)
                producer.free()

    def show(self, ranks: range | None = None) -> None:
        """Bring the shared pages of ranks (default: of all) up to the present moment of the running step."""
        now_ns = self._clock()
        for producer in self._present() if self._running is not None else ():
            if ranks is None or producer.rank in ranks:
                assert self._running is not None
                producer.page.show(self._running, now_ns, self._epoch_ns)

    def stop(self) -> None:
        """End `play` soon. Any thread."""
        self._stopped.set()

    # -- time ------------------------------------------------------------------

    def _reach(self, job_seconds: float) -> bool:
        """Wait until a moment of the job; True to end early."""
        late_s = (self._clock() - self._epoch_ns) / 1e9 - job_seconds
        if late_s < 0 and self._wait(-late_s):
            return True
        self.progress.lag_seconds = max(0.0, late_s)
        return False

    # -- one step ------------------------------------------------------------------

    def _begin(self, done: JobStep) -> None:
        """What changes with the step: who is there, what the ranks do, what their clocks show."""
        faults = self._job.faults
        self._come_and_go(done)
        self._running = done
        for fault in faults:
            if fault.mechanism == "clock" and fault.onset_step == done.step:
                for rank in fault.ranks:
                    self._producers[rank].step_clock(round(fault.seconds * 1e9))
            if fault.mechanism == "channel":
                for rank in fault.ranks:
                    self._set_channel(fault, rank, lost=fault.active(done.step))
        state = done.state
        inside = (
            wire.Activity.TRAIN if state.extra_seconds > 0 or not state.tagged else _activity(state.activity)
        )
        self._say(inside)

    def _finish(self, done: JobStep) -> None:
        now_ns = self._clock()
        evaluates = done.state.activity == "evaluation"
        for producer in self._present():
            producer.send(done, self._epoch_ns, finished=not evaluates)
        for producer in self._producers:
            producer.page.ended(done, now_ns, self._epoch_ns)
        self._running = None
        if self._traffic is not None:
            self._traffic.add(done)
            for producer in self._producers:
                producer.counted(self._epoch_ns)
        if done.state.extra_seconds > 0 and done.state.tagged:
            self._say(_activity(done.state.activity))
        for producer in self._present():
            producer.flush()
        self.progress.dropped = self._dropped_before + sum(one.dropped for one in self._producers)
        self.progress.step_ends.append((self._epoch_ns + int(done.end_ns.max())) / 1e9)
        self.progress.steps += 1
        if self._on_step is not None:
            self._on_step(self.progress)

    def _hang(self, done: JobStep, duration_s: float) -> None:
        """Somebody never ends the step: send what has happened, and be there until the end."""
        for producer in self._present():
            producer.send(done, self._epoch_ns, finished=False)
        self.progress.hung = True
        for rank, waits in self._traffic.waits(done).items() if self._traffic is not None else ():
            self._producers[rank].hangs(waits)
        while not self._stopped.is_set():
            self._say(self._activity)
            self.show()
            for producer in self._present():
                producer.sample(done, self._epoch_ns)
                producer.flush()
            if self._on_step is not None:
                self._on_step(self.progress)
            left_s = duration_s - (self._clock() - self._epoch_ns) / 1e9
            if left_s <= 0 or self._wait(min(left_s, _REPEAT_STATE_S)):
                return

    def _say(self, activity: wire.Activity) -> None:
        """Tell activity and channels where they changed, and now and then."""
        now = self._clock() / 1e9
        if activity is self._activity and now - self._states_said_at < _REPEAT_STATE_S:
            return
        self._activity, self._states_said_at = activity, now
        for producer in self._present():
            producer.say_states(activity)
            producer.flush()

    def _set_channel(self, fault: Fault, rank: int, *, lost: bool) -> None:
        producer = self._producers[rank]
        channel = wire.Channel[fault.channel.upper()]
        if lost != (channel in producer.dark):
            producer.dark ^= {channel}
            producer.dark_reason = fault.reason
            self._states_said_at = float("-inf")

    # -- producers ------------------------------------------------------------------

    def _start_producers(self) -> None:
        shape = self._job.shape
        clocks = host_clocks(shape.topology, shape.clocks, self._job.seed)
        self._traffic = Traffic(shape.topology) if shape.model.signals == "nccl" else None
        self._producers = [
            Producer(
                shape, rank, self._training_job, self._link, clocks[shape.topology.host_index(rank)],
                self._clock, self._monotonic, self._traffic,
            )
            for rank in range(shape.topology.ranks)
        ]  # fmt: skip
        self._away = {rank for fault in self._job.faults if fault.mechanism == "join" for rank in fault.ranks}
        for producer in self._present():
            producer.flush()

    def _check_connected(self) -> None:
        if not all(producer.connected for producer in self._present()):
            raise ExporterUnreachable(
                f"{self._socket}: no exporter listens there; start `argus-exporter serve --socket "
                f"{self._socket}` first, or name another socket with --socket"
            )

    def _present(self) -> list[Producer]:
        return [producer for producer in self._producers if producer.rank not in self._away]

    def _come_and_go(self, done: JobStep) -> None:
        """Producers that join late, and those that fall silent while their rank trains on."""
        away: set[int] = set()
        for fault in self._job.faults:
            waits = fault.mechanism == "join" and done.start_ns.min() < fault.seconds * 1e9
            if waits or (fault.mechanism == "leave" and fault.active(done.step)):
                away |= set(fault.ranks)
        for rank in away - self._away:
            self._producers[rank].close(None)
        if away != self._away:
            self._states_said_at = float("-inf")
        self._away = away

    def _restart(self) -> None:
        """The whole job ends and begins anew, perhaps with other ranks; its counters begin anew too."""
        due = [
            fault for fault in self._job.faults
            if fault.mechanism == "restart" and fault.onset_step == self._job.step and self._job.step > 0
        ]  # fmt: skip
        if not due:
            return
        fault, before = due[0], self._job
        for producer in self._producers:
            producer.close(_KILLED)
            producer.free()
            self._dropped_before += producer.dropped
        shape = before.shape
        if fault.dp:
            shape = dataclasses.replace(shape, topology=dataclasses.replace(shape.topology, dp=fault.dp))
        others = [one for one in before.faults if one is not fault]
        now = (self._clock() - self._epoch_ns) / 1e9
        self._job = Job(shape, others, before.seed)
        self._job.jump(before.step, now + fault.seconds)
        self._reach(now + fault.seconds)
        self._start_producers()


def _activity(name: str) -> wire.Activity:
    return wire.Activity[name.upper()]
