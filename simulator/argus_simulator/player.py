"""Plays a job in real time: each rank speaks on a connection of its own, as its producer would."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from argus_core import wire
from argus_core.link import Link
from argus_simulator.encode import Totals, send_step
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.job import Job, RankStep

_PATIENCE_S = 2.0
"""How long a send may wait for the exporter; a job in simulation loses nothing by waiting."""
_REPEAT_STATE_S = 5.0
"""How often activity and channel states are said again, for an exporter that was restarted."""
_TOKENS_A_STEP = 8 * 4096


class ExporterUnreachable(ArgusSimulatorError):
    """Nobody listens on the socket."""


@dataclass
class Progress:
    """How far a job has been played. Written by the player, read by anybody."""

    steps: int = 0
    lag_seconds: float = 0.0
    """How much later than real time the last step was sent."""
    step_ends: array[float] = field(default_factory=lambda: array("d"))
    """Unix time at which the last rank finished each step."""
    dropped: int = 0


class Player:
    """Sends a job's records when they happen.

    Args:
        job: what to play.
        training_job: its name.
        socket: of the exporter.
        clock: Unix time in ns.
        wait: waits some seconds, returns True to end early; default: sleeps unless `stop` was called.
    """

    def __init__(
        self,
        job: Job,
        training_job: str,
        socket: Path,
        *,
        clock: Callable[[], int] = time.time_ns,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._job = job
        self._clock = clock
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._socket = socket
        topology = job.shape.topology
        self._links = [
            Link(socket, self._hello(rank, training_job), patience_s=_PATIENCE_S)
            for rank in range(topology.ranks)
        ]
        self._totals = [Totals() for _ in self._links]
        self._states_said_at = float("-inf")
        self.progress = Progress()

    def play(self, duration_s: float) -> None:
        """Play until `duration_s` of the job have passed, or `stop`; then say BYE.

        Raises:
            ExporterUnreachable: the exporter does not listen at the start. Later it may come and go.
        """
        self._connect()
        epoch_ns = self._clock()
        status = 0
        try:
            while not self._stopped.is_set():
                steps = self._job.next_step()
                end_ns = max(done.end_ns for done in steps)
                if end_ns > duration_s * 1e9:
                    return
                late_s = (self._clock() - epoch_ns - end_ns) / 1e9
                if late_s < 0 and self._wait(-late_s):
                    return
                self.progress.lag_seconds = max(0.0, late_s)
                self._send(steps, epoch_ns)
                self.progress.step_ends.append((epoch_ns + end_ns) / 1e9)
                self.progress.steps += 1
        except BaseException:
            status = 1
            raise
        finally:
            for link in self._links:
                link.close(status)

    def stop(self) -> None:
        """End `play` soon. Any thread."""
        self._stopped.set()

    def _connect(self) -> None:
        for link in self._links:
            link.flush()
            if not link.connected:
                raise ExporterUnreachable(
                    f"{self._socket}: no exporter listens there; start `argus-exporter serve --socket "
                    f"{self._socket}` first, or name another socket with --socket"
                )

    def _send(self, steps: list[RankStep], epoch_ns: int) -> None:
        now = self._clock() / 1e9
        say_states = now - self._states_said_at >= _REPEAT_STATE_S
        if say_states:
            self._states_said_at = now
        for link, totals, done in zip(self._links, self._totals, steps, strict=True):
            if say_states:
                link.add(wire.ActivityChange(self._clock(), wire.Activity.TRAIN))
                for channel in (wire.Channel.PHASES, wire.Channel.KERNELS):
                    link.add(wire.ChannelState(0, 0, 0, channel, 1))
            send_step(link, done, self.progress.steps, epoch_ns, totals)
            link.add(wire.Work(float(totals.count * _TOKENS_A_STEP), link.name_id("tokens")))
            link.flush()
        self.progress.dropped = sum(link.dropped for link in self._links)

    def _hello(self, rank: int, training_job: str) -> Callable[[], wire.Hello]:
        topology = self._job.shape.topology
        local_rank = rank % topology.ranks_per_host

        def hello() -> wire.Hello:
            return wire.hello(
                pid=os.getpid(),
                rank=rank,
                training_job=training_job,
                monotonic_ns=time.monotonic_ns(),
                realtime_ns=self._clock(),
                local_rank=local_rank,
                world_size=topology.ranks,
                coordinates=topology.coordinates(rank),
                sizes=topology.sizes,
                node=topology.host(rank),
                gpu_uuid=f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}",
            )

        return hello
