"""Runs a program with ARGUS and without, and compares what ARGUS tells with the program's own timers."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from argus_core import wire
from argus_training import boot_directory
from training.reader import Reader, Said, until

FOLDER: Final = Path(__file__).parent
PACKAGES: Final = Path(__file__).parents[2] / ".venv" / "frameworks"
RANKS: Final = 2
LONGEST_S: Final = 180.0
"""Of a job: then it hangs."""
SETTLED: Final = 3
"""Iterations at the beginning of each half that are not compared: compilation, and the change itself."""
SOMETIMES: Final = {"gc"}
"""Phases that are not in every iteration, and of no framework's."""
_MEANS_NOTHING: Final = re.compile(
    r"0x[0-9a-f]+|\d+(?:\.\d+)?"  # times, pids, addresses
    r"|\[rank.\]:?"  # which of them comes first
)


class Window(NamedTuple):
    """From the end of one iteration to the end of another, by the program."""

    begin_ns: int
    end_ns: int

    def holds(self, begin_ns: int, end_ns: int) -> bool:
        return self.begin_ns <= begin_ns and end_ns <= self.end_ns


@dataclass(frozen=True)
class Rank:
    """One rank: what its program says of itself, and what ARGUS says of it."""

    said: Said
    ends_ns: list[int]
    timers: Mapping[str, list[tuple[int, int]]]

    @property
    def even(self) -> Window:
        """The first half, in which no rank is slow."""
        return self._window(SETTLED - 1, len(self.ends_ns) // 2 - 1)

    @property
    def uneven(self) -> Window:
        """The second half, in which rank 1 is."""
        return self._window(len(self.ends_ns) // 2 + SETTLED - 1, len(self.ends_ns) - 1)

    def _window(self, first: int, last: int) -> Window:
        return Window(self.ends_ns[first], self.ends_ns[last])

    def each(self, window: Window) -> list[Window]:
        """Its iterations, one by one."""
        ends = [end for end in self.ends_ns if window.begin_ns <= end <= window.end_ns]
        return [Window(begin, end) for begin, end in itertools.pairwise(ends)]

    def timed(self, phase: str, window: Window) -> float:
        """Seconds by the program's timer."""
        times = self.timers.get(phase, ())
        return sum(end - begin for begin, end in times if window.holds(begin, end)) / 1e9

    def told(self, prefixes: tuple[str, ...], window: Window) -> float:
        """Seconds in spans of phases whose names begin so, what lies in several of them once."""
        seconds, until_ns = 0.0, 0
        for begin, end, name, _ in sorted(self._spans(window), key=lambda one: one[:2]):
            if name.startswith(prefixes):
                seconds += max(0, end - max(begin, until_ns)) / 1e9
                until_ns = max(until_ns, end)
        return seconds

    def exclusive(self, window: Window) -> dict[tuple[str, str], float]:
        """Seconds of each phase and kind that lie in no other span."""
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for begin, end, name, span in self._spans(window):
            seconds[name, wire.Kind(span.kind).name.lower()] += (end - begin) / 1e9 - span.nested_seconds
        return seconds

    def _spans(self, window: Window) -> list[tuple[int, int, str, wire.Span]]:
        placed = [
            (one.start_ns, one.start_ns + one.duration_ns, name, one) for name, _, one in self.said.spans
        ]
        return [one for one in placed if window.holds(one[0], one[1])]

    def coverage(self, window: Window) -> float:
        """Of the seconds of iterations, how many the phases within them explain."""
        found = [
            Window(one.end_ns - one.duration_ns, one.end_ns)
            for one in self.said.iterations
            if window.holds(one.end_ns - one.duration_ns, one.end_ns)
        ]
        explained = sum(sum(self.exclusive(one).values()) for one in found)
        return explained / (sum(one.end_ns - one.begin_ns for one in found) / 1e9)

    def iteration(self, window: Window) -> dict[str, object]:
        """Of one iteration its seconds, and the exclusive seconds and spans of each phase."""
        counts = self._counts(window)
        return {
            "seconds": (window.end_ns - window.begin_ns) / 1e9,
            "phases": {
                f"{phase} {kind}": {"seconds": own, "spans": counts[phase, kind]}
                for (phase, kind), own in sorted(self.exclusive(window).items())
                if phase not in SOMETIMES
            },
        }

    def _counts(self, window: Window) -> Counter[tuple[str, str]]:
        return Counter((name, wire.Kind(span.kind).name.lower()) for *_, name, span in self._spans(window))

    def compute(self, window: Window, of: Callable[[list[float]], float]) -> dict[str, float]:
        """Exclusive seconds of each phase of compute, `of` those in all iterations."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.each(window):
            for (phase, kind), own in self.exclusive(one).items():
                if kind == "compute":
                    found[phase].append(own)
        return {phase: of(each) for phase, each in found.items()}


def shortest(ranks: Sequence[Rank], window: Callable[[Rank], Window]) -> list[Window]:
    """Of each rank the iteration of a half that took all of them least, as machines have other work."""
    of_ranks = [rank.each(window(rank)) for rank in ranks]
    together = zip(*of_ranks, strict=True)
    return list(min(together, key=lambda step: max(one.end_ns - one.begin_ns for one in step)))


class Job(NamedTuple):
    """A job that has ended."""

    status: int
    stdout: list[str]
    stderr: list[str]
    ranks: list[Rank]
    """None without ARGUS."""


def as_command(command: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """How a job runs."""
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LONGEST_S)


def path_of(*, argus: bool) -> str:
    """Where programs import from."""
    folders = [str(FOLDER / "programs"), *filter(None, [os.environ.get("OTHER_TORCH")]), str(PACKAGES)]
    return os.pathsep.join(([str(boot_directory())] if argus else []) + folders)


class Forking:
    """Runs jobs whose ranks are forked by a process that has imported torch, once for all of them.

    Without ARGUS alone: there it does not matter how ranks begin, and importing is most of what they do.
    """

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "forked.py"), ",".join(modules)],
            env=os.environ | {"PYTHONPATH": path_of(argus=False), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, program: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """As `as_command`, of a program of this folder and its arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said = {name: Path(env["HOME"]) / name for name in ("stdout", "stderr")}
        script = str(FOLDER / "programs" / program[0])
        order = {name: str(path) for name, path in said.items()}
        whole = order | {"program": [script, *program[1:]], "environment": env}
        too_long = threading.Timer(LONGEST_S, os.killpg, (self._process.pid, signal.SIGKILL))
        too_long.start()
        try:
            self._process.stdin.write(json.dumps(whole) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
        finally:
            too_long.cancel()
        return subprocess.CompletedProcess(program, status, *(path.read_text() for path in said.values()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def run(
    command: Sequence[str],
    folder: Path,
    *,
    argus: bool,
    runs: Callable[[Sequence[str], dict[str, str]], subprocess.CompletedProcess[str]] = as_command,
) -> Job:
    """Run all ranks of a job. Of what they write, sorted lines, without numbers but in losses."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARGUS_", "RANK"))}
    env = kept | {
        "PYTHONPATH": path_of(argus=argus),
        "ARGUS_SOCKET": str(folder / "s"),
        "OMP_NUM_THREADS": "1",
        "OWN": str(folder) if argus else "",
        "WORK": "1" if argus else "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "HOME": str(folder),  # what is cached there by one run is not there in the other
    }
    with Reader(folder / "s") as reader:
        done = runs(command, env)
        if argus and done.returncode == 0:
            until(lambda: all(reader.ranks[rank].exit_status is not None for rank in range(RANKS)), "BYE")
    ranks = []
    for rank in range(RANKS if argus and done.returncode == 0 else 0):
        own = json.loads((folder / f"{rank}.json").read_text())
        ranks.append(Rank(reader.ranks[rank], own["ends_ns"], own["timers"]))
    stderr = sorted({_MEANS_NOTHING.sub("", line) for line in done.stderr.splitlines()})
    stdout = sorted(
        line if line.startswith("rank ") else _MEANS_NOTHING.sub("", line)
        for line in done.stdout.splitlines()
    )
    return Job(done.returncode, stdout, stderr, ranks)


def by_torchrun(program: str, *arguments: str) -> list[str]:
    """One command, which starts all ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
    return [
        *launcher,
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        str(FOLDER / "programs" / program),
        *arguments,
    ]


def by_deepspeed(program: str, *arguments: str) -> list[str]:
    """DeepSpeed's launcher, on this host."""
    options = [f"--num_gpus={RANKS}", "--num_nodes=1", f"--master_port={free_port()}"]
    launcher = [sys.executable, str(PACKAGES / "bin" / "deepspeed"), *options]
    return [*launcher, str(FOLDER / "programs" / program), *arguments]


def by_itself(program: str, *arguments: str) -> list[str]:
    """The program starts its ranks."""
    return [sys.executable, str(FOLDER / "programs" / program), *arguments]


def by_environment(program: str, *arguments: str) -> list[str]:
    """Two processes with the variables of a rank each, as Slurm or a script starts them."""
    script = """
import os, subprocess, sys
ranks = [
    subprocess.Popen(sys.argv[1:], env={**os.environ, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"})
    for rank in "01"
]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
    return [sys.executable, "-c", script, *by_itself(program, *arguments)]


def forked(*modules: str) -> Callable[..., list[str]]:
    """Two processes that one forks once it has imported these modules, as Lightning's `ddp_fork` does."""
    return lambda program, *arguments: [
        *(sys.executable, str(FOLDER / "forked.py"), ",".join(modules)),
        *(str(FOLDER / "programs" / program), *arguments),
    ]


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
