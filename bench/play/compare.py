"""The fast play beside the real stack: `python -m bench.play.compare` (as long as `--seconds`, and a minute).

The same jobs are played in real time by real exporters to a real Prometheus and an L3 worker, then in virtual
time, scraped, judged and evaluated at the same moments. Alerts are compared from the moment they are pending:
the same labels, begin and end within one evaluation of their group. Ends in one line of JSON:

    equal_to_live   whether nothing differs
    alerts          spells of alerts, pending or firing, that the real stack had
    worst_s         by how much one of them begins or ends elsewhere at most
    shifted         how many do so by more than an evaluation
    only_live, only_fast  have no counterpart
    lag_s           by how much the live jobs were late at worst: late jobs are other jobs
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from argus_simulator.fast_play import worker
from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.history import record
from argus_simulator.fast_play.rules import Rule, read_rules
from argus_simulator.fast_play.storage import Storage
from argus_simulator.lab import Scenario
from argus_simulator.score.scene import SHIPPED, Scene
from argus_simulator.score.suites import playables
from argus_simulator.stack.signals import StopSignals
from bench.play.live import Lived, live

SCENARIOS: Final = ("healthy", "gpu-throttle mid", "dataload-stall", "hang-noncomm")
"""A healthy job, a rank 1.5 times slower, a slow loader, a hang."""
SECONDS: Final = 660.0
"""How long they play."""
_PACE: Final = dataclasses.replace(SHIPPED, step_s=1.0)
"""Faults begin after 200 steps, and nobody waits a quarter of an hour for that."""
_SLACK: Final = 1.1
"""Evaluations: one, and what moments read from the real stack are off by."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.play.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rules", type=Path, default=Path("rules"), help="folder of rule files")
    parser.add_argument("--scenarios", nargs="+", default=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals", default="hooks")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long they play (default: 660)")
    options = parser.parse_args(argv)
    StopSignals().raise_them()  # so that no server is left behind
    found = compare(
        sorted(options.rules.glob("*.yaml")),
        seed=options.seed,
        scenarios=options.scenarios,
        signals=options.signals,
        seconds=options.seconds,
    )
    print(json.dumps(found))
    return 0


def compare(
    files: Sequence[Path],
    *,
    seed: int,
    scenarios: Sequence[str] = SCENARIOS,
    signals: str = "hooks",
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Play jobs live for so long, then fast; what the last line has."""
    jobs: dict[str, Scenario] = {}
    for text in scenarios:
        playable = dataclasses.replace(playables(text, [seed])[0], signals=signals)
        scene = Scene(playable, _PACE)
        jobs[f"job-{len(jobs)}"] = scene.scenario
        say(f"job-{len(jobs) - 1}: {scene.name}, {scene.ranks} ranks")
    lived = live(jobs, files, seconds, worker=True)
    rules = read_rules(files, offset_ms=lambda file, name, _: lived.group_offsets_ms[file.name, name])
    return _report(lived, rules, _play_again(jobs, rules, lived, say), say)


def _play_again(
    jobs: Mapping[str, Scenario], rules: Sequence[Rule], lived: Lived, say: Callable[[str], None]
) -> list[Spell]:
    """Alerts of the same jobs in virtual time, at the moments at which the real stack did what it did."""
    with tempfile.TemporaryDirectory(prefix="argus-play-") as folder, Storage(Path(folder)) as storage:
        for job, scenario in jobs.items():
            begin_ns = lived.begin_ns[job]
            seconds = lived.end_ms / 1000 - begin_ns / 1e9 + _PACE.step_s
            history = record(scenario, job, begin_ns, seconds, scrape_offsets_ms=lived.scrape_offsets_ms)
            storage.write(history.series)
        begin_ms = min(lived.begin_ns.values()) // 1_000_000
        for problem in worker.judge(storage.url, begin_ms, lived.end_ms):
            say(f"worker: {problem}")
        evaluator = Evaluator(storage, rules)
        evaluator.advance(begin_ms, lived.end_ms)
        for rule, why in evaluator.failures.items():
            say(f"rule failed: {rule}: {why}")
        return evaluator.spells()


def _report(
    lived: Lived, rules: Sequence[Rule], fast: Sequence[Spell], say: Callable[[str], None]
) -> dict[str, Any]:
    intervals = {rule.alert: rule.group.interval_ms for rule in rules if rule.alert}
    begin_ms = min(lived.begin_ns.values()) // 1_000_000
    for name, error in lived.errors.items():
        say(f"rule failed live: {name}: {error}")

    def line(spell: Spell) -> str:
        labels = dict(spell.labels)
        name = labels.pop("alertname")
        words = " ".join(f"{key}={value}" for key, value in labels.items())
        times = f"{(spell.begin_ms - begin_ms) / 1000:.1f} to {(spell.end_ms - begin_ms) / 1000:.1f} s"
        return f"{name} {spell.state} {times} {words}"

    left = list(fast)
    shifted = only_live = worst_ms = 0
    for spell in lived.spells:
        alike = [one for one in left if (one.labels, one.state) == (spell.labels, spell.state)]
        if not alike:
            only_live += 1
            say(f"only live: {line(spell)}")
            continue
        nearest = min(alike, key=lambda one: _distance_ms(one, spell))
        left.remove(nearest)
        worst_ms = max(worst_ms, _distance_ms(nearest, spell))
        if _distance_ms(nearest, spell) > _SLACK * intervals[dict(spell.labels)["alertname"]]:
            shifted += 1
            say(f"live: {line(spell)}\nfast: {line(nearest)}")
        else:
            say(f"both: {line(spell)}")
    for spell in left:
        say(f"only fast: {line(spell)}")
    return {
        "equal_to_live": not (shifted or only_live or left),
        "alerts": len(lived.spells),
        "worst_s": worst_ms / 1000,
        "shifted": shifted,
        "only_live": only_live,
        "only_fast": len(left),
        "lag_s": round(lived.lag_s, 3),
    }


def _distance_ms(one: Spell, other: Spell) -> int:
    return max(abs(one.begin_ms - other.begin_ms), abs(one.end_ms - other.end_ms))


if __name__ == "__main__":
    sys.exit(main())
