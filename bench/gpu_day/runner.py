"""Runs steps: each in a process group of its own that ends at its limit, each with a result."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.gpu_day.child import Request
from bench.gpu_day.machine import REPOSITORY
from bench.gpu_day.result import Machine, Outcome, Result, decide, read
from bench.gpu_day.step import LONGEST_S, TURNS_S, Step

DRY = "dry run"


@dataclass(frozen=True)
class Runner:
    """Runs steps on a machine.

    Attributes:
        folder: where `STEP.json` and `STEP.log` go; those of a dry run into its folder `dry`.
    """

    folder: Path
    machine: Machine
    commit: str
    dry: bool = False
    turns_s: float = TURNS_S
    say: Callable[[str], None] = print

    def run(self, step: Step) -> Result:
        """Run one step and write its result."""
        folder = self.folder / "dry" if self.dry else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{step.name}.log"
        started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        self.say(f"{step.name}: {step.proves} (at most {_limit(step):.0f} s)")
        missing = "" if self.dry else _missing(self.machine)
        if missing:
            answer, failure = {"measured": {}, "not_run": missing}, ""
            log.write_text(f"{missing}\n")
        else:
            answer, failure = self._answer(step, folder, log)
        outcome, why, more = self._judge(step, answer, failure)
        result = Result(
            step=step.name,
            commit=self.commit,
            machine=self.machine,
            started=started,
            seconds=round(time.monotonic() - began, 1),
            prediction=step.prediction,
            outcome=outcome,
            why=why,
            **more,
        )
        result.write(folder)
        self.say(f"{step.name}: {outcome}{': ' if why else ''}{why} ({result.seconds:.0f} s, {log})")
        return result

    def run_all(self, steps: Iterable[Step], *, again: bool = False) -> list[Result]:
        """Run them in order. One that has an outcome for this source already is not run again."""
        results = []
        for step in steps:
            known = None if again or self.dry else read(self.folder / f"{step.name}.json")
            if known and known.outcome != "not run" and known.commit == self.commit != "unknown":
                self.say(f"{step.name}: {known.outcome} already for {self.commit}")
                results.append(known)
            else:
                results.append(self.run(step))
        return results

    def _judge(self, step: Step, answer: dict[str, Any], failure: str) -> tuple[Outcome, str, dict[str, Any]]:
        measured = answer["measured"]
        if self.dry:
            of_stand_ins = {name: limit for name, limit in step.gates.items() if limit.on_stand_ins}
            outcome, why, gates = decide(measured, of_stand_ins)
            stopped = answer["not_run"]
            dry = {
                "reached": answer.get("reached", []),
                "stopped": stopped,
                "measured": measured,
                "gates": gates,
            }
            failure = failure or ("" if stopped or not of_stand_ins or outcome == "ok" else why)
            if failure:
                return "failed", f"{DRY}: {failure}", {"dry": dry}
            return "not run", DRY, {"dry": dry}
        if failure:
            return "failed", failure, {}
        if answer["not_run"]:
            return "not run", answer["not_run"], {}
        outcome, why, gates = decide(measured, step.gates)
        return outcome, why, {"measured": measured, "gates": gates}

    def _answer(self, step: Step, folder: Path, log: Path) -> tuple[dict[str, Any], str]:
        """What the step measured, and why it failed; both may be empty."""
        nothing: dict[str, Any] = {"measured": {}, "not_run": None}
        with tempfile.TemporaryDirectory(prefix="gpu-day-") as private, log.open("w") as output:
            answer = Path(private) / "answer.json"
            request = Request(step, self.dry, folder.absolute(), answer, self.turns_s)
            asked = Path(private) / "request"
            asked.write_bytes(pickle.dumps(request))
            child = subprocess.Popen(
                [sys.executable, "-m", "bench.gpu_day.child", str(asked)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = child.wait(_limit(step))
            except subprocess.TimeoutExpired:
                return nothing, f"not done after its limit of {_limit(step):g} s"
            finally:
                _end(child)
            if status != 0:
                return nothing, f"ended with status {status}: {_last_line(log)}"
            return json.loads(request.answer.read_text()), ""


def _missing(machine: Machine) -> str:
    """What a machine lacks for any step of the day; empty: nothing."""
    if machine.gpu is None:
        return "no NVIDIA GPU: neither nvidia-smi nor torch names one"
    if machine.torch is None or machine.cuda is None:
        return f"no torch with CUDA: torch is {machine.torch or 'not installed'}"
    return ""


def _limit(step: Step) -> float:
    return min(step.limit_s, LONGEST_S)


def _end(child: subprocess.Popen[bytes]) -> None:
    """The step and all that it started: its process group is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
