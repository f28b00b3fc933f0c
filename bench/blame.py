"""Is blame right? Simulated timelines of 8 ranks with a known cause go through real files into the analysis.

`python -m bench.blame --seeds 200` plays 200 seeded cases over all kinds, a healthy one in each round. It
prints a table and ends with one JSON line. A case is right where cause, ranks and group are exactly the true
ones; a healthy one where nothing is found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from argus_simulator.score.intervals import wilson
from argus_simulator.traces.cases import KINDS, Case, TooWeak, make
from argus_traces.blame import Blame, blame
from argus_traces.reader import read


@dataclass(frozen=True)
class Outcome:
    """One case and what was said about it."""

    kind: str
    seed: int
    right: bool
    cost_ratio: float
    said: str
    true: str
    cpu_seconds: float


def judge(case: Case) -> Outcome:
    """Analyse a case and hold the answer against the truth."""
    begun = time.process_time()
    answer = blame([read([data], f"{case.kind}/{case.seed}/{rank}") for rank, data in enumerate(case.files)])
    seconds = time.process_time() - begun
    true = f"{'|'.join(case.truth.causes)} {sorted(case.truth.ranks)} {case.truth.group}".strip()
    return Outcome(case.kind, case.seed, _right(case, answer), case.cost_ratio, _said(answer), true, seconds)


def _right(case: Case, answer: Blame) -> bool:
    if case.truth.healthy:
        return not answer.findings
    if not answer.findings:
        return False
    first, truth = answer.findings[0], case.truth
    return (
        first.cause in truth.causes
        and frozenset(first.ranks) == truth.ranks
        and (not truth.group or first.group == truth.group)
    )


def _said(answer: Blame) -> str:
    return (
        "; ".join(
            f"{one.cause} {sorted(one.ranks)} {one.group} {one.cost_ratio:.1%}" for one in answer.findings[:3]
        )
        or "nothing"
    )


def play(seeds: int, first: int, kinds: Sequence[str], verbose: bool = False) -> tuple[list[Outcome], int]:
    """`seeds` cases, kinds in turn; (outcomes, faults too weak to be scored)."""
    outcomes, weak = [], 0
    for number in range(seeds):
        try:
            outcome = judge(make(kinds[number % len(kinds)], first + number))
        except TooWeak:
            weak += 1
            continue
        outcomes.append(outcome)
        if verbose or not outcome.right:
            mark = "right" if outcome.right else "WRONG"
            print(
                f"{mark} {outcome.kind} seed {outcome.seed} (cost {outcome.cost_ratio:.0%}): "
                f"true {outcome.true or 'nothing'} | said {outcome.said}"
            )
    return outcomes, weak


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 if the goals hold: 95 % of the faults right, no healthy case accused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of cases (default: 200)")
    parser.add_argument("--first", type=int, default=1_000_000, help="first seed (default: 1000000)")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="only this kind (repeatable)")
    parser.add_argument("--verbose", action="store_true", help="print every case, not only the wrong ones")
    options = parser.parse_args(arguments)
    outcomes, weak = play(options.seeds, options.first, options.kind or list(KINDS), options.verbose)
    table: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        table[outcome.kind].append(outcome)
    print(f"\n{'kind':<14} {'right':>9} {'cost':>7} {'CPU s':>6}")
    for kind, of_kind in table.items():
        right = sum(one.right for one in of_kind)
        cost = sorted(one.cost_ratio for one in of_kind)[len(of_kind) // 2]
        cpu = sum(one.cpu_seconds for one in of_kind) / len(of_kind)
        print(f"{kind:<14} {right:>4}/{len(of_kind):<4} {cost:>7.0%} {cpu:>6.2f}")
    faulty = [one for one in outcomes if one.kind != "healthy"]
    healthy = [one for one in outcomes if one.kind == "healthy"]
    right = sum(one.right for one in faulty)
    accused = sum(not one.right for one in healthy)
    low, high = wilson(right, len(faulty))
    result = {
        "bench": "blame",
        "cases": len(outcomes),
        "first_seed": options.first,
        "right_ratio": round(right / max(len(faulty), 1), 4),
        "right_wilson_95": [round(low, 4), round(high, 4)],
        "healthy": len(healthy),
        "healthy_accused": accused,
        "too_weak": weak,
        "cpu_seconds_per_case": round(sum(one.cpu_seconds for one in outcomes) / max(len(outcomes), 1), 3),
    }
    print(json.dumps(result))
    return 0 if right >= 0.95 * len(faulty) and not accused else 1


if __name__ == "__main__":
    sys.exit(main())
