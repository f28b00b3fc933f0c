"""A diagnosis as text, as JSON and as one HTML page with plots. No I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import quote

from argus_core.causes import HANGS
from argus_l3_worker.reports.diagnosis import Diagnosis
from argus_l3_worker.reports.findings import Excuse, GroupFinding, Points, Suspect
from argus_l3_worker.reports.subjects import Subject, listed
from argus_l3_worker.roles import natural

# In escaped text: without quotes.
_URL: Final = re.compile(r"https?://[^\s&<>]+(?:&amp;[^\s&<>]+)*")
_MOST_ROWS: Final = 20
_MOST_TRACES: Final = 8
_MOST_SUBJECTS: Final = 10
_MOST_EVIDENCE: Final = 6
_MOST_PHASES: Final = 4
# What to read, by the cause of the weightiest culprit.
_RUNBOOK_OF_CAUSE: Final = {
    "gpu-compute": "ArgusStragglerRank",
    "host-cpu": "ArgusStragglerRank",
    "host-gc": "ArgusHostStall",
    "host-jit": "ArgusHostStall",
    "host-alloc": "ArgusHostStall",
    "data-input": "ArgusHostStall",
    "workload": "ArgusGroupImbalance",
    "collective-late": "ArgusCollectiveLateRank",
    "link-slow": "ArgusCollectiveSlowLink",
}
_OF_JOBS: Final = "ArgusIterationRegression"
# What the job as a whole loses has that page, but for this.
_RUNBOOK_OF_JOBS: Final = {
    "jitter": "ArgusIterationJitter",
    "work-uneven": "ArgusGroupImbalance",
    **dict.fromkeys(HANGS, "ArgusTrainingStalled"),
}
_OF_KERNELS: Final = "ArgusKernelDegraded"
_OF_GROUPS: Final = "ArgusKernelGroupShift"
_NOBODY: Final[Mapping[str, str]] = {
    "both": _OF_JOBS,
    "regression": _OF_JOBS,
    "jitter": "ArgusIterationJitter",
}
"""Where nobody is accused: by the class of the iterations."""


def runbook(found: Diagnosis) -> str:
    """Name of the runbook to begin with; empty where there is nothing to do."""
    for subject in found.subjects:
        if not subject.verdicts:
            return _OF_GROUPS
        first = subject.verdicts[0]
        if math.isfinite(first.shift):  # what the worker says of kernels, and rules do not
            return _OF_KERNELS
        return page_of(first.cause, first.level)
    return _NOBODY.get(found.iteration_class, "")


def page_of(cause: str, level: str) -> str:
    """Name of the runbook of what rules find."""
    if level == "L1":
        return _RUNBOOK_OF_JOBS.get(cause, _OF_JOBS)
    return _RUNBOOK_OF_CAUSE.get(cause, _OF_JOBS)


def as_text(found: Diagnosis, runbook_url: str, traces_url: str) -> str:
    """For people; at most some twenty rows of each kind."""
    return "\n".join(_lines(found, runbook_url, traces_url)) + "\n"


def _lines(found: Diagnosis, runbook_url: str, traces_url: str) -> Iterator[str]:
    yield f"job {found.training_job}, {_time(found.start)} to {_time(found.end)}, {found.ranks} ranks"
    yield _iteration_line(found)
    if found.alerts:
        yield f"alerts fired: {', '.join(found.alerts)}"
    yield ""
    accused = found.subjects
    if not accused:
        yield "no rank was accused"
    else:
        yield "accused, what holds now first, then the costliest:"
    for number, subject in enumerate(accused[:_MOST_SUBJECTS], 1):
        yield from _subject_lines(number, subject)
    if len(accused) > _MOST_SUBJECTS:
        yield f"{len(accused) - _MOST_SUBJECTS} more accused (--json lists all)"
    yield from _excuse_lines(found)
    yield from _victim_lines(found)
    for group in found.groups[:_MOST_ROWS]:
        if group.shift <= 0.0:
            who = f"{group.coordinate} {group.value} of {group.role}"
            yield f"faster than the others: {who}, {group.shift:+.1%}{_ended(group.active)}"
    for check in found.cross_checks[:_MOST_ROWS]:
        yield (
            f"cross-check {check.name}: rank {check.rank}, {check.about}: {check.value:.3g} "
            f"against {check.against:.3g}"
        )
    if found.hosts:
        yield ""
        for host, ranks in found.hosts.items():
            yield f"host {host}: accused rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"
    yield ""
    if found.costs.gpu_hours:
        of_causes = found.costs.by_cause.items()
        by_cause = ", ".join(f"{cause or 'unknown'} {hours:.2f}" for cause, hours in of_causes)
        yield f"cost: {found.costs.gpu_hours:.2f} GPU-hours of the whole job; by cause {by_cause}"
    else:
        yield "cost: none recorded (rank:argus_finding:lost_ratio)"
    for left_out in found.not_judged[:_MOST_ROWS]:
        yield f"not judged now: {left_out}"
    if name := runbook(found):
        yield f"what to do: {runbook_url % name}"
    for rank, key, suspect in found.traces[:_MOST_TRACES]:
        yield f"trace of rank {rank}{'' if suspect else ' (healthy peer)'}: {_link(traces_url, key)}"
    if keys := [key for _, key, _ in found.traces[:_MOST_TRACES]]:
        yield f"compare them: argus-l3-worker trace {' '.join(keys)}"


def as_json(found: Diagnosis, runbook_url: str, traces_url: str) -> str:
    """Everything; NaN is null."""
    content = asdict(found)
    content["hosts"] = dict(found.hosts)
    content["accused"] = [asdict(subject) for subject in found.subjects]
    for subject, of in zip(content["accused"], found.subjects, strict=True):
        subject |= {"lost": of.lost, "gpus": of.gpus, "gpu_seconds": of.gpu_seconds}
    content["runbook_url"] = runbook_url % runbook(found) if runbook(found) else None
    content["traces"] = [
        {"rank": rank, "key": key, "suspect": suspect, "url": _link(traces_url, key)}
        for rank, key, suspect in found.traces
    ]
    return json.dumps(_finite(content), indent=2)


def as_html(found: Diagnosis, runbook_url: str, traces_url: str) -> str:
    """One page that needs nothing else: the text, and iteration time and lost GPUs over time."""
    text = _URL.sub(r'<a href="\g<0>">\g<0></a>', escape(as_text(found, runbook_url, traces_url)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>ARGUS: {escape(found.training_job)}</title><style>body{{font:14px sans-serif;margin:1.5em}}"
        "pre{background:#f6f6f6;padding:1em;white-space:pre-wrap}svg{width:100%;max-width:60em}</style></head><body>"
        f"<h1>{escape(found.training_job)}</h1><pre>{text}</pre>"
        f"{_chart('Iteration, seconds', found.iteration, found)}"
        f"{_chart('GPUs lost', found.costs.gpus, found)}</body></html>\n"
    )


def _chart(title: str, points: Points, found: Diagnosis) -> str:
    """An SVG of one line, with a mark where the job became slower."""
    if len(points) < 2:
        return f"<h2>{escape(title)}</h2><p>Nothing recorded.</p>"
    width, height, left, bottom = 900.0, 220.0, 60.0, 25.0
    top = max(value for _, value in points) * 1.1 or 1.0

    def x(time: float) -> float:
        return left + (time - found.start) / (found.end - found.start) * (width - left)

    def y(value: float) -> float:
        return (height - bottom) * (1.0 - value / top) + 5.0

    line = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in points)
    marks = "".join(
        f'<text x="0" y="{y(value) + 4:.1f}" font-size="11">{value:.3g}</text>'
        f'<line x1="{left}" x2="{width}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        for value in (0.0, top / 2.0, top)
    )
    change = ""
    if found.slower is not None and not found.slower.before:
        at = x(found.slower.since)
        change = (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height - bottom}" stroke="#c30" '
            f'stroke-dasharray="4"/><text x="{at + 4:.1f}" y="14" font-size="11" fill="#c30">'
            f"slower, {_time(found.slower.since)}</text>"
        )
    return (
        f'<h2>{escape(title)}</h2><svg viewBox="0 0 {width:.0f} {height:.0f}" role="img">{marks}'
        f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="1.5"/>{change}'
        f'<text x="{left}" y="{height - 4:.0f}" font-size="11">{_time(found.start)}</text>'
        f'<text x="{width}" y="{height - 4:.0f}" font-size="11" text-anchor="end">{_time(found.end)}</text>'
        "</svg>"
    )


def _iteration_line(found: Diagnosis) -> str:
    line = f"iteration: {found.iteration_class}"
    if (slower := found.slower) is not None:
        line += f"; {slower.by:+.1%} since {_time(slower.since)}{' or before' if slower.before else ''}"
        line += _ended(slower.until is None, slower.until)
    return line


def _subject_lines(number: int, subject: Subject) -> Iterator[str]:
    who = subject.name
    if len(subject.ranks) > 1:
        who += f", ranks {listed(subject.ranks)}"
    if subject.hosts:
        who += f" on {listed(subject.hosts)}"
    causes = [
        f"{words} ({cause}, {team})" if words else f"{cause or 'unknown'} ({team or 'no team'})"
        for cause, team, words in subject.causes
    ]
    yield f"{number:2}. {who}: {', '.join(causes)}"
    if subject.gpu_seconds > 0.0:
        cost = f"{subject.lost:.1%} of the job's time, {subject.gpus:.1f} GPUs"
        yield (
            f"      costs {cost}; so far {subject.gpu_seconds / 3600.0:.2f} GPU-hours"
            if subject.active
            else f"      cost up to {cost}; in all {subject.gpu_seconds / 3600.0:.2f} GPU-hours"
        )
    lines = [*map(_verdict_line, subject.verdicts), *map(_shift_line, subject.shifts)]
    yield from (f"      {line}" for line in lines[:_MOST_EVIDENCE])
    if len(lines) > _MOST_EVIDENCE:
        yield f"      {len(lines) - _MOST_EVIDENCE} more"


def _verdict_line(one: Suspect) -> str:
    where = [
        name if math.isnan(share) or len(one.where) == 1 else f"{name} {share:.1%}"
        for name, share in one.where[:_MOST_PHASES]
    ]
    if len(one.where) > _MOST_PHASES:
        where.append(f"{len(one.where) - _MOST_PHASES} more")
    parts = [f"{one.level} {', '.join(where) or one.cause}"]
    if not math.isnan(one.shift):
        parts.append(f"{one.shift:+.1%}")
    elif not math.isnan(one.lost):
        parts.append(f"{one.lost:.1%} of the time")
    said = [f"{told.severity} since {_time(told.first)}{_ended(told.active, told.last)}" for told in one.told]
    since = f"since {_time(one.first)}{_ended(one.active, one.last)}"
    return "; ".join([f"{', '.join(parts)}, {since}", *said])


def _shift_line(group: GroupFinding) -> str:
    kernel = "all compute kernels" if group.kernel == "all" else group.kernel
    return f"L3 {kernel}, {group.shift:+.1%}{_ended(group.active)}"


def _excuse_lines(found: Diagnosis) -> Iterator[str]:
    """Who looked guilty and was not named, and what explains it: one line for all that one thing explains."""
    together: dict[tuple[bool, str], dict[str, list[Excuse]]] = {}  # by what explains it, and the cause
    for one in found.excused:
        own = "its own " if one.rank and one.rank == one.by_rank else ""
        of = f" of rank {one.by_rank}" if one.by_rank and not own else ""
        together.setdefault((one.active, f"{own}{one.by}{of}"), {}).setdefault(one.cause, []).append(one)
    for (active, by), causes in list(together.items())[:_MOST_ROWS]:
        who = "; ".join(f"{_named(of)} ({cause})" for cause, of in causes.items())
        yield f"{'excused' if active else 'excused before'} by {by}: {who}"


def _named(excused: Sequence[Excuse]) -> str:
    ranks = {one.rank for one in excused if one.rank}
    others = sorted({one.set or one.group or "the job" for one in excused if not one.rank})
    return ", ".join([*([_ranks(ranks)] if ranks else []), *others])


def _victim_lines(found: Diagnosis) -> Iterator[str]:
    """Who waits by what the kernels say, in one line: what they wait for stands above."""
    now = {one.rank: None for one in found.suspects if one.verdict == "victim" and one.rank and one.active}
    before = {one.rank for one in found.suspects if one.verdict == "victim" and one.rank} - now.keys()
    if now:
        yield f"waiting, by their kernels: {_ranks(now)}"
    if before:
        yield f"waited before: {_ranks(before)}"


def _ranks(ranks: Collection[str]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(sorted(ranks, key=natural))}"


def _ended(active: bool, last: float | None = None) -> str:
    return "" if active else f", ended {_time(last)}" if last is not None else ", ended"


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _link(traces_url: str, key: str) -> str:
    return f"{traces_url.rstrip('/')}/traces/{quote(key)}?ui=1" if traces_url else key


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
