"""What ARGUS adds to the time of a training step: the same training with more and more channels, in turns.

Fresh processes, one a set of channels, take turns by blocks of steps (`bench.overhead.in_turns`): off,
phases, phases and kernels, phases, kernels and stacks. Each block is divided by the block without ARGUS
beside it; the interval is Student's over the blocks. A step ends synchronised, as where a loss is logged:
nothing that ARGUS adds can hide behind work in flight.

With two ranks NCCL's profiler plugin comes last: a rank alone has no collectives. On one GPU the two take
turns (`two_on_one`), so a step is longer and varies more than on two: the interval is wide.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from argus_core.injection import PROFILER
from argus_training.injector import library_path
from bench.gpu_day import stand_ins, two_on_one
from bench.gpu_day.device import NCCL_HOST
from bench.gpu_day.observe import attached, base_environment, finish, start
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day
from bench.overhead import Interval, Training, in_turns, serving

GOAL_PERCENT = 0.3
"""What is aimed at; the gate is 1 %."""
_SCRAPE_S = 5.0
Answers = Mapping[str, Sequence[Mapping[str, Any]]]
Environments = Sequence[dict[str, str]]
"""Of the processes that train together, one a rank."""


def needs_py_spy() -> None:
    """Raises NotRun where the exporter would find none: the stacks channel would cost nothing."""
    beside = Path(sys.executable).with_name("py-spy")
    if not beside.is_file() and shutil.which("py-spy") is None:
        raise NotRun("py-spy is not installed: the stacks channel would cost nothing (pip install py-spy)")


def run(day: Day) -> dict[str, Any]:
    needs_py_spy()
    options = day.step.options
    ranks: int = options["ranks"]
    base = [of_rank(day, rank) for rank in range(ranks)]
    fitted = _fitted(day, base)
    micro_batches = 2 if day.dry else int(fitted["micro_batches"])
    for one in base:
        one["OVERHEAD_MICRO_BATCHES"] = str(micro_batches)
    rounds, steps = (1, 2) if day.dry else (options["rounds"], options["steps"])
    kept: dict[str, list[Mapping[str, Any]]] = {}
    with serving("false") as quiet, serving("true") as watching:
        chosen = channels(day, base, quiet, watching)
        wanted = 8 if day.dry else options["blocks"]
        blocks = blocks_within(day.turns_s, wanted, len(chosen) * rounds * steps * fitted["step_s"])
        stacks = Watch(watching.with_name("log"))
        for number in range(rounds):
            trainings = {
                name: Ranks(met(environments, day.work / f"{name}.{number}"))
                for name, environments in chosen.items()
            }
            for name, answers in in_turns(trainings, blocks, steps).items():
                kept.setdefault(name, []).extend(answers)
        stacks.close()
    day.reach(f"{rounds} rounds of {blocks} blocks of {steps} steps, in turns")
    return {
        "micro_batches": micro_batches,
        "fitted_step_ms": 1e3 * fitted["step_s"],
        "rounds": rounds,
        "blocks": blocks,
        "stack_series": stacks.series,
        "nccl_series": stacks.nccl_series,
        **summary(kept),
        **_what_was_on(kept),
    }


def blocks_within(limit_s: float, wanted: int, seconds_a_block: float) -> int:
    """As many blocks as there is time for, and no more than wanted.

    Raises:
        RuntimeError: too few for an interval.
    """
    blocks = min(wanted, int(limit_s / seconds_a_block))
    if blocks < min(wanted, 8):
        raise RuntimeError(f"a block of all channels takes {seconds_a_block:.0f} s: too long for an interval")
    return blocks


class Ranks:
    """Processes that train together, as one. A step is as long as the longest of theirs."""

    def __init__(self, environments: Environments) -> None:
        self._trainings = [Training(environment, "sized") for environment in environments]
        self._answers()

    def train(self, steps: int) -> dict[str, Any]:
        """Seconds of each step, and by rank what was on."""
        for one in self._trainings:
            one.ask(steps)
        answers = self._answers()
        seconds = zip(*(answer["steps_s"] for answer in answers), strict=True)
        on = ("attached", "kernel_records", "collectives")
        return {"steps_s": [max(step) for step in seconds]} | {
            name: [answer[name] for answer in answers] for name in on
        }

    def close(self) -> None:
        for one in self._trainings:
            one.end()
        for one in self._trainings:
            one.close()

    def _answers(self) -> list[dict[str, Any]]:
        try:
            return [one.answer() for one in self._trainings]
        except RuntimeError:
            for one in self._trainings:  # which may wait for the one that has ended
                one.kill()
            raise


def of_rank(day: Day, rank: int) -> dict[str, str]:
    """What all sets of channels have in common.

    Raises:
        NotRun: of several ranks, and there is no plugin that would see their collectives.
    """
    options = day.step.options
    ranks = options["ranks"]
    if ranks > 1 and library_path(PROFILER) is None:
        raise NotRun(f"{PROFILER} is not installed: pip install the package with a C++ compiler")
    environment = base_environment(day) | {
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "OVERHEAD_STEP_MS": "1" if day.dry else str(options["step_ms"]),
        "OVERHEAD_MODE": options["mode"],
        "OVERHEAD_RANKS": str(ranks),
        "OVERHEAD_RANK": str(rank),
    }
    if ranks > 1:
        environment |= two_on_one.environment(rank)
        if day.dry:
            host = stand_ins.build("fake_nccl_host") / "nccl" / "testing" / "libfake_nccl_host.so"
            environment |= {NCCL_HOST: str(host), "FAKE_NCCL_VERSION": "22809"}
    return environment


def met(environments: Environments, folder: Path) -> Environments:
    """They meet in a file of their own."""
    folder.mkdir()
    return [one | {"OVERHEAD_RENDEZVOUS": str(folder / "rendezvous")} for one in environments]


def _fitted(day: Day, base: Environments) -> dict[str, float]:
    """How many micro-batches fill a step, and how long one is then, by the first rank."""
    processes = [start(one, "-m", "bench.gpu_day.transformer") for one in met(base, day.work / "fit")]
    ended = [finish(one) for one in processes]
    for status, _, said in ended:
        if status != 0:
            raise RuntimeError(f"the training ended with status {status}: {said.strip()[-300:]}")
    fitted: dict[str, float] = json.loads(ended[0][1].strip().splitlines()[-1])
    wanted = day.step.options["step_ms"]
    day.reach(f"{fitted['micro_batches']} micro-batches for {wanted} ms take {1e3 * fitted['step_s']:.0f}")
    return fitted


def _what_was_on(kept: Answers) -> dict[str, Any]:
    """A channel that was not on costs nothing and proves nothing."""
    last = {name: answers[-1] for name, answers in kept.items()}
    without_kernels = ("off", "phases")
    measured = {
        "kernel_records": min(
            min(one["kernel_records"]) for name, one in last.items() if name not in without_kernels
        ),
        "kernel_records_without": sum(sum(last[name]["kernel_records"]) for name in without_kernels),
        "hooks_missing": sum(
            attached != (name != "off")
            for name, answers in kept.items()
            for block in answers
            for attached in block["attached"]
        ),
        "collectives_without": sum(sum(one["collectives"]) for name, one in last.items() if name != "nccl"),
    }
    return measured | ({"collectives": min(last["nccl"]["collectives"])} if "nccl" in last else {})


class Watch:
    """Scrapes the exporter that samples stacks, as Prometheus would, until it is closed."""

    def __init__(self, log: Path) -> None:
        self.series = 0
        """The most series of stacks that a scrape had."""
        self.nccl_series = 0
        """Likewise of what NCCL's plugin counts."""
        self._url = _address(log)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_SCRAPE_S):
            with contextlib.suppress(OSError), urllib.request.urlopen(self._url, timeout=10) as page:
                lines = list(page)
                self.series = max(self.series, _begin_with(b"argus_stack_", lines))
                self.nccl_series = max(self.nccl_series, _begin_with(b"argus_nccl_collectives_total", lines))


def _begin_with(name: bytes, lines: Sequence[bytes]) -> int:
    return sum(line.startswith(name) for line in lines)


def _address(log: Path, limit_s: float = 20.0) -> str:
    """Where an exporter serves, by its own word; it listens for producers a moment earlier."""
    limit = time.monotonic() + limit_s
    while (found := re.search(r"url=(http://\S+)", log.read_text())) is None:
        if time.monotonic() > limit:
            raise RuntimeError(f"the exporter does not say where it serves: {log.read_text()[-300:]}")
        time.sleep(0.05)
    return found.group(1)


def channels(day: Day, base: Environments, quiet: Path, watching: Path) -> dict[str, Environments]:
    """The environments that are compared, from none of ARGUS to all of it.

    Each set is a job of its own: one process a rank of a job is observed.
    """

    def with_argus(name: str, socket: Path, **more: str) -> Environments:
        made = []
        for rank, bare in enumerate(base):
            argus = attached(day, socket, rank, ARGUS_DEBUG="0", ARGUS_JOB=f"gpu-day-{name}", **more)
            made.append(argus | bare | {"PYTHONPATH": argus["PYTHONPATH"]})
        return made

    chosen = {
        "off": base,
        "phases": with_argus("phases", quiet, ARGUS_DISABLE_KERNELS="1"),
        "kernels": with_argus("kernels", quiet),
        "stacks": with_argus("stacks", watching, ARGUS_STACKS=""),
    }
    if len(base) > 1:
        chosen["nccl"] = with_argus("nccl", watching, ARGUS_STACKS="", ARGUS_NCCL="1")
    return chosen


def summary(answers: Answers) -> dict[str, Any]:
    """Per cent that each set of channels adds, median and p99 of its steps, and whether the goal was met."""
    measured: dict[str, Any] = {}
    for name, blocks in answers.items():
        seconds = np.array([second for block in blocks for second in block["steps_s"]])
        measured[name] = {
            "steps": len(seconds),
            "median_ms": float(np.median(seconds) * 1e3),
            "p99_ms": float(np.quantile(seconds, 0.99) * 1e3),
        }
        if name == "off":
            continue
        added = Interval.of(_added_percent(blocks, answers["off"]))
        measured[name]["added_percent_95"] = added.rounded(4)
        measured[f"{name}_percent"] = added.mean
        measured[f"{name}_percent_high"] = added.high
    if "nccl" in answers:  # what the plugin adds to all the rest
        alone = Interval.of(_added_percent(answers["nccl"], answers["stacks"]))
        measured["nccl"]["over_stacks_percent_95"] = alone.rounded(4)
    measured["goal_percent"] = GOAL_PERCENT
    measured["goal_met"] = all(
        measured[f"{name}_percent"] <= GOAL_PERCENT for name in answers if name != "off"
    )
    return measured


def _added_percent(blocks: Sequence[Mapping[str, Any]], beside: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of each block over the one of the same turn, by their median steps."""
    return [
        100 * (median(with_["steps_s"]) / median(without["steps_s"]) - 1)
        for with_, without in zip(blocks, beside, strict=True)
    ]
