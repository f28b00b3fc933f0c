"""A score for people (a table and totals) and for programs (one line of JSON)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from argus_simulator.contract import weakest_source
from argus_simulator.score.baselines import NAMES
from argus_simulator.score.results import Result
from argus_simulator.score.totals import COSTLY, Totals, accusations, f1, totals
from argus_simulator.score.totals import links as links_of

_HEAD = ("row", "variant", "seed", "effect", "found", "steps", "P", "R", "cause", "team", "victims", "false")


def table(results: Sequence[Result]) -> Iterator[str]:
    """One line a scenario, by class."""
    for kind, title in (
        ("high", "High severity"),
        ("low", "Low severity (no gate)"),
        ("sub-threshold", "Effect on the step below 1 % (no gate)"),
        ("hidden", "No signal yet (no gate)"),
        ("control", "Controls"),
    ):
        of_kind = sorted((r for r in results if r.kind == kind), key=lambda r: (r.row, r.scenario, r.seed))
        if of_kind:
            yield f"\n{title}"
            yield from _aligned([_HEAD, *(_cells(result) for result in of_kind)])


def summary(results: Sequence[Result]) -> Iterator[str]:
    """Totals with their 95 % intervals."""
    high = [result for result in results if result.kind == "high"]
    yield ""
    yield "High severity rows, mean [95 % interval, Wilson]"
    yield from _totals(totals(high))
    false = accusations(results)
    yield (
        f"  false accusations    {false.incidents} incidents ({false.alerts} alerts) in {false.hours:.2f} "
        f"healthy job-hours: below {false.per_hour_bound:.2g} an hour (95 %, Poisson)"
    )
    links = links_of(results)
    if links.right.count:
        yield (
            f"  links                {links.right} by NCCL's steps, all but sub-threshold rows: from and to; "
            f"{links.wrong} rows with a wrong one"
        )
    busy = [result for result in results if not result.kept_up]
    if busy:
        names = ", ".join(
            f"{late.scenario} ({late.lag_seconds:.1f} s late, {late.missed_scrapes:.0%} of scrapes and "
            f"{late.missed_evaluations:.0%} of evaluations missed)"
            for late in busy
        )
        yield f"  the machine was too busy for: {names}"


def _totals(of: Totals) -> Iterator[str]:
    yield f"  detection            {of.detection}"
    yield f"  rank precision       {of.precision}"
    yield f"  rank recall          {of.set_recall}; a set of n counts 1/n"
    sizes = of.set_sizes
    said = f"{statistics.mean(sizes):.1f} ranks, {max(sizes)} at most" if sizes else "-"
    yield f"  named alone          {of.named_alone}; smallest set with a culprit, mean {said}"
    yield f"  cause                {of.cause}; where detected {of.cause_where_detected}"
    yield f"  team                 {of.team}; where detected {of.team_where_detected}"
    yield f"  scenarios with a victim accused {of.victims}"
    first = " and ".join("-" if seconds is None else f"{seconds:.0f} s" for seconds in of.first_right_s)
    yield f"  first right name     median and 90th percentile {first}"
    error = "-" if of.cost_error_p50 is None else f"{of.cost_error_p50:.3f}"
    yield f"  cost                 error {error} of the wall time (median row); within 0.05: {of.cost_within}"
    p50 = "-" if of.steps_p50 is None else f"{of.steps_p50:g}"
    yield f"  steps to detection   median {p50}, {of.missed} of {of.rows} missed"


def line(result: Result) -> str:
    """One scenario, as soon as it is judged."""
    judged = result.judgement
    if judged.detected is None:
        return f"{result.scenario}: {'; '.join(judged.accusations) or 'nobody accused'}"
    found = f"found after {judged.steps} steps" if judged.detected else "NOT found"
    said = f" by {'; '.join(judged.said)}" if judged.said else ""
    early = f"; BEFORE the fault: {'; '.join(judged.accusations)}" if judged.accusations else ""
    return f"{result.scenario}: {found}{said}{early}"


def content(
    product: str,
    signals: str,
    machine: str,
    results: Sequence[Result],
    baselines: dict[str, dict[str, float | None]],
    *,
    held_out: bool = False,
) -> dict[str, Any]:
    """The last line, for JSON; of held-out seeds totals alone. `product`: what was scored."""
    false = accusations(results)
    return {
        **_figures(results),
        "costly": _costly(results),
        "shapes": {shape: _of_shape(of) for shape, of in _by_shape(results).items()},
        "false_accusations_per_hour_below": round(false.per_hour_bound, 4) if false.hours else None,
        "source": weakest_source(signals),
        "product": product,
        "signals": signals,
        "seeds": len({result.seed for result in results}),
        "held_out": held_out,
        "machine": machine,
        "baselines": baselines,
        "rows": [] if held_out else [result.as_dict() for result in results],
    }


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    """Over the high-severity rows; false accusations over all."""
    high = totals(result for result in results if result.kind == "high")
    false, links = accusations(results), links_of(results)
    return {
        "detection": high.detection.value,
        "precision": high.precision.value,
        "recall": high.set_recall.value,
        "named_alone": high.named_alone.value,
        "set_size_mean": statistics.mean(high.set_sizes) if high.set_sizes else None,
        "set_size_max": max(high.set_sizes, default=None),
        "victims": high.victims.value,
        "cause": high.cause.value,
        "team": high.team.value,
        "false_accusations": false.incidents,
        "healthy_job_hours": round(false.hours, 4),
        "steps_to_detection_p50": high.steps_p50,
        "first_right_name_p50_s": high.first_right_s[0],
        "first_right_name_p90_s": high.first_right_s[1],
        "cost_error_p50": high.cost_error_p50,
        "cost_within": high.cost_within.value,
        "f1": high.f1,
        "links_right": links.right.value,
        "links_wrong": links.wrong,
        "scenarios": high.rows,
    }


def _costly(results: Iterable[Result]) -> dict[str, Any]:
    """Over the high-severity rows whose fault costs as much as a page needs; a hang costs all."""
    of = totals(
        row for row in results if row.kind == "high" and (row.true_cost is None or row.true_cost >= COSTLY)
    )
    return {
        "detection": of.detection.value,
        "precision": of.precision.value,
        "recall": of.set_recall.value,
        "named_alone": of.named_alone.value,
        "cause": of.cause.value,
        "team": of.team.value,
        "cost_within": of.cost_within.value,
        "scenarios": of.rows,
    }


def _by_shape(results: Iterable[Result]) -> dict[str, list[Result]]:
    shapes: dict[str, list[Result]] = {}
    for result in results:
        shapes.setdefault(result.shape, []).append(result)
    return dict(sorted(shapes.items()))


def _of_shape(results: Sequence[Result]) -> dict[str, Any]:
    """The same figures, and beside their F1 that of each simple rule."""
    named = [result for result in results if result.kind == "high" and result.expected]
    simple = {name: f1((row.baselines.get(name, ()), row.expected) for row in named) for name in NAMES}
    best = max(NAMES, key=lambda name: simple[name] or 0.0)
    return {
        **_figures(results),
        "rows": len(named),
        "best_simple": best,
        "best_simple_f1": simple[best],
        "simple_f1": simple,
    }


def _cells(result: Result) -> tuple[str, ...]:
    judged = result.judgement
    return (
        result.row,
        result.scenario.partition(" ")[2] or "-",
        str(result.seed),
        "-" if result.effect is None else f"{result.effect:+.1%}",
        _yes(judged.detected),
        "-" if judged.steps is None else str(judged.steps),
        _number(judged.precision),
        _number(judged.recall),
        _marked(judged.causes, judged.cause_right),
        _marked(judged.teams, judged.team_right),
        ",".join(map(str, judged.victims)) or "-",
        "; ".join(judged.accusations) or "-",
    )


def _marked(said: Iterable[str], right: bool | None) -> str:
    if right is None:
        return "-"
    return ("ok " if right else "NO ") + (",".join(said) or "unknown")


def _yes(value: bool | None) -> str:
    return {None: "-", True: "yes", False: "NO"}[value]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def _aligned(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
