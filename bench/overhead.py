"""What ARGUS costs the training: hooks in and out inside one process, and processes with and without it.

    python -m bench.overhead [--processes N] [--rounds N] [--blocks N] [--steps N] [--minutes M] [--no-stacks]
    python -m bench.overhead --cuda

`phases_us_per_step` is what the hooks of a step add, put in and taken out in turns inside one process
(`bench.overhead_hooks`): the mean over fresh processes, with Student's interval over them. Judged is the
training thread's own CPU time, so that waiting for other processes does not count. Once steps follow one
another, and once with an idle wait of 5 ms in each, as for a GPU: then caches are cold, and all code costs a
multiple, the training's own too.

Beside it fresh processes train side by side, one without ARGUS and one with the phases channel, and take
turns by blocks of steps, so that drift of the machine meets both alike. The difference of a round is the
median over its blocks. That sees what ARGUS costs by being there, too; but by the placement of their memory
alone two processes of one program differ by more, so the interval over some rounds is wide, and says only
whether anything large is missed. The CPU time of other threads (ours sends once a second) is reported apart.
Processes attach as under `argus-exporter run`; another process reads what they say. TraceML (`make traceml`)
takes turns with them where it is installed, under its own launcher.

With `--cuda` the step time of a transformer counts (wall clock, synchronised), for each channel, for all
together, and beside torch.profiler always on; a real exporter runs. What the marks of layers cost is measured
apart (`bench.overhead_layers`). What cannot be measured is null. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple, Protocol

from argus_core import wire
from argus_exporter.commands.run import child_environment

BUDGET_US = 20.0  # docs/benchmarks.md
BUDGET_PERCENT = 1.0
WARM_TURN = 10
"""How much longer a turn is where steps follow one another: its first ones find another process's caches."""
IDLE_S = 0.005
"""What the cold training waits in each step, as for a GPU."""

TRACEML = Path(__file__).parents[1] / ".venv" / "traceml"
"""TraceML and what it needs (`bench/traceml.txt`), in a folder that only its own process imports from."""
WORKER = Path(__file__).with_name("overhead_worker.py")
WORKERS = ("torch_profiler", "traceml")
"""Environments whose name the worker is told."""

_STUDENT_975 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Two-sided 95 % points by degrees of freedom; beyond the table the last is a little too wide."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        freedom = min(len(values) - 1, len(_STUDENT_975) - 1)
        half = _STUDENT_975[freedom] * stdev(values) / math.sqrt(len(values)) if freedom else math.nan
        return cls(mean(values), mean(values) - half, mean(values) + half)

    def rounded(self, digits: int) -> dict[str, float]:
        return {name: round(value, digits) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Hooks:
    """What the hooks of a step add to the training thread's CPU time."""

    added_us: Interval
    step_us: float
    """Of the step itself."""
    counts: dict[str, float]
    """A step: functions of ours that run, what they call in C, and their bytecodes."""

    def rounded(self) -> dict[str, Any]:
        return {"step_us": round(self.step_us, 1), "added_us_95": self.added_us.rounded(2), **self.counts}


class Training:
    """One training process that waits for its turns."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.overhead_worker", *arguments]
        if "traceml" in arguments:
            command = by_traceml(environment["TRACEML_LOGS_DIR"], *arguments)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload]

    def train(self, steps: int) -> dict[str, Any]:
        """CPU and wall seconds of so many steps, and memory afterwards."""
        self.ask(steps)
        return self.answer()

    def ask(self, steps: int) -> None:
        """Let it train; `answer` has what came of it."""
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it end; `close` waits for that."""
        self._process.stdin.close()

    def close(self) -> None:
        self.end()
        self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()

    def answer(self) -> dict[str, Any]:
        """Of `ask`; the first one, without, is that it is ready.

        Raises:
            RuntimeError: the process has ended.
        """
        for line in self._process.stdout:
            if line.startswith("{"):  # a launcher has things to say as well
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"a training process ended with status {self._process.wait()}")


def turns(
    environments: dict[str, dict[str, str]], kind: str, blocks: int, steps: int
) -> dict[str, list[dict[str, Any]]]:
    """Fresh processes, one an environment, in turns."""
    trainings = {}
    for name, environment in environments.items():
        trainings[name] = Training(environment, kind, *([name] if name in WORKERS else []))
        trainings[name].answer()
    return in_turns(trainings, blocks, steps)


class Trains(Protocol):
    """What takes turns: a process, or several that train together."""

    def train(self, steps: int) -> dict[str, Any]: ...

    def close(self) -> None: ...


def in_turns(trainings: Mapping[str, Trains], blocks: int, steps: int) -> dict[str, list[dict[str, Any]]]:
    """What each answers, block by block; the order is reversed each time. They are closed afterwards."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in trainings}
    try:
        for training in trainings.values():
            training.train(5 * steps)  # the optimizer's state, the allocator, the connection, the sequence
        for block in range(blocks):
            for name in list(trainings)[:: -1 if block % 2 else 1]:
                answers[name].append(trainings[name].train(steps))
    finally:
        for training in trainings.values():
            training.close()
    return answers


def added(answers: dict[str, list[dict[str, Any]]], name: str, what: str, steps: int) -> float:
    """Median seconds a step that `name` takes more than `off`."""
    pairs = zip(answers[name], answers["off"], strict=True)
    return float(median((with_[what] - without[what]) / steps for with_, without in pairs))


def environments(path: Path, idle_s: float = 0.0) -> dict[str, dict[str, str]]:
    """Environments of the processes on the CPU."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
    base |= {"OMP_NUM_THREADS": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    base |= {"BENCH_IDLE_S": str(idle_s)}
    attached = child_environment(base, path, "bench") | {"ARGUS_STACKS": "off", "ARGUS_DISABLE_KERNELS": "1"}
    return {"off": base, "phases": attached}


def beside(base: dict[str, str], folder: str) -> dict[str, dict[str, str]]:
    """The environment of TraceML's process; none where it is not installed."""
    if not TRACEML.is_dir():
        return {}
    path = os.pathsep.join(filter(None, [str(TRACEML), base.get("PYTHONPATH", "")]))
    return {"traceml": base | {"PYTHONPATH": path, "TRACEML_LOGS_DIR": folder}}


def by_traceml(folder: str, *arguments: str) -> list[str]:
    """Its launcher, which starts the process that keeps what was measured, and torchrun for the script.

    Its defaults, but for ports that may be taken and the copy of the output.
    """
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [f"--aggregator-port={one.getsockname()[1]}", f"--master-port={other.getsockname()[1]}"]
    launcher = [sys.executable, str(TRACEML / "bin" / "traceml"), "run", str(WORKER), *ports]
    name = f"--run-name={len(list(Path(folder).iterdir()))}"  # a run wants a folder that is not there yet
    return [*launcher, name, f"--logs-dir={folder}", "--no-save-training-output", "--args", *arguments]


class Cost(NamedTuple):
    """What one tool costs one training on the CPU."""

    added_us: Interval
    """Microseconds of the training thread's time that a step takes more."""
    other_share: float
    """Share of a core that other threads of the process take more."""


@dataclass(frozen=True)
class Phases:
    """What the phases channel costs one training on the CPU, and TraceML beside it."""

    cost: Cost
    step_us: float
    """Microseconds of the training thread's time of the step itself."""
    traceml: Cost | None = None
    """None where it is not installed."""

    def rounded(self) -> dict[str, Any]:
        result = {
            "step_us": round(self.step_us, 1),
            "added_us_95": self.cost.added_us.rounded(2),
            "sender_core_share": round(self.cost.other_share, 6),
        }
        if self.traceml is None:
            return result | {"traceml": "not installed (make traceml)"}
        return result | {
            "traceml_added_us_95": self.traceml.added_us.rounded(2),
            "traceml_core_share": round(self.traceml.other_share, 6),
        }


def on_cpu(rounds: int, blocks: int, steps: int, idle_s: float) -> Phases:
    """Phases on the CPU, and TraceML where it is there, from so many fresh sets of processes."""
    added_us: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    base: list[float] = []
    with reading() as path, tempfile.TemporaryDirectory() as folder:
        chosen = environments(path, idle_s)
        chosen |= beside(chosen["off"], folder)
        for _ in range(rounds):
            answers = turns(chosen, "cpu", blocks, steps)
            if not answers["phases"][-1]["attached"]:
                raise RuntimeError("ARGUS is not attached to the process whose phases are measured")
            other = {name: sum(answer["other_cpu_s"] for answer in answers[name]) for name in answers}
            for name in answers:
                if name != "off":
                    wall = sum(answer["wall_s"] for answer in answers[name])
                    added_us.setdefault(name, []).append(added(answers, name, "cpu_s", steps) * 1e6)
                    shares.setdefault(name, []).append((other[name] - other["off"]) / wall)
            base.append(median(answer["cpu_s"] for answer in answers["off"]) / steps * 1e6)
    costs = {name: Cost(Interval.of(added_us[name]), mean(shares[name])) for name in added_us}
    return Phases(costs["phases"], mean(base), costs.get("traceml"))


def memory(minutes: float, steps: int) -> dict[str, Any]:
    """Growth of resident memory with ARGUS beyond that without, after a first tenth of the time."""
    sizes: dict[str, list[float]] = {"off": [], "phases": []}
    with reading() as path:
        trainings = {name: Training(environment, "cpu") for name, environment in environments(path).items()}
        for training in trainings.values():
            training.answer()
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            for name, training in trainings.items():
                sizes[name].append(training.train(steps)["rss_mb"])
        for training in trainings.values():
            training.close()
    grown = {name: values[-1] - values[len(values) // 10] for name, values in sizes.items()}
    return {
        "rss_growth_mb": round(grown["phases"] - grown["off"], 2),
        "grown_mb": {name: round(value, 2) for name, value in grown.items()},
        "minutes": minutes,
        "steps": len(sizes["phases"]) * steps,
    }


def on_cuda(rounds: int, blocks: int, steps: int) -> dict[str, Any]:
    """Percent of step time, by channel. Stacks are taken by a second exporter that watches its own ranks."""
    relative: dict[str, list[float]] = {}
    with serving("false") as quiet, serving("true") as watching:
        base = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
        base |= {"LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        off = {"ARGUS_DISABLE": "1"}
        without_phases = {
            "ARGUS_DISABLE_HOOKS": "data,forward,backward,collectives,gc,compilation,checkpoint,layers"
        }
        quiet_ = child_environment(base, quiet, "bench")
        watched = child_environment(base, watching, "bench")
        chosen = {
            "off": base | off,
            "phases": quiet_ | {"RANK": "1", "ARGUS_DISABLE_KERNELS": "1", "ARGUS_STACKS": "off"},
            "kernels": quiet_ | {"RANK": "2", "ARGUS_STACKS": "off"} | without_phases,
            "stacks": watched | {"RANK": "3", "ARGUS_DISABLE_KERNELS": "1"} | without_phases,
            "all": watched | {"RANK": "4"},
            "torch_profiler": base | off,
        }
        for _ in range(rounds):
            answers = turns(chosen, "cuda", blocks, steps)
            step = median(answer["wall_s"] for answer in answers["off"]) / steps
            for name in answers:
                if name != "off":
                    share = 100 * added(answers, name, "wall_s", steps) / step
                    relative.setdefault(name, []).append(share)
    intervals = {name: Interval.of(values).rounded(3) for name, values in relative.items()}
    return {"torch_profiler_pct": intervals.pop("torch_profiler"), "overhead_pct": intervals}


@contextlib.contextmanager
def reading() -> Iterator[Path]:
    """A socket whose producers are read by another process, which keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        reader = context.Process(target=drain, args=(str(path), ready), daemon=True)
        reader.start()
        ready.wait()
        try:
            yield path
        finally:
            reader.terminate()
            reader.join()


def drain(path: str, ready: Any) -> None:
    """Another process: accept producers, read and forget."""
    import selectors

    selector = selectors.DefaultSelector()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    selector.register(listener, selectors.EVENT_READ)
    ready.set()
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            else:
                peer = key.fileobj
                assert isinstance(peer, socket.socket)
                if not peer.recv(wire.MAX_MESSAGE_BYTES):
                    selector.unregister(peer)
                    peer.close()


@contextlib.contextmanager
def serving(stacks: str) -> Iterator[Path]:
    """A real exporter, with or without the stacks channel."""
    with tempfile.TemporaryDirectory() as folder:
        path, config, log = (Path(folder) / name for name in ("s", "exporter.yaml", "log"))
        config.write_text(f"stacks:\n  enabled: {stacks}\n")
        command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--config", str(config)]
        command += ["--socket", str(path), "--web.listen-address", "127.0.0.1:0"]
        with log.open("wb") as output:
            exporter = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            try:
                limit = time.monotonic() + 30
                while not path.exists():
                    if exporter.poll() is not None or time.monotonic() > limit:
                        raise RuntimeError(f"the exporter did not start: {log.read_text()[-500:]}")
                    time.sleep(0.05)
                yield path
            finally:
                exporter.terminate()
                exporter.wait(10)


def stacks_core_share() -> float | None:
    """Share of a core that watching one rank takes outside of it; None where py-spy is not installed."""
    from bench.stacks import core_share

    try:
        share = core_share(3, "torch")["stacks_core_share"]
    except (OSError, RuntimeError):
        return None
    return float(share)


def hooks(processes: int) -> dict[str, Hooks]:
    """What the hooks of a step cost; see `bench.overhead_hooks`."""
    from bench.overhead_hooks import measured

    return {
        "back_to_back": measured(processes, turns=60, steps=40),
        "with_a_collective": measured(processes, turns=60, steps=40, collective=True),
        "cold_caches": measured(processes, turns=20, steps=15, idle_s=IDLE_S),
    }


def layers() -> dict[str, Any]:
    """What the marks of layers cost; see `bench.overhead_layers`."""
    from bench.overhead_layers import layers_share

    return layers_share(turns=20)


def report(
    inside: dict[str, Hooks],
    warm: Phases,
    cold: Phases,
    rss: dict[str, Any],
    stacks: float | None,
    cuda: dict[str, Any],
    marks: dict[str, Any],
) -> dict[str, Any]:
    """The JSON line: the figures that are judged, null where not measured, and the rest in `detail`."""
    return {
        "phases_us_per_step": round(inside["back_to_back"].added_us.mean, 2),
        "traceml_us_per_step": round(warm.traceml.added_us.mean, 2) if warm.traceml else None,
        "stacks_core_share": stacks,
        "rss_growth_mb": rss["rss_growth_mb"],
        "overhead_pct": cuda.get("overhead_pct"),
        "torch_profiler_pct": cuda.get("torch_profiler_pct"),
        "layers_share": marks["layers_share"],
        "detail": {
            "budget_us": BUDGET_US,
            "budget_pct": BUDGET_PERCENT,
            "hooks": {name: one.rounded() for name, one in inside.items()},
            "back_to_back": warm.rounded(),
            "cold_caches": cold.rounded(),
            "rss": rss,
            "layers": marks,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=5, help="fresh ones, for hooks (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="fresh sets of processes (default: 5)")
    parser.add_argument("--blocks", type=int, default=30, help="turns of each in a round (default: 30)")
    parser.add_argument("--steps", type=int, default=30, help="steps a turn (default: 30)")
    parser.add_argument("--minutes", type=float, default=0.5, help="for memory (default: 0.5; verify: 10)")
    parser.add_argument("--no-stacks", action="store_true", help="leave py-spy's share out")
    parser.add_argument("--cuda", action="store_true", help="step time of a transformer on a GPU")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    result = report(
        hooks(args.processes),
        on_cpu(args.rounds, args.blocks, args.steps * WARM_TURN, 0.0),
        on_cpu(args.rounds, args.blocks, args.steps, IDLE_S),
        memory(args.minutes, args.steps),
        None if args.no_stacks else stacks_core_share(),
        on_cuda(args.rounds, args.blocks, args.steps) if args.cuda else {},
        layers(),
    )
    result["detail"]["load"] = [round(load, 1), round(os.getloadavg()[0], 1)]
    for name, value in (result | result["detail"]).items():
        if name != "detail":
            print(f"{name:>24}  {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
