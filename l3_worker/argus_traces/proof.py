"""Whether an account is proven: what each kind of cause has to show before it is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus_core.causes import TEAMS
from argus_traces.attribution import (
    DATA_INPUT,
    GPU_COMPUTE,
    GPU_TRANSFER,
    HOST_CPU,
    HOST_GC,
    HOST_JIT,
    LINK_SLOW,
    UNDETERMINED,
    Account,
)
from argus_traces.expectation import Floats
from argus_traces.operations import COMPUTE, MEMORY
from argus_traces.path import Model
from argus_traces.shifts import Shifts, rank_shifts


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


class Judge:
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
