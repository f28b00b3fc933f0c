"""Who is to blame for the time that was lost, or nobody.

Cost and proof are kept apart. The chain (path.py) says what a cause cost, but it runs through whatever was
slowest in each step, so that chance alone gives it an excess. Proof is taken from all that a rank or group
did, on the chain or not: computation that is longer over the steps than its variation explains, transfers of
a group that are longer than those of its peers, or one stop that is long beside the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from argus_l3_worker.traces.attribution import (
    DATA_INPUT,
    GPU_COMPUTE,
    GPU_TRANSFER,
    HOST_CPU,
    HOST_GC,
    HOST_JIT,
    LINK_SLOW,
    UNDETERMINED,
    Account,
    HostTimes,
    accounts,
)
from argus_l3_worker.traces.clocks import Alignment, align
from argus_l3_worker.traces.errors import TraceError
from argus_l3_worker.traces.exchanges import match
from argus_l3_worker.traces.expectation import Floats
from argus_l3_worker.traces.operations import COMPUTE, MEMORY, gather
from argus_l3_worker.traces.path import Link, Model, model, walk
from argus_l3_worker.traces.shifts import Shifts, rank_shifts
from argus_l3_worker.traces.tables import RankTrace

TEAMS: Final = {
    GPU_COMPUTE: "operations", GPU_TRANSFER: "operations", LINK_SLOW: "operations", HOST_CPU: "operations",
    HOST_GC: "algorithm", DATA_INPUT: "algorithm", HOST_JIT: "infrastructure", UNDETERMINED: "infrastructure",
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What a finding needs. Shares are of the window's time, or of a usual step."""

    window_share: float = 0.02
    step_share: float = 0.2
    sudden_window_share: float = 0.03
    shift: float = 0.04
    deviations: float = 5.0
    sudden_deviations: float = 8.0
    link_ratio: float = 1.4
    link_agreeing: float = 0.6
    sudden_link_ratio: float = 3.0


@dataclass(frozen=True)
class Finding:
    """One cause of lost time.

    Attributes:
        ranks: rank numbers, most affected first; the members for a link.
        group: the process group or transfer of a slow link, else empty.
        cost_seconds, cost_ratio: lost in the window, and as its share.
        step: the step that lost most, `step_seconds` of it.
        evidence: the proof, in words.
        links: positions in the chain.
    """

    cause: str
    team: str
    ranks: tuple[int, ...]
    group: str
    cost_seconds: float
    cost_ratio: float
    step: int
    step_seconds: float
    evidence: str
    links: tuple[int, ...]


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
    judge = _Judge(of, limits, span, usual_step)
    found = accounts(of, links, HostTimes(of, alignment))
    findings = _together([finding for one in found if (finding := judge.finding(one)) is not None])
    return Blame(
        tuple(findings),
        tuple(links),
        of,
        alignment,
        span / 1e9,
        usual_step / 1e9,
        tuple(_notes(of, alignment)),
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


class _Judge:
    """Whether an account is proven; holds what all accounts are held against."""

    def __init__(self, of: Model, limits: Limits, span: float, usual_step: float) -> None:
        self._of, self._limits = of, limits
        self._span, self._usual_step = span, usual_step
        self._shifts = {kind: rank_shifts(of, kind) for kind in (COMPUTE, MEMORY)}

    def finding(self, account: Account) -> Finding | None:
        """What the account proves, None: too little."""
        step, step_cost = account.worst_step
        share = account.total / max(self._span, 1.0)
        # A stop in one step: the other steps' small change must not hide it.
        sudden_cost = max(account.total, step_cost)
        sudden = (
            sudden_cost >= self._limits.sudden_window_share * self._span
            or sudden_cost >= self._limits.step_share * self._usual_step > 0
        )
        lasting = share >= self._limits.window_share
        if not (sudden or lasting):
            return None
        proof = self._proof(account, step, lasting, sudden)
        if proof is None:
            return None
        ranks, evidence = proof
        return Finding(
            account.cause, TEAMS[account.cause], ranks,
            str(account.place) if account.cause == LINK_SLOW else "",
            sudden_cost / 1e9, sudden_cost / max(self._span, 1.0), step, step_cost / 1e9, evidence,
            tuple(account.links),
        )  # fmt: skip

    def _proof(
        self, account: Account, step: int, lasting: bool, sudden: bool
    ) -> tuple[tuple[int, ...], str] | None:
        if account.cause in (GPU_COMPUTE, GPU_TRANSFER):
            kind = COMPUTE if account.cause == GPU_COMPUTE else MEMORY
            return self._slow_kernels(self._shifts[kind], int(account.place), step, lasting, sudden)
        if account.cause == LINK_SLOW:
            return self._slow_link(account, lasting, sudden)
        if not sudden and not self._host_stands_out(int(account.place)):
            return None
        return self._host(account)

    # -- proofs ---------------------------------------------------------------------------------------------

    def _slow_kernels(
        self, shifts: Shifts, rank: int, step: int, lasting: bool, sudden: bool
    ) -> tuple[tuple[int, ...], str] | None:
        limits = self._limits
        number = self._of.fleet.traces[rank].window.rank
        proven = (shifts.lasting >= limits.shift) & (shifts.score >= limits.deviations)
        if lasting and proven[rank]:
            also = [
                other
                for other in np.argsort(-shifts.lasting).tolist()
                if proven[other] and shifts.lasting[other] >= 0.5 * shifts.lasting[rank]
            ]
            ranks = tuple(self._of.fleet.traces[other].window.rank for other in also)
            return ranks, (
                f"its work takes {np.expm1(shifts.lasting[rank]):+.0%} against the ranks that do the same, "
                f"{shifts.score[rank]:.0f} deviations over {shifts.steps} steps"
            )
        own = shifts.of_step(rank, step)
        if (
            sudden
            and own is not None
            and own[0] >= limits.step_share
            and own[1] >= limits.sudden_deviations
            and shifts.broad(self._of, rank, step)
        ):
            return (number,), f"in step {step} its work takes {np.expm1(own[0]):+.0%}, once"
        return None

    def _slow_link(self, account: Account, lasting: bool, sudden: bool) -> tuple[tuple[int, ...], str] | None:
        of, limits = self._of, self._limits
        mine = [number for number, exchange in enumerate(of.exchanges.all) if exchange.scope == account.place]
        ratio = of.body[mine] / np.maximum(of.expected_body[mine], 1.0)
        # Time-weighted: a small barrier among large collectives must not decide.
        weight = of.expected_body[mine]
        overall = float(of.body[mine].sum() / max(weight.sum(), 1.0))
        agreeing = float(weight[ratio >= 1 + (limits.link_ratio - 1) / 2].sum() / max(weight.sum(), 1.0))
        members = sorted(
            {self._rank_of(member) for number in mine for member in of.exchanges.all[number].members}
        )
        if lasting and overall >= limits.link_ratio and agreeing >= limits.link_agreeing:
            return tuple(members), (
                f"its transfers take {overall:.1f} times as long as those of its peers once all members are "
                f"there ({len(mine)} transfers)"
            )
        slow = ratio >= limits.sudden_link_ratio
        # One slow transfer is what networks do now and then; it counts only if it is long beside a step.
        longest = float((of.body - of.expected_body)[mine].max(initial=0.0))
        if sudden and (slow.sum() > 1 or (slow.any() and longest >= 0.5 * self._usual_step)):
            return tuple(
                members
            ), f"{slow.sum()} transfers took up to {ratio.max():.1f} times as long as usual"
        return None

    def _rank_of(self, operation: int) -> int:
        return self._of.fleet.traces[int(self._of.operations["rank"][operation])].window.rank

    def _host_lost(self) -> Floats:
        """GPU time that each rank's host lost beyond its peers', ns, shape (ranks,)."""
        of = self._of
        lost = np.where(
            of.usually_drained, of.tail - of.expected_tail, np.minimum(of.gap - of.expected_gap, of.tail)
        )
        total: Floats = np.bincount(of.operations["rank"], lost, minlength=len(of.fleet.traces)).astype(float)
        return total

    def _host_stands_out(self, rank: int) -> bool:
        lost = self._host_lost()
        others = np.delete(lost, rank)
        spread = 1.4826 * float(np.median(np.abs(others - np.median(others)))) if len(others) else 0.0
        return (
            bool(lost[rank] > np.median(others) + self._limits.deviations * spread) if len(others) else False
        )

    def _host(self, account: Account) -> tuple[tuple[int, ...], str]:
        of, rank = self._of, int(account.place)
        name = {
            HOST_GC: "Python collected garbage", HOST_JIT: "the host compiled a kernel",
            DATA_INPUT: "the batch came late", HOST_CPU: "the host launched late",
            UNDETERMINED: "it waited, and the trace does not show for what",
        }[account.cause]  # fmt: skip
        ranks = [rank]
        if account.cause == HOST_CPU:
            lost = self._host_lost()
            ranks += [
                other
                for other in np.argsort(-lost).tolist()
                if other != rank
                and lost[other] >= max(0.5 * lost[rank], self._limits.window_share * self._span)
            ]
        step, cost = account.worst_step
        return (
            tuple(of.fleet.traces[one].window.rank for one in ranks),
            f"{name} while its GPU had nothing to do: {cost / 1e6:.0f} ms in step {step}",
        )


def _symptom(of: Model, rank: int | None, step: int | None) -> int | None:
    operations = of.operations
    chosen = np.ones(len(operations), bool)
    if rank is not None:
        ranks = [trace.window.rank for trace in of.fleet.traces]
        chosen &= operations["rank"] == ranks.index(rank)
    if step is not None:
        chosen &= operations["step"] == step
    if not chosen.any():
        raise TraceError(f"nothing ran in step {step}: the traces hold steps {_steps(of)}")
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
        notes.append(
            f"{len(traces)} of {world} ranks have a trace here: what looks like a slow link may be a rank "
            "that is missing"
        )
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
