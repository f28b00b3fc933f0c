"""What a played job costs: CPU time of a step of the fault lab, computed and sent to a socket that reads.

    python -m bench.simulator

Many jobs share a machine with the stack that is judged, so a job of 32 ranks should stay well below a tenth
of a core at a step a second.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import selectors
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.player import Player
from argus_simulator.topology import Topology

STEP_S: Final = 0.5
_JOBS: Final = {
    "dp16": (Topology(dp=16), 4),
    "dp4 tp2 pp2": (Topology(dp=4, tp=2, pp=2), 4),
    "dp8 pp4": (Topology(dp=8, pp=4), 8),
    "dp8 pp4 ep4": (Topology(dp=8, pp=4, ep=4), 8),
    "dp64": (Topology(dp=64), 4),
}


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one step."""

    ranks: int
    kernels: float
    spans: float
    compute_s: float
    all_s: float

    @property
    def core_share(self) -> float:
        """Of a core, at one step a second."""
        return self.all_s


def measure(topology: Topology, microbatches: int, steps: int) -> Cost:
    shape = JobShape(topology, STEP_S, ModelSettings(microbatches=microbatches))
    job = Job(shape, [], 1)
    done = job.next_step()
    begin = time.process_time()
    for _ in range(steps):
        job.next_step()
    compute = (time.process_time() - begin) / steps
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        ready = multiprocessing.Event()
        reader = multiprocessing.Process(target=_swallow, args=(str(path), ready), daemon=True)
        reader.start()
        ready.wait(10)
        player = Player(Job(shape, [], 1), "bench", path, wait=lambda _: False)
        begin = time.process_time()
        player.play(steps * STEP_S * 1.1)
        everything = (time.process_time() - begin) / max(player.progress.steps, 1)
        reader.terminate()
        reader.join()
    ranks = topology.ranks
    return Cost(ranks, len(done.kernels) / ranks, len(done.spans) / ranks, compute, everything)


def _swallow(path: str, ready: object) -> None:
    """Read whatever comes, as an exporter would."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(512)
    ready.set()  # type: ignore[attr-defined]
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            if not peer.recv(wire.MAX_MESSAGE_BYTES):
                selector.unregister(peer)
                peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    print(
        f"{'job':<14}{'ranks':>6}{'kernels':>9}{'spans':>7}{'compute ms':>12}{'all ms':>8}  core at 1 step/s"
    )
    costs = {}
    for name, (topology, microbatches) in _JOBS.items():
        cost = costs[name] = measure(topology, microbatches, steps)
        print(
            f"{name:<14}{cost.ranks:>6}{cost.kernels:>9.0f}{cost.spans:>7.0f}{cost.compute_s * 1e3:>12.1f}"
            f"{cost.all_s * 1e3:>8.1f}  {cost.core_share:.1%}"
        )
    worst = max(cost.core_share for cost in costs.values() if cost.ranks <= 32)
    print(json.dumps({"core_share_32_ranks": round(worst, 4)}))


if __name__ == "__main__":
    main()
