"""Who is to blame for the time that was lost, or nobody.

Cost and proof are kept apart. The chain (path.py) says what a cause cost, but it runs through whatever was
slowest in each step, so that chance alone gives it an excess. Proof is taken from all that a rank or group
did, on the chain or not: computation that is longer over the steps than its variation explains, transfers of
a group that are longer than those of its peers, or one stop that is long beside the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from argus_traces.attribution import LINK_SLOW, UNDETERMINED, HostTimes, accounts
from argus_traces.clocks import Alignment, align
from argus_traces.errors import NotInTraces
from argus_traces.exchanges import match
from argus_traces.operations import COMPUTE, gather
from argus_traces.path import Link, Model, model, walk
from argus_traces.proof import Finding, Judge, Limits
from argus_traces.tables import RankTrace


@dataclass(frozen=True)
class Blame:
    """What the traces of several ranks say together.

    Attributes:
        findings: costliest first; the first is the root cause. Empty: nothing is proven and costs enough.
        links: the chain, latest first.
        seconds: what the chain spans.
        step_seconds: median time of a step; 0 where unknown.
        notes: what limits the answer.
    """

    findings: tuple[Finding, ...]
    links: tuple[Link, ...]
    model: Model
    alignment: Alignment
    seconds: float
    step_seconds: float
    notes: tuple[str, ...]


def blame(
    traces: Sequence[RankTrace],
    limits: Limits | None = None,
    *,
    rank: int | None = None,
    step: int | None = None,
) -> Blame:
    """Find what cost the time of these ranks' common window.

    Args:
        rank, step: ask why this rank's last operation, or that of this step, ended when it did; default: the
            last of all.
    """
    limits = limits or Limits()
    fleet = gather(traces)
    exchanges = match(fleet)
    operations, alignment = align(fleet, exchanges)
    of = model(fleet, operations, exchanges)
    links = walk(of, _symptom(of, rank, step))
    span = float(links[0].end - links[-1].begin) if links else 0.0
    usual_step = _usual_step(of)
    judge = Judge(of, limits, span, usual_step)
    found = accounts(of, links, HostTimes(of, alignment))
    findings = _together([finding for one in found if (finding := judge.finding(one)) is not None])
    unseen = {position: why for position, one in enumerate(findings) if (why := _unseen(of, one))}
    return Blame(
        tuple(one for position, one in enumerate(findings) if position not in unseen),
        tuple(links),
        of,
        alignment,
        span / 1e9,
        usual_step / 1e9,
        (*_notes(of, alignment), *unseen.values()),
    )


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Ranks that are slow for one reason are one finding, whose cost is what they cost together."""
    result: list[Finding] = []
    for finding in findings:
        for position, known in enumerate(result):
            if (finding.cause, finding.group) == (known.cause, known.group) and set(finding.ranks) <= set(
                known.ranks
            ):
                result[position] = replace(
                    known,
                    cost_seconds=known.cost_seconds + finding.cost_seconds,
                    cost_ratio=known.cost_ratio + finding.cost_ratio,
                    links=(*known.links, *finding.links),
                )
                break
        else:
            result.append(finding)
    return result


def _unseen(of: Model, finding: Finding) -> str:
    """Why it may be the doing of ranks without a trace, which is then said in its place; else empty."""
    ranks = ", ".join(map(str, finding.ranks))
    if finding.cause == UNDETERMINED and of.exchanges.unmatched:
        return f"rank {ranks} waited, maybe for communications that have no partner among these traces"
    if finding.cause != LINK_SLOW or any(
        one.scope == finding.group and one.transfer for one in of.exchanges.all
    ):
        return ""
    windows = [trace.window for trace in of.fleet.traces]
    world = max(window.world_size for window in windows)
    known = [window.sizes.get(finding.group.partition(":")[0], world) for window in windows]
    if len(windows) >= world or len(finding.ranks) >= max(known):
        return ""
    return f"{finding.group} may be slow, or wait for members that have no trace here (these are {ranks})"


def _symptom(of: Model, rank: int | None, step: int | None) -> int | None:
    operations = of.operations
    chosen = np.ones(len(operations), bool)
    if rank is not None:
        ranks = [trace.window.rank for trace in of.fleet.traces]
        chosen &= operations["rank"] == ranks.index(rank)
    if step is not None:
        chosen &= operations["step"] == step
    if not chosen.any():
        raise NotInTraces(f"nothing ran in step {step}: the traces hold steps {_steps(of)}")
    numbers = np.flatnonzero(chosen)
    return int(numbers[np.argmax(operations["end"][numbers])])


def _steps(of: Model) -> str:
    steps = of.operations["step"]
    return f"{steps.min()} to {steps.max()}" if len(steps) else "none"


def _usual_step(of: Model) -> float:
    """Median time between the ends of steps, ns; 0 with fewer than two steps."""
    steps = np.unique(of.operations["step"])
    ends = [int(of.operations["end"][of.operations["step"] == step].max()) for step in steps]
    if len(ends) > 1:
        return float(np.median(np.diff(ends)))
    return float(np.ptp(of.operations["end"])) if len(of.operations) else 0.0


def _notes(of: Model, alignment: Alignment) -> list[str]:
    notes = []
    traces = of.fleet.traces
    world = max((trace.window.world_size for trace in traces), default=-1)
    if world > len(traces):
        notes.append(f"{len(traces)} of {world} ranks have a trace here: one that is missing may be to blame")
    if of.exchanges.unmatched:
        notes.append(f"{of.exchanges.unmatched} communications have no partner among these traces")
    if alignment.apart:
        apart = ", ".join(traces[rank].window.name for rank in alignment.apart)
        notes.append(
            f"no communication ties the clocks of {apart} to the others: they are not compared in time"
        )
    if not (of.has_peers & (of.operations["kind"] == COMPUTE)).any():
        notes.append("no two ranks do the same work: a rank that was always slow cannot be told")
    if any(trace.window.dropped for trace in traces):
        notes.append("records were dropped: " + ", ".join(t.window.name for t in traces if t.window.dropped))
    if not of.operations["launched"].any():
        notes.append("no launches were recorded: late launches show as waits without a cause")
    return notes
