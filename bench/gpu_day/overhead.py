"""What ARGUS adds to the time of a training step: the same training with more and more channels, in turns.

Fresh processes, one a set of channels, take turns by blocks of steps (`bench.overhead.turns`): off,
phases, phases and kernels, phases, kernels and stacks. Each block is divided by the block without ARGUS
beside it; the interval is Student's over the blocks. A step ends synchronised, as where a loss is logged:
nothing that ARGUS adds can hide behind work in flight.
"""

from __future__ import annotations

import contextlib
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

from bench.gpu_day.observe import attached, base_environment, trained
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day
from bench.overhead import Interval, serving, turns

GOAL_PERCENT = 0.3
"""What is aimed at; the gate is 1 %."""
_SCRAPE_S = 5.0
Answers = Mapping[str, Sequence[Mapping[str, Any]]]


def run(day: Day) -> dict[str, Any]:
    beside = Path(sys.executable).with_name("py-spy")  # as the exporter looks for it
    if not beside.is_file() and shutil.which("py-spy") is None:
        raise NotRun("py-spy is not installed: the stacks channel would cost nothing (pip install py-spy)")
    options = day.step.options
    sizes = {"OVERHEAD_STEP_MS": str(options["step_ms"]), "OVERHEAD_MODE": options["mode"]}
    base = base_environment(day) | {"LOCAL_RANK": "0", "WORLD_SIZE": "1"} | sizes
    out = trained(base, "-m", "bench.gpu_day.transformer")
    micro_batches = 2 if day.dry else int(out.strip().splitlines()[-1])
    base |= {"OVERHEAD_MICRO_BATCHES": str(micro_batches)}
    day.reach(f"{micro_batches} micro-batches fill {options['step_ms']} ms")
    rounds, blocks, steps = (1, 8, 2) if day.dry else (options["rounds"], options["blocks"], options["steps"])
    kept: dict[str, list[Mapping[str, Any]]] = {}
    with serving("false") as quiet, serving("true") as watching:
        chosen = channels(day, base, quiet, watching)
        stacks = Watch(watching.with_name("log"))
        for _ in range(rounds):
            for name, answers in turns(chosen, "sized", blocks, steps).items():
                kept.setdefault(name, []).extend(answers)
        stacks.close()
    day.reach(f"{rounds} rounds of {blocks} blocks of {steps} steps, in turns")
    measured = {"micro_batches": micro_batches, "rounds": rounds} | summary(kept)
    records = {name: max(block["kernel_records"] for block in answers) for name, answers in kept.items()}
    attached_to = {name: all(block["attached"] for block in answers) for name, answers in kept.items()}
    return measured | {
        # A channel that was not on costs nothing and proves nothing.
        "kernel_records": min(records["kernels"], records["stacks"]),
        "kernel_records_without": records["off"] + records["phases"],
        "hooks_missing": sum(not attached_to[name] for name in kept if name != "off") + attached_to["off"],
        "stack_series": stacks.series,
    }


class Watch:
    """Scrapes the exporter that samples stacks, as Prometheus would, until it is closed."""

    def __init__(self, log: Path) -> None:
        self.series = 0
        """The most series of stacks that a scrape had."""
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
                found = sum(line.startswith(b"argus_stack_") for line in page)
                self.series = max(self.series, found)


def _address(log: Path, limit_s: float = 20.0) -> str:
    """Where an exporter serves, by its own word; it listens for producers a moment earlier."""
    limit = time.monotonic() + limit_s
    while (found := re.search(r"url=(http://\S+)", log.read_text())) is None:
        if time.monotonic() > limit:
            raise RuntimeError(f"the exporter does not say where it serves: {log.read_text()[-300:]}")
        time.sleep(0.05)
    return found.group(1)


def channels(day: Day, base: Mapping[str, str], quiet: Path, watching: Path) -> dict[str, dict[str, str]]:
    """The environments that are compared, from none of ARGUS to all of it."""
    bare = dict(base)
    without_kernels = {"ARGUS_DISABLE_KERNELS": "1", "CUDA_INJECTION64_PATH": ""}

    def with_argus(socket: Path, rank: int, **more: str) -> dict[str, str]:
        return bare | attached(day, socket, rank=rank, ARGUS_DEBUG="0") | more

    stacks = with_argus(watching, 3)
    stacks.pop("ARGUS_STACKS")
    return {
        "off": bare,
        "phases": with_argus(quiet, 1, **without_kernels),
        "kernels": with_argus(quiet, 2),
        "stacks": stacks,
    }


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
        ratios = [
            median(with_["steps_s"]) / median(without["steps_s"])
            for with_, without in zip(blocks, answers["off"], strict=True)
        ]
        added = Interval.of([100 * (ratio - 1) for ratio in ratios])
        measured[name]["added_percent_95"] = added.rounded(4)
        measured[f"{name}_percent"] = added.mean
        measured[f"{name}_percent_high"] = added.high
    measured["goal_percent"] = GOAL_PERCENT
    measured["goal_met"] = all(
        measured[f"{name}_percent"] <= GOAL_PERCENT for name in answers if name != "off"
    )
    return measured
