"""Random hangs of every kind, told by the shipped rules in virtual time: `python -m bench.hangs`.

    python -m bench.hangs [--cases N] [--seed N] [--rules FOLDER] [--processes N] [--show KIND]

Each case is a job with a layout, hooks and a kind of hang of its own (`bench/hangs/cases.py`): where each
rank is then, what its page says of that, and what the flight recorder, NCCL's plugin (of each job on NCCL)
and its RAS would add, is worked out by who waits for whom; the exporter's own collectors publish it, and a
Prometheus evaluates the rule files as they are shipped. Nothing of it was recorded from a GPU. Prints the
kinds, and ends in one line of JSON:

    source          "fake": no signal was recorded; their forms are "documented" ones
    named_right     share of the cases in which a page names who is to blame: a rank, the host of a GPU that
                    stands among others, between which two ranks something is lost; nobody where nobody is
    innocents       ranks that any message of any alert named wrongly, in all cases
    seconds_p95     from stallMinSeconds to the page, of what has proof (a rank that has not called, called
                    something else, is dead or stopped, does not move or does not get through by the steps of
                    NCCL); of 95 % of those cases
    unproved_s_p95  the same of the other cases
    pauses_told     pauses shorter than stallMinSeconds of which anything was told
    rules_failed    names of rules whose evaluation failed at some moment
    kinds           the first three by kind, and how many cases
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from argus_simulator.fast_play.players import players, until_stopped
from bench.hangs.cases import Case, cases
from bench.hangs.judge import Judgement, judge_together

_RULES: Final = Path(__file__).resolve().parents[2] / "rules"
_TOGETHER: Final = 25
"""Cases that share a Prometheus."""
_UNPROVED: Final = frozenset(
    {
        "network, gloo",
        "network, inside a host",
        "gpu, one host",
        "diverged, halves",
        "diverged, calls unknown",
        "most",
        "gone",
    }
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.hangs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", type=Path, default=_RULES, help="folder of rule files (default: rules)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--show", default="", metavar="KIND", help="tell every case of this kind, not only what went wrong"
    )
    options = parser.parse_args(argv)
    every = list(cases(options.cases, options.seed))
    batches = [every[at : at + _TOGETHER] for at in range(0, len(every), _TOGETHER)]
    began = time.monotonic()
    with players(options.processes) as pool:
        judge = functools.partial(judge_together, rules=options.rules)
        running = [pool.submit(until_stopped, judge, batch) for batch in batches]
        results = [one.result() for one in running]
    judged = [one for of, _ in results for one in of]
    failures = {name: why for _, failed in results for name, why in failed.items()}
    for one, case in zip(judged, every, strict=True):
        if not one.right or one.innocents or one.variant == options.show:
            print(_line(one, case), flush=True)
    for name, why in failures.items():
        print(f"rule failed: {name}: {why}")
    found = _summary(judged) | {"rules_failed": sorted(failures)}
    print(json.dumps(found | {"machine_s": round(time.monotonic() - began, 1)}))
    return 1 if failures else 0


def _line(one: Judgement, case: Case) -> str:
    how = [
        word
        for word, there in (
            ("blocking", case.blocking),
            ("timing", case.timing),
            ("recorder", case.recorder),
            ("ras", case.ras),
            ("failed", case.failed),
            (f"gone {case.gone}", case.gone is not None),
            (f"missed {case.missed}", case.missed is not None),
        )
        if there
    ]
    topology = case.topology
    layout = f"dp{topology.dp} tp{topology.tp} pp{topology.pp} ep{topology.ep}"
    wrong = ", ".join(f"{kind} rank {each.rank} at {each.node}" for kind, each in case.wrong)
    told = "; ".join(one.named) or "nothing"
    return (
        f"{'right' if one.right else 'WRONG'} {one.name} {one.variant} ({layout} {' '.join(how)}): {wrong} "
        f"{case.group} -> {told}; innocents {sorted(one.innocents)}"
    )


def _summary(judged: Sequence[Judgement]) -> dict[str, Any]:
    hangs = [one for one in judged if one.variant != "pause"]
    kinds = {
        kind: _of([one for one in judged if one.variant == kind])
        for kind in sorted({one.variant for one in judged})
    }
    return {
        "source": "fake, of documented forms",
        "named_right": round(sum(one.right for one in hangs) / len(hangs), 3),
        "innocents": sum(len(one.innocents) for one in judged),
        "seconds_p95": _p95([one for one in hangs if one.variant not in _UNPROVED]),
        "unproved_s_p95": _p95([one for one in hangs if one.variant in _UNPROVED]),
        "pauses_told": sum(not one.right for one in judged if one.variant == "pause"),
        "kinds": kinds,
    }


def _of(judged: Sequence[Judgement]) -> dict[str, Any]:
    return {
        "cases": len(judged),
        "right": sum(one.right for one in judged),
        "innocents": sum(len(one.innocents) for one in judged),
        "seconds_p95": _p95(judged),
    }


def _p95(judged: Sequence[Judgement]) -> float | None:
    """None where no page came, in however few of them."""
    seconds = [np.inf if one.page_s is None else one.page_s for one in judged]
    found = float(np.quantile(seconds, 0.95, method="higher")) if seconds else np.inf
    return round(found, 1) if np.isfinite(found) else None


if __name__ == "__main__":
    sys.exit(main())
