"""Judge one window of one role: which rank's kernels moved, by how much, and is that evidence.

Evidence needs an effect size and a robust deviation, never a fence alone: among ranks that draw from
one real trace IQR alone flags up to 88 % of kernels (docs/evidence/real-traces.md). Whether evidence becomes
a verdict is decided over windows (verdicts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.shifts import Deviations, mode_shifts, pair_shift, robust_deviation
from argus_l3_worker.judge.tails import FAR, explained_by_work, rank_excess, tails_of
from argus_l3_worker.judge.wasserstein import Mixtures, mean_distances, upper_fence
from argus_l3_worker.roles import AbstainReason, Abstention
from argus_l3_worker.triples import Bools, Floats, Ints, Kind, PairTriples, RoleTriples, Window

# Collectives weigh half: they must shift twice as far to say anything.
_COLLECTIVE_WEIGHT = 0.5
# Copies may run once a step, and a window have sixteen steps. So few must shift twice as far, too.
_COPY_EVENTS = 8
_FEW_COPIES_WEIGHT = 0.5
# A mode that holds less of its kernel's time proves nothing about the kernel; with less of its events it is
# at times taken for its neighbour, as counts vary by chance.
_MODE_TIME_SHARE = 0.05
_MODE_EVENT_SHARE = 0.1
_WORK_QUANTILES = (0.1, 0.9)
# Launches beyond the modes are not among a kernel's events: some difference is chance.
_WORK_LEAST_EVENTS = 4
# Sample size from which a p99 is more than one or two outliers.
_P99_MIN_EVENTS = 200


@dataclass(frozen=True)
class PairJudgement:
    """One (kernel, stream) of a role; arrays of shape (ranks that publish it,).

    Attributes:
        ranks: positions in the role's ranks.
        share: the pair's share of the rank's kernel time.
        w1_seconds, w1_log: mean W1 to all others; NaN in roles too small for them.
        fence_seconds, fence_log: upper Tukey fences of these; NaN likewise.
        shift, error: signed log shift of all modes, weighted by time, and its standard error; NaN where too
            little can be compared.
        evidence: signed log shift that counts as an anomaly in this window, 0 where there is none.
        in_tail: the evidence is a p99 alone, not the mode as a whole.
        other_count: the rank ran the kernel another number of times in the same steps: other work.
    """

    kernel: str
    stream: str
    kind: Kind
    ranks: Ints
    share: Floats
    w1_seconds: Floats
    w1_log: Floats
    fence_seconds: float
    fence_log: float
    shift: Floats
    error: Floats
    evidence: Floats
    in_tail: Bools
    other_count: Bools

    @property
    def beyond_fence(self) -> Bools:
        """The paper's flag: mean W1 above the fence."""
        flags: Bools = self.w1_seconds > self.fence_seconds
        return flags


@dataclass(frozen=True)
class RoleJudgement:
    """One window of one role.

    Attributes:
        rank_shift: time-weighted signed log shift of the rank's compute kernels, NaN where unknown.
        rank_evidence: the shifts that count as an anomaly in this window, 0 where there is none.
        tail_evidence: log shift of the mean launch by launches far beyond the usual, 0 where there is none.
        other_work: what the rank's kernels took longer is explained by its having other work, shape (ranks,).
        work_spread: log ratio of the busiest ranks' launches to the least busy ones', 0 where that is no
            evidence of uneven work.
        not_compared: pairs that were not compared, with the reason.
    """

    training_job: str
    role: str
    window: Window
    ranks: tuple[str, ...]
    pairs: tuple[PairJudgement, ...]
    rank_shift: Floats
    rank_evidence: Floats
    tail_evidence: Floats
    other_work: Bools
    work_spread: float
    not_compared: tuple[tuple[str, str, str], ...]


def judge_roles(
    roles: Sequence[RoleTriples], config: JudgeConfig, tails_of_data: Collection[str] = ()
) -> dict[str, RoleJudgement | Abstention]:
    """Judge all roles of a job: ranks within theirs, by how much ranks of all roles differ."""
    deviations = Deviations()
    outcomes = {role.role: judge_role(role, config, tails_of_data, deviations) for role in roles}
    deviations.pool()
    for role in roles:
        first = outcomes[role.role]
        # Who does not stand out by the role's own deviation does not by a larger one.
        if isinstance(first, RoleJudgement) and any(
            evidence.any() for evidence in (first.rank_evidence, *(pair.evidence for pair in first.pairs))
        ):
            outcomes[role.role] = judge_role(role, config, tails_of_data, deviations)
    return outcomes


def judge_role(
    role: RoleTriples,
    config: JudgeConfig,
    tails_of_data: Collection[str] = (),
    deviations: Deviations | None = None,
) -> RoleJudgement | Abstention:
    """Compare every pair over the role's ranks, then the ranks as a whole.

    Args:
        tails_of_data: ranks whose far launches are no evidence; see `tails.of_the_data`.
        deviations: what is known of other roles; None: the role is alone.
    """
    deviations = deviations or Deviations()

    def abstain(reason: AbstainReason, detail: str) -> Abstention:
        return Abstention(role.training_job, role.role, reason, detail)

    ranks = len(role.ranks)
    if not role.pairs:
        return abstain("no-kernels", f"none of {ranks} ranks publishes kernel modes")
    if ranks < 2:
        return abstain("too-few-ranks", "one rank has no peers to be compared with")
    rank_seconds = np.zeros(ranks)
    for pair in role.pairs:
        rank_seconds[pair.ranks] += pair.seconds

    judged: list[PairJudgement] = []
    not_compared: list[tuple[str, str, str]] = []
    for pair in role.pairs:
        if 2 * len(pair.ranks) <= ranks:
            result = _judge_censored(pair, role, rank_seconds, config)
        else:
            result = _judge_pair(pair, rank_seconds[pair.ranks], ranks, config, deviations)
        if isinstance(result, str):
            not_compared.append((pair.kernel, pair.stream, result))
        else:
            judged.append(result)

    compute_seconds = sum(_typical_seconds(pair, ranks) for pair in role.pairs if pair.kind == "compute")
    weights, shifts, errors = _compute_shifts(judged, role)
    known = np.where(np.isnan(shifts), 0.0, weights[:, None]).sum(axis=0)
    coverage = float(np.median(known)) / compute_seconds if compute_seconds > 0 else 0.0
    if coverage < config.min_coverage:
        return abstain(
            "too-few-events",
            f"kernels with {config.min_events} events a mode and more hold {coverage:.0%} of compute time, "
            f"{config.min_coverage:.0%} are needed: wait for a window with more steps",
        )
    rank_shift = np.full(ranks, np.nan)
    enough = known >= config.min_coverage * compute_seconds
    summed = (weights[:, None] * np.nan_to_num(shifts)).sum(axis=0)
    rank_shift[enough] = summed[enough] / known[enough]
    # Not in quadrature: what makes a launch long, such as a large sample, does so in all kernels.
    rank_error = np.full(ranks, np.nan)
    rank_error[enough] = (weights[:, None] * np.nan_to_num(errors)).sum(axis=0)[enough] / known[enough]
    rank_evidence = _rank_evidence(rank_shift, rank_error, weights, shifts, config, deviations)
    # Each far launch took half as long again at least; cycle.py asks what they did take.
    tails = np.log1p((FAR - 1.0) * rank_excess(tails_of(role), config))
    tails[explained_by_work(tails, role.work) | np.isin(role.ranks, list(tails_of_data))] = 0.0
    return RoleJudgement(
        role.training_job,
        role.role,
        role.window,
        role.ranks,
        tuple(judged),
        rank_shift,
        rank_evidence,
        tails,
        _other_work(role, judged, rank_evidence),
        _work_spread(role, config),
        tuple(not_compared),
    )


def _judge_pair(
    pair: PairTriples, rank_seconds: Floats, role_ranks: int, config: JudgeConfig, deviations: Deviations
) -> PairJudgement | str:
    events = float(np.median(pair.events))
    least = min(_COPY_EVENTS, config.min_events) if pair.kind == "transfer" else config.min_events
    if events < least:
        return f"{events:.0f} events a rank, {least} are needed"
    few = events < config.min_events
    small = role_ranks < config.min_ranks
    none = np.full(len(pair.ranks), np.nan)
    w1_seconds, w1_log, fence_seconds, fence_log = none, none, np.nan, np.nan
    if not small and len(pair.ranks) >= config.min_ranks:
        distances = mean_distances(Mixtures(*pair.components()))
        w1_seconds, w1_log = distances.seconds, distances.log
        fence_seconds = upper_fence(w1_seconds, config.alpha)
        fence_log = upper_fence(w1_log, config.alpha)
    modes = mode_shifts(pair, least if few else config.min_events)
    shift, error = pair_shift(modes)
    share = pair.seconds / np.maximum(rank_seconds, 1e-300)

    effect = float(np.log1p(config.small_role_effect if small else config.kernel_effect))
    tail_effect = float(np.log1p(config.tail_effect))
    if pair.kind == "collective":
        effect, tail_effect = effect / _COLLECTIVE_WEIGHT, np.inf
    elif few:
        effect /= _FEW_COPIES_WEIGHT
    key = pair.kernel, pair.stream, modes.p50.shape[1]
    candidates = [significant(shift, error, effect, config, small, partial(deviations.of, (key, "shift")))]
    of_tail = [False]
    for mode in np.flatnonzero(
        (modes.time_share >= _MODE_TIME_SHARE) & (modes.event_share >= _MODE_EVENT_SHARE)
    ):
        whole, p99 = modes.whole[:, mode], modes.p99[:, mode]
        deviation = partial(deviations.of, (key, "mode", mode))
        candidates.append(significant(whole, modes.p50_error[:, mode], effect, config, small, deviation))
        of_tail.append(False)
        if not small:
            deviation = partial(deviations.of, (key, "p99", mode))
            tail = significant(p99, modes.p99_error[:, mode], tail_effect, config, small, deviation)
            candidates.append(np.where(modes.count[:, mode] >= _P99_MIN_EVENTS, tail, 0.0))
            of_tail.append(True)
    stacked = np.stack(candidates)
    largest = np.abs(stacked).argmax(axis=0)
    evidence: Floats = np.take_along_axis(stacked, largest[None, :], axis=0)[0]
    count = np.log(pair.events / np.median(pair.events))
    other_count = significant(
        count, np.zeros_like(count), float(np.log1p(config.kernel_effect)), config, small
    )
    mean_seconds, weight = pair.seconds / pair.events, share
    if pair.kind == "collective":  # who is late has a short one: what it is to the others counts
        mean_seconds, weight = (np.full_like(values, np.median(values)) for values in (mean_seconds, share))
    quiet = (weight < config.min_share) | (mean_seconds < config.min_duration_seconds)
    evidence[quiet] = 0.0
    return PairJudgement(
        pair.kernel,
        pair.stream,
        pair.kind,
        pair.ranks,
        share,
        w1_seconds,
        w1_log,
        fence_seconds,
        fence_log,
        shift,
        error,
        evidence,
        # A tail counts as one only where nothing shifted as a whole.
        in_tail=np.array(of_tail)[largest] & ~stacked[~np.array(of_tail)].any(axis=0),
        other_count=other_count != 0.0,
    )


def _judge_censored(
    pair: PairTriples, role: RoleTriples, rank_seconds: Floats, config: JudgeConfig
) -> PairJudgement | str:
    """A pair that is among the top pairs of a few ranks only, perhaps the sick ones.

    The others publish no triple of it, but it took them at most their cutoff: the shift is a lower bound.
    """
    ranks = len(role.ranks)
    reason = f"published by {len(pair.ranks)} of {ranks} ranks"
    if pair.kind == "collective" or ranks < config.min_ranks:
        return reason
    others = np.setdiff1d(np.arange(ranks), pair.ranks)
    bounds = role.unpublished[others]
    bounds = bounds[~np.isnan(bounds)]
    if 2 * bounds.size <= ranks or not (bounds > 0.0).all():
        return f"{reason}, and too few of the others say what it took them at most"
    share = pair.seconds / np.maximum(rank_seconds[pair.ranks], 1e-300)
    shift = np.log(pair.seconds / float(np.median(bounds)))
    counts = (pair.events >= config.min_events) & (share >= config.min_share)
    counts &= pair.seconds / pair.events >= config.min_duration_seconds
    nothing = np.full(len(pair.ranks), np.nan)
    return PairJudgement(
        pair.kernel,
        pair.stream,
        pair.kind,
        pair.ranks,
        share,
        w1_seconds=nothing,
        w1_log=nothing,
        fence_seconds=np.nan,
        fence_log=np.nan,
        shift=np.maximum(shift, 0.0),
        error=np.zeros(len(pair.ranks)),
        evidence=np.where(counts & (shift > np.log1p(config.censored_effect)), shift, 0.0),
        in_tail=np.zeros(len(pair.ranks), dtype=bool),
        other_count=np.zeros(len(pair.ranks), dtype=bool),
    )


def significant(
    values: Floats,
    errors: Floats,
    floor: float,
    config: JudgeConfig,
    small: bool = False,
    deviation: Callable[[Floats], float] = robust_deviation,
) -> Floats:
    """`values` where they exceed the floor and the noise, else 0; NaN counts as 0.

    Noise is the larger of the robust deviation over ranks (their true spread) and the rank's own standard
    error: among few ranks the median absolute deviation is at times tiny by chance. In a `small` role (two or
    three ranks) deviations mean nothing and the floor decides alone.

    Args:
        values: log shifts against the role's median, shape (ranks,).
        errors: their standard errors, shape (ranks,).
        floor: least log shift.
        deviation: how much healthy ranks differ; asked where they are three and more.
    """
    known = ~np.isnan(values)
    if not small and known.sum() < config.min_ranks:
        return np.zeros_like(values)
    noise = np.nan_to_num(errors) if small else np.maximum(np.nan_to_num(errors), deviation(values))
    clear = known & (np.abs(np.nan_to_num(values)) > np.maximum(floor, config.deviations * noise))
    return np.where(clear, values, 0.0)


def _typical_seconds(pair: PairTriples, ranks: int) -> float:
    """The pair's time on the role's median rank; a rank that does not publish it counts as 0."""
    seconds = np.zeros(ranks)
    seconds[pair.ranks] = pair.seconds
    return float(np.median(seconds))


def _compute_shifts(judged: Sequence[PairJudgement], role: RoleTriples) -> tuple[Floats, Floats, Floats]:
    """(time on the median rank of each compute pair, its shifts over all ranks and their errors).

    NaN is unknown.
    """
    by_key = {(pair.kernel, pair.stream): pair for pair in role.pairs}
    compute = [pair for pair in judged if pair.kind == "compute"]
    weights = np.array([_typical_seconds(by_key[p.kernel, p.stream], len(role.ranks)) for p in compute])
    shifts = np.full((len(compute), len(role.ranks)), np.nan)
    errors = shifts.copy()
    for row, pair in enumerate(compute):
        shifts[row, pair.ranks], errors[row, pair.ranks] = pair.shift, pair.error
    return weights, shifts, errors


def _rank_evidence(
    rank_shift: Floats,
    rank_error: Floats,
    weights: Floats,
    shifts: Floats,
    config: JudgeConfig,
    deviations: Deviations,
) -> Floats:
    """Ranks of which all compute kernels are slower, as a throttled GPU's are.

    The time-weighted mean must be significant, and the time-weighted median must have moved by half of it:
    one very slow kernel is that kernel's fault, not the GPU's.
    """
    small = len(rank_shift) < config.min_ranks
    floor = float(np.log1p(config.small_role_effect if small else config.rank_effect))
    deviation = partial(deviations.of, "rank")
    evidence = significant(rank_shift, rank_error, floor, config, small, deviation)
    for rank in np.flatnonzero(evidence):
        known = ~np.isnan(shifts[:, rank])
        middle = _weighted_median(shifts[known, rank], weights[known])
        if middle / evidence[rank] < 0.5:
            evidence[rank] = 0.0
    return evidence


def _other_work(role: RoleTriples, judged: Sequence[PairJudgement], rank_evidence: Floats) -> Bools:
    """Ranks with more work than the others: by what they report of it, or by how often their kernels run."""
    longest = rank_evidence.copy()
    for pair in judged:
        if pair.kind == "compute":
            longest[pair.ranks] = np.maximum(longest[pair.ranks], pair.evidence)
    reported = explained_by_work(longest, role.work)
    seconds, other = np.zeros(len(role.ranks)), np.zeros(len(role.ranks))
    for pair in judged:
        if pair.kind == "compute":
            seconds[pair.ranks] += pair.share
            other[pair.ranks] += np.where(pair.other_count, pair.share, 0.0)
    more_often: Bools = reported | (other > 0.5 * seconds) & (seconds > 0.0)
    return more_often


def _work_spread(role: RoleTriples, config: JudgeConfig) -> float:
    """How unevenly the work of the same steps is spread, where the kernels themselves are equally fast.

    Which ranks have more may change from step to step; who has more is nobody's fault.
    """
    ranks = len(role.ranks)
    if ranks < config.min_ranks or role.window.steps == 0:
        return 0.0
    spreads, weights = [0.0], [1e-300]
    for pair in role.pairs:
        if (
            pair.kind == "compute"
            and len(pair.ranks) == ranks
            and np.median(pair.events) >= config.min_events
        ):
            low, high = np.quantile(pair.events, _WORK_QUANTILES)
            spreads.append(float(np.log(high / low)) if high - low >= _WORK_LEAST_EVENTS else 0.0)
            weights.append(float(np.median(pair.seconds)))
    # By the kernel that holds the middle of the time: one that runs on demand says nothing about the work.
    spread = _weighted_median(np.array(spreads), np.array(weights))
    return spread if spread >= np.log1p(config.workload_spread) else 0.0


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulated, cumulated[-1] / 2.0)])
