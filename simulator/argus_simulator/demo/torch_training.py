"""Real training as the demo's job: PyTorch DDP on four processes, one of which slows down partway.

The training script is the one of the tests. It slows down while a file exists: the demo writes that file, and
tells nobody.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib.util
import sys
import time

from argus_simulator.demo.plan import TRAINING_JOB
from argus_simulator.demo.truth import Accusation, Truth
from argus_simulator.stack import Stack, StackError, WaitTimeout, wait_for
from argus_simulator.stack.pace import SECOND_S
from argus_simulator.stack.processes import Child
from argus_simulator.stack.repository import find_repository, program

RANKS = 4
_FACTOR = 3.0
_HEALTHY_S = 20.0
"""Health before the fault, from the first step that Prometheus has seen."""
_STOP_S = 10.0
_STEPS = f'min(argus_iteration_last_step{{training_job="{TRAINING_JOB}"}})'


class TorchTraining:
    """Four ranks of `tests/training/train.py` under `argus-exporter run`."""

    def __init__(self, seed: int) -> None:
        if importlib.util.find_spec("torch") is None:
            raise StackError("PyTorch is not installed here; `make torch` installs it")
        self._script = find_repository() / "tests" / "training" / "train.py"
        if not self._script.is_file():
            raise StackError(f"no training script at {self._script}; check out the whole repository")
        self._rank = (2 + seed) % RANKS
        self.description = f"PyTorch DistributedDataParallel, {RANKS} processes on this machine"
        self._stack: Stack | None = None
        self._child: Child | None = None
        self._first_step_at: float | None = None
        self._onset: float | None = None
        self._seen_at: list[float] = []
        self._seen: list[int] = []

    @property
    def truth(self) -> Truth:
        expected = Accusation("ArgusStragglerRank", str(self._rank), "gpu-compute", "operations")
        return Truth(self._rank, "forward", _FACTOR, self._steps_at(self._onset), expected)

    @property
    def truth_text(self) -> str:
        return (
            f"rank {self._rank} does {_FACTOR:g} times the work in the frozen layers of its forward pass "
            f"from about step {self.truth.onset_step} on"
        )

    def start(self, stack: Stack) -> None:
        self._stack = stack
        self._slow = stack.folder / "slow"
        self._end = stack.folder / "stop"
        command = [
            program("argus-exporter"),
            "run",
            "--socket",
            str(stack.socket),
            "--job",
            TRAINING_JOB,
            "--",
        ]
        command += [program("torchrun"), "--standalone", "--nproc-per-node", str(RANKS), str(self._script)]
        self._child = stack.start_child(
            "training",
            command,
            environment={
                "SLOW_RANK": str(self._rank),
                "SLOW_FACTOR": str(_FACTOR),
                "SLOW_FILE": str(self._slow),
                "STOP_FILE": str(self._end),
                "OMP_NUM_THREADS": "1",
                "ARGUS_FLUSH_MILLISECONDS": f"{1000 * SECOND_S:.0f}",  # a second, at the pace of the stack
            },
            folder=self._script.parent,
            orderly_death=True,  # torchrun ends its workers, which lead sessions of their own
        )

    def check(self) -> None:
        if self._child is not None:
            self._child.check()

    def steps(self) -> int:
        if self._stack is None:
            return 0
        for _, value in self._stack.query(_STEPS):
            self._seen_at.append(time.time())
            self._seen.append(int(value))
        return self._seen[-1] if self._seen else 0

    def onset(self) -> float | None:
        """Begins the fault once the job has been healthy for long enough."""
        if self._onset is None and self.steps() > 0:
            self._first_step_at = self._first_step_at or time.monotonic()
            if time.monotonic() - self._first_step_at >= _HEALTHY_S:
                self._onset = time.time()
                self._slow.touch()
        return self._onset

    def steps_since_onset(self, at: float) -> int:
        return max(0, self._steps_at(at) - self._steps_at(self._onset))

    def stop(self) -> None:
        child = self._child
        if child is None:
            return
        self._end.touch()  # all ranks leave at the same step; the stack ends what does not
        with contextlib.suppress(WaitTimeout):
            wait_for(lambda: child.exit_status is not None, _STOP_S, "the training to end")

    def _steps_at(self, at: float | None) -> int:
        """The last count seen by then; Prometheus learns of steps once a second."""
        index = bisect.bisect_right(self._seen_at, at if at is not None else sys.float_info.max)
        return self._seen[index - 1] if index else 0
