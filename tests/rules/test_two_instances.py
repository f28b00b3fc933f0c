"""A rank that moves to another host, and a job that ends, for a Prometheus that scrapes two exporters.

The exporter that lost a rank keeps its last series for five minutes, with `argus_rank_up` 0: the rank then
lives on two instances. Shipped files, virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from argus_core.remote_write import Labels
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import STALE, Storage
from rules.jobs import BEGIN_MS, FORGOTTEN_S
from rules.scenario import ROOT

pytestmark = pytest.mark.servers
RULES = sorted((ROOT / "rules").glob("argus.*.yaml"))
RANKS, SLOW, MOVED = 4, 1, 0
STEPS = 4
"""A second."""
SCRAPE_S = 15
MOVES_S, ENDS_S, LASTING_S = 900, 1800, 2400
"""When all processes begin anew, one on the other host; when all say goodbye; when nobody looks any more."""


@dataclass
class Exporter:
    """What is known of ranks; each counts from the moment at which it came here, until it leaves."""

    came: dict[int, float] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)

    def samples(self, now: float) -> Iterator[tuple[str, dict[str, str], float]]:
        for rank, came in self.came.items():
            steps = (self.left.get(rank, now) - came) * STEPS
            of_rank = {"rank": str(rank)}
            yield "argus_rank_up", of_rank, float(rank not in self.left)
            yield "argus_rank_number", of_rank, float(rank)
            if rank not in self.left:
                yield "argus_rank_lead_number", of_rank, float(rank)
            yield "argus_group_expected_ranks", of_rank | {"group": "dp"}, float(RANKS)
            name = "argus_iteration_duration_seconds"
            yield f"{name}_count", of_rank, steps
            yield f"{name}_sum", of_rank, steps / STEPS
            yield f"{name}_squared_total", of_rank, steps / STEPS**2
            yield "argus_iteration_window_min_seconds", of_rank, 1 / STEPS
            yield "argus_iteration_window_max_seconds", of_rank, 1 / STEPS
            yield "argus_iteration_last_timestamp_seconds", of_rank, self._last(rank, now)
            forward = 0.16 if rank == SLOW else 0.08
            for phase, kind, seconds in (
                ("forward", "compute", forward),
                ("all_reduce", "comm", 0.2 - forward),
            ):
                what = of_rank | {"phase": phase, "kind": kind}
                where = what | {"group": "dp", "source": "event"}
                yield "argus_phase_info", what | {"waits": "none"}, 1.0
                yield "argus_phase_duration_seconds_count", where, steps
                yield "argus_phase_duration_seconds_sum", where, steps * seconds
                yield "argus_phase_window_max_seconds", what | {"group": "dp"}, seconds
            yield "argus_gc_pause_seconds_sum", of_rank | {"generation": "2"}, 0.001 * steps
            yield "argus_gc_pause_seconds_count", of_rank | {"generation": "2"}, steps
        if self.came:
            last = max(self._last(rank, now) for rank in self.came)
            yield "argus_job_last_iteration_timestamp_seconds", {}, last
            yield "argus_job_usual_iteration_seconds", {}, 1 / STEPS
            yield "argus_job_world_size", {}, RANKS

    def _last(self, rank: int, now: float) -> float:
        return BEGIN_MS / 1000 + self.left.get(rank, now)


def scraped(storage: Storage) -> None:
    """Both exporters, from the begin of the job until long after its end; who is gone ends as a series."""
    exporters = {"host:9877": Exporter(dict.fromkeys(range(RANKS), 0.0)), "host-b:9877": Exporter()}
    first, second = exporters.values()
    columns: dict[Labels, list[tuple[int, float]]] = {}
    for now in range(SCRAPE_S, LASTING_S, SCRAPE_S):
        if now == MOVES_S:
            first.left = {MOVED: now}
            first.came |= dict.fromkeys((rank for rank in range(RANKS) if rank != MOVED), now)
            second.came = {MOVED: now}
        if now == MOVES_S + FORGOTTEN_S:
            first.came.pop(MOVED)
        if now == ENDS_S:
            first.came, second.came = {}, {}
        here: set[Labels] = set()
        for instance, exporter in exporters.items():
            for name, labels, value in exporter.samples(now):
                series = _series(name, {**labels, "training_job": "a", "instance": instance})
                columns.setdefault(series, []).append((now, value))
                here.add(series)
        for series, column in columns.items():
            if series not in here and column[-1][0] == now - SCRAPE_S:
                column.append((now, STALE))
    storage.write(
        {
            series: (
                np.array([BEGIN_MS + 1000 * now for now, _ in column]),
                np.array([value for _, value in column]),
            )
            for series, column in columns.items()
        }
    )


def _series(name: str, labels: Mapping[str, str]) -> Labels:
    return tuple(sorted({**labels, "__name__": name}.items()))


def test_a_rank_on_two_instances_breaks_no_rule_and_a_finished_job_pages_nobody(tmp_path: Path) -> None:
    """The slow rank alone is paged, through the move too; and nobody is, once all said goodbye."""
    with Storage(tmp_path) as storage:
        scraped(storage)
        evaluator = Evaluator(storage, read_rules(RULES))
        evaluator.advance(BEGIN_MS, BEGIN_MS + LASTING_S * 1000)
        assert evaluator.failures == {}

        def ask(query: str, at_s: int) -> list[float]:
            return list(storage.at(query, BEGIN_MS + at_s * 1000).values())

        moved = f'count by (training_job) (argus_rank_up{{rank="{MOVED}"}})'
        assert ask(moved, MOVES_S + FORGOTTEN_S // 2) == [2.0], "the rank lives on two instances"
        assert ask(moved, ENDS_S - SCRAPE_S) == [1.0]
        assert ask('{__name__=~"rank:argus_(verdict|phase).*"}', LASTING_S - 1) == []
    firing = [(dict(spell.labels), spell) for spell in evaluator.spells() if spell.state == "firing"]
    ours = "ArgusL3WorkerBehind", "ArgusRulesBehind"
    assert {
        (labels["alertname"], labels["rank"]) for labels, _ in firing if labels["alertname"] not in ours
    } == {("ArgusStragglerRank", str(SLOW))}
    ((begin_s, end_s),) = (
        ((spell.begin_ms - BEGIN_MS) / 1000, (spell.end_ms - BEGIN_MS) / 1000)
        for labels, spell in firing
        if labels["severity"] == "page"
    )
    assert begin_s < MOVES_S
    assert ENDS_S <= end_s < ENDS_S + 60
