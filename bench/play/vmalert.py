"""The rules on a live vmalert beside Prometheus: `python -m bench.play.vmalert` (as long as `--seconds`).

Five jobs are played in real time by real exporters to a real Prometheus, which evaluates the rules and writes
what it scraped, and nothing else, on to a real VictoriaMetrics; vmalert evaluates the same files there. Pages
and tickets are compared. Prints them, and ends in one line of JSON:

    told            pages and tickets of Prometheus: alerts by their labels, each once
    missed, added   those that vmalert had not, and those that it alone had
    withdrawn       those that vmalert resolved while Prometheus still told them
    later_s         by how much vmalert was later at most
    allowed_s       intervals of the groups along the longest way from what is scraped to an alert
    lag_s           by how much the live jobs were late at worst
    errors          of rules in Prometheus, at their last evaluation
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.lint.graph import Graph, rules_of

from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.rules import components, read_rules
from argus_simulator.lab import Scenario
from argus_simulator.score.scene import SHIPPED, Scene
from argus_simulator.score.suites import playables
from argus_simulator.stack.signals import StopSignals
from bench.play.live import live

_SCENARIOS: Final = (
    "healthy",
    "gpu-throttle mid",
    "gpu-throttle low",
    "hang-noncomm",
    "nvlink-degraded high",
)
"""A healthy job, a rank 1.5 and one 1.1 times slower, a hang, a slow link."""
_SEEN_MS: Final = 60_000
"""An alert's last sample lies as far before the end as its group is evaluated, and is written later."""
_PACE: Final = dataclasses.replace(SHIPPED, step_s=2.0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.play.vmalert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rules", type=Path, default=Path("rules"), help="folder of rule files")
    parser.add_argument("--scenarios", nargs="+", default=_SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long they play (default: 3600)")
    options = parser.parse_args(argv)
    StopSignals().raise_them()  # so that no server is left behind
    jobs: dict[str, Scenario] = {}
    for text in options.scenarios:
        scene = Scene(dataclasses.replace(playables(text, [options.seed])[0], signals="hooks"), _PACE)
        jobs[f"job-{len(jobs)}"] = scene.scenario
        print(f"job-{len(jobs) - 1}: {scene.name}, {scene.ranks} ranks", flush=True)
    lived = live(jobs, sorted(options.rules.glob("*.yaml")), options.seconds, vmalert=True)
    begin_ms = min(lived.begin_ns.values()) // 1_000_000
    ours, theirs = _told(lived.spells), _told(lived.of_vmalert)
    later_ms = withdrawn = 0
    for labels in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(labels), theirs.get(labels)
        words = " ".join(f"{key}={value}" for key, value in labels if value)
        print(f"{words}: Prometheus {_times(here, begin_ms)}; vmalert {_times(there, begin_ms)}")
        if here and there:
            later_ms = max(later_ms, there[0].begin_ms - here[0].begin_ms)
            withdrawn += sum(
                any(one.begin_ms < spell.end_ms < one.end_ms - _SEEN_MS for one in here) for spell in there
            )
    print(
        json.dumps(
            {
                "told": len(ours),
                "missed": len(ours.keys() - theirs.keys()),
                "added": len(theirs.keys() - ours.keys()),
                "withdrawn": withdrawn,
                "later_s": later_ms / 1000,
                "allowed_s": _longest_way_s(options.rules),
                "lag_s": round(lived.lag_s, 3),
                "errors": lived.errors,
            }
        )
    )
    return 0


def _told(spells: Sequence[Spell]) -> dict[tuple[tuple[str, str], ...], list[Spell]]:
    """Pages and tickets that fired, by their labels."""
    told: dict[tuple[tuple[str, str], ...], list[Spell]] = {}
    for spell in spells:
        if spell.state == "firing" and dict(spell.labels).get("severity") in ("page", "ticket"):
            told.setdefault(tuple(spell.labels), []).append(spell)
    return {labels: sorted(found, key=lambda one: one.begin_ms) for labels, found in told.items()}


def _times(spells: Sequence[Spell] | None, begin_ms: int) -> str:
    if not spells:
        return "never"
    at = [
        f"{(one.begin_ms - begin_ms) / 1000:.0f} to {(one.end_ms - begin_ms) / 1000:.0f} s" for one in spells
    ]
    return ", ".join(at)


def _longest_way_s(folder: Path) -> float:
    """Where every rule sees what others recorded an evaluation late, a finding is late by so much at most."""
    intervals = {rule.group.name: rule.group.interval_ms for rule in read_rules(folder.glob("*.yaml"))}
    graph = Graph(rules_of(str(folder)))
    reads, late_ms = graph.stands_on, [0] * len(graph.rules)
    for members in components(reads):  # those that others stand on come first
        below = max((late_ms[other] for member in members for other in reads[member] - members), default=0)
        own = sum(intervals[graph.rules[member].group] for member in members)
        for member in members:
            late_ms[member] = below + own
    return max(late_ms) / 1000


if __name__ == "__main__":
    sys.exit(main())
