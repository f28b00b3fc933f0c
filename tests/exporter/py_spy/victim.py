"""A rank to sample: says HELLO for itself, then computes in functions of known names until it is killed.

python victim.py SOCKET RANK [SAID_PID]
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from argus_core import wire
from argus_core.link import Link


def busy_leaf() -> int:
    return sum(range(20_000))


class Trainer:
    def step(self) -> int:
        return busy_leaf()


def worker_leaf() -> int:
    return sum(range(2_000))


def work() -> None:
    while True:
        worker_leaf()
        time.sleep(0.002)


def main() -> None:
    path, rank = Path(sys.argv[1]), int(sys.argv[2])
    pid = int(sys.argv[3]) if len(sys.argv) > 3 else os.getpid()
    link = Link(
        path,
        lambda: wire.hello(
            pid=pid, rank=rank, training_job="job", monotonic_ns=1, realtime_ns=time.time_ns()
        ),
        patience_s=5.0,
    )
    link.flush()
    threading.Thread(target=work, name=f"loader-{rank}_7", daemon=True).start()
    print(f"ready {os.getpid()}", flush=True)
    trainer = Trainer()
    while True:
        trainer.step()


if __name__ == "__main__":
    main()
