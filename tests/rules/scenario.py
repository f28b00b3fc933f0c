"""A job's series and what the rules must say of them, run by promtool: for stories of many ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rules.beside import play
from rules.promtool import needs_promtool, rules_of

STORIES = [needs_promtool, pytest.mark.beside_others]
"""The marks of a module of scenarios."""
ROOT = Path(__file__).resolve().parents[2]
STEP = 15
"""Seconds between samples and evaluations."""
CHAIN = ("job", "phases", "evidence", "regression", "history", "decision", "health", "nccl", "hardware")
"""Concerns in the order in which their rules read one another."""


@dataclass
class Scenario:
    """Input series of job `a`, and expectations.

    `values` are in promtool's notation (`0+4x80`). Every rank named by `ranks` is up.
    """

    concerns: tuple[str, ...]
    flavour: str = "rules"
    interval: float = STEP
    """Seconds between samples."""
    evaluation: int = STEP
    """Seconds between evaluations."""
    inputs: list[dict[str, str]] = field(default_factory=list)
    expectations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, metric: str, values: str, **labels: object) -> None:
        pairs = ", ".join(f'{name}="{value}"' for name, value in ({"training_job": "a"} | labels).items())
        self.inputs.append({"series": f"{metric}{{{pairs}}}", "values": values})

    def ranks(self, ranks: Iterable[int], samples: int, group: str = "dp", size: int = 0) -> None:
        """Ranks that are up for `samples` and belong to one comparison group."""
        ranks = list(ranks)
        for rank in ranks:
            self.add("argus_rank_up", f"1x{samples}", rank=rank)
            self.add("argus_rank_number", f"{rank}x{samples}", rank=rank)
            self.add("argus_rank_lead_number", f"{rank}x{samples}", rank=rank)
            self.add("argus_group_expected_ranks", f"{size or len(ranks)}x{samples}", rank=rank, group=group)

    def phase(self, rank: int, phase: str, count: str, seconds: str, **labels: object) -> None:
        """Totals of one phase: spans and their seconds."""
        base: dict[str, object] = {"kind": "compute", "group": "dp", "source": "event"}
        given = base | labels | {"rank": rank, "phase": phase}
        self.add("argus_phase_duration_seconds_count", count, **given)
        self.add("argus_phase_duration_seconds_sum", seconds, **given)

    def waits(self, rank: int, phase: str, waits: str, samples: int, **labels: object) -> None:
        """Whose waits may be in a phase's own time, as its exporter says: "none", or "tp" and so on."""
        given: dict[str, object] = {"kind": "compute"} | labels
        self.add("argus_phase_info", f"1x{samples}", rank=rank, phase=phase, waits=waits, **given)

    def expect(self, expression: str, at: str, samples: dict[str, float]) -> None:
        """The values at a time ("5m30s"), by label set in promtool's notation."""
        listed = [{"labels": labels, "value": value} for labels, value in samples.items()]
        self.expectations.append({"expr": expression, "eval_time": at, "exp_samples": listed})

    def run(self) -> None:
        names = [name for name in CHAIN if name in self.concerns]
        assert len(names) == len(self.concerns), f"{self.concerns} are not all in {CHAIN}"
        files = [f"argus.{name}.rules.yaml" for name in names]
        test = {
            "interval": f"{round(self.interval * 1000)}ms",
            "input_series": self.inputs,
            "promql_expr_test": self.expectations,
        }
        rules = rules_of(ROOT / self.flavour / file for file in files)
        play({**rules, "evaluation_interval": f"{self.evaluation}s", "tests": [test]})


def fires(alert: str) -> str:
    """Query: how many series of an alert fire."""
    return f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'


def at(sample: int) -> str:
    """When a sample is taken."""
    return f"{sample * STEP}s"
