"""Judge one window of one role: which rank's kernels moved, by how much, and is that evidence.

Evidence needs an effect size and a robust deviation, never a fence alone: among ranks that draw from
one real trace IQR alone flags up to 88 % of kernels (docs/evidence/real-traces.md). Whether evidence becomes
a verdict is decided over windows (verdicts.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.judge.shifts import deviations, mode_shifts, pair_shift
from argus_l3_worker.judge.tails import FAR, explained_by_work, more_work, rank_excess, tails_of
from argus_l3_worker.judge.wasserstein import Scores, scores
from argus_l3_worker.roles import AbstainReason, Abstention
from argus_l3_worker.triples import (
    Bools,
    Floats,
    Ints,
    Kind,
    PairTriples,
    RoleTriples,
    Window,
    rank_seconds,
)

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
        modes: what was published.
        share: the pair's share of the rank's kernel time.
        shift: signed log shift of all modes, weighted by time; NaN where too little can be compared.
        evidence: signed log shift that counts as an anomaly in this window, 0 where there is none.
        in_tail: the evidence is a p99 alone, not the mode as a whole.
        other_count: the rank ran the kernel another number of times in the same steps: other work. So it is
            told where most others publish no such pair.
        scored: most of the role publish it, so that the paper's distances say something.
    """

    modes: PairTriples
    share: Floats
    shift: Floats
    evidence: Floats
    in_tail: Bools
    other_count: Bools
    scored: bool

    @property
    def kernel(self) -> str:
        return self.modes.kernel

    @property
    def stream(self) -> str:
        return self.modes.stream

    @property
    def kind(self) -> Kind:
        return self.modes.kind

    @property
    def ranks(self) -> Ints:
        """Positions in the role's ranks."""
        return self.modes.ranks

    @cached_property
    def w1(self) -> Scores | None:
        """The paper's distances. Computed when somebody asks: by default they decide nothing."""
        return scores(self.modes) if self.scored else None

    @property
    def beyond_fence(self) -> Bools:
        """The paper's flag: mean W1 above the fence, where there are ranks enough for quartiles."""
        if self.w1 is None or len(self.ranks) < JudgeConfig.min_ranks:
            return np.zeros(len(self.ranks), dtype=np.bool_)
        flags: Bools = self.w1.seconds > self.w1.fence_seconds
        return flags


@dataclass(frozen=True)
class RoleJudgement:
    """One window of one role.

    Attributes:
        rank_shift: time-weighted signed log shift of the rank's compute kernels, NaN where unknown.
        rank_evidence: the shifts that count as an anomaly in this window, 0 where there is none.
        tail_evidence: log shift of the mean launch by launches far beyond the usual, 0 where there is none.
        other_work: what the rank's kernels took longer is explained by its having other work, shape (ranks,).
        more_work: log ratio of the rank's work to the role's median, 0 where that is unknown, shape (ranks,).
        work_spread: log ratio of the busiest ranks' launches to the least busy ones', 0 where that is no
            evidence of uneven work.
        not_compared: pairs that were not compared, with the reason.
        gpus: of each rank, empty where that is unknown.
        own_evidence: log shift against what the GPU itself was in the last hours, 0 where that is no anomaly;
            see `baseline.py`.
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
    more_work: Floats
    work_spread: float
    not_compared: tuple[tuple[str, str, str], ...]
    gpus: tuple[str, ...]
    own_evidence: Floats

    @property
    def costliest(self) -> PairJudgement | None:
        """Of the compute kernels that with the largest share of all ranks' time; None without any."""
        compute = [pair for pair in self.pairs if pair.kind == "compute"]
        return max(compute, key=lambda pair: float(pair.share.sum()), default=None)

    def telling(self) -> RoleJudgement:
        """Itself with the kernels alone that have evidence, and the costliest, which stands for all."""
        costliest = self.costliest
        shown = (pair for pair in self.pairs if pair.evidence.any() or pair is costliest)
        return replace(self, pairs=tuple(shown))


def judge_roles(
    job: JobTriples, config: JudgeConfig, tails_of_data: Collection[str] = ()
) -> dict[str, RoleJudgement | Abstention]:
    """Compare every pair over the ranks of each role, then the ranks as a whole.

    Ranks are judged within their role, by how much ranks of all roles of the job differ.

    Args:
        tails_of_data: ranks whose far launches are no evidence; see `tails.of_the_data`.
    """
    incomparable = {}
    for role in job.roles:
        if not role.pairs:
            detail = f"none of {len(role.ranks)} ranks publishes kernel modes"
            incomparable[role.role] = _abstention(role, "no-kernels", detail)
        elif len(role.ranks) < 2:
            detail = "one rank has no peers to be compared with"
            incomparable[role.role] = _abstention(role, "too-few-ranks", detail)
    if len(incomparable) == len(job.roles):
        return {**incomparable}
    return _Comparison(job, config).judge(tails_of_data) | incomparable


def _abstention(role: RoleTriples, reason: AbstainReason, detail: str) -> Abstention:
    return Abstention(role.training_job, role.role, reason, detail)


class _Comparison:
    """All roles of a job at once: tables have a row for each rank, one role after the other."""

    def __init__(self, job: JobTriples, config: JudgeConfig) -> None:
        self._roles, self._config = job.roles, config
        self._whole, self._by_role = job.whole, job.by_role
        self._small = self._by_role.sizes < config.min_ranks
        ranks = len(self._whole.ranks)
        self._rank_seconds = rank_seconds(self._whole.pairs, ranks)
        self._own = [{(pair.kernel, pair.stream): pair for pair in role.pairs} for role in job.roles]
        self._judged: list[list[PairJudgement]] = [[] for _ in job.roles]
        self._not_compared: list[list[tuple[str, str, str]]] = [[] for _ in job.roles]
        # Of compute kernels: time of the middle rank of each role, and shifts and their errors.
        self._weights: list[Floats] = []
        self._shifts: list[Floats] = []
        self._errors: list[Floats] = []
        self._of_medians: list[Floats] = []
        # What tells other work from slower work: largest evidence of a rank, its share of time, and of that
        # what ran another number of times; and spreads of work with their weights by role.
        self._longest, self._busy, self._other_count = np.zeros((3, ranks))
        self._spreads: list[tuple[Floats, Floats]] = []

    def judge(self, tails_of_data: Collection[str]) -> dict[str, RoleJudgement | Abstention]:
        """The outcome of each role."""
        config, by_role, whole = self._config, self._by_role, self._whole
        compute_seconds = np.zeros(by_role.count)
        for pair in whole.pairs:
            seconds = np.zeros(len(whole.ranks))
            seconds[pair.ranks] = pair.seconds
            typical = by_role.medians(seconds)  # a rank that does not publish the pair counts as 0
            if pair.kind == "compute":
                compute_seconds += typical
            self._judge_pair(pair, typical)
        ranks, compared = len(whole.ranks), len(self._weights)
        weights = np.array(self._weights).reshape(compared, by_role.count)
        shifts, errors, of_medians = (
            np.array(rows).reshape(compared, ranks) for rows in (self._shifts, self._errors, self._of_medians)
        )
        by_rank = weights[:, by_role.of_row]
        known = np.where(np.isnan(shifts), 0.0, by_rank).sum(axis=0)
        coverage = by_role.medians(known) / np.where(compute_seconds > 0.0, compute_seconds, np.inf)
        covered = coverage >= config.min_coverage
        enough = known >= config.min_coverage * compute_seconds[by_role.of_row]
        enough &= by_role.chosen(covered)
        total = np.where(enough, known, np.nan)
        rank_shift = (by_rank * np.nan_to_num(shifts)).sum(axis=0) / total
        # Not in quadrature: what makes a launch long, such as a large sample, does so in all kernels.
        rank_error = (by_rank * np.nan_to_num(errors)).sum(axis=0) / total
        by_medians = (by_rank * np.nan_to_num(of_medians)).sum(axis=0) / total
        evidence = self._rank_evidence(rank_shift, rank_error, by_medians, by_rank, shifts)
        # Each far launch took half as long again at least; cycle.py asks what they did take.
        tails = np.log1p((FAR - 1.0) * rank_excess(tails_of(whole, by_role), config, by_role))
        more = more_work(whole.work, by_role)
        tails[explained_by_work(tails, more) | np.isin(whole.ranks, list(tails_of_data))] = 0.0
        reported = explained_by_work(np.maximum(evidence, self._longest), more)
        other_work = reported | (self._other_count > 0.5 * self._busy) & (self._busy > 0.0)
        work_spread = self._work_spread()
        outcomes: dict[str, RoleJudgement | Abstention] = {}
        for place, (role, own) in enumerate(zip(self._roles, by_role.slices, strict=True)):
            if not covered[place]:
                outcomes[role.role] = _abstention(
                    role,
                    "too-few-events",
                    f"kernels with {config.min_events} events a mode and more hold {coverage[place]:.0%} of "
                    f"compute time, {config.min_coverage:.0%} are needed: wait for a window with more steps",
                )
                continue
            outcomes[role.role] = RoleJudgement(
                role.training_job,
                role.role,
                role.window,
                role.ranks,
                tuple(self._judged[place]),
                rank_shift[own],
                evidence[own],
                tails[own],
                other_work[own],
                more[own],
                work_spread[place],
                tuple(self._not_compared[place]),
                role.gpus or ("",) * len(role.ranks),
                np.zeros(len(role.ranks)),
            )
        return outcomes

    def _judge_pair(self, pair: PairTriples, typical: Floats) -> None:
        """Compare one pair in every role that has it.

        Args:
            typical: seconds of it on the middle rank of each role.
        """
        config, by_role = self._config, self._by_role
        role_of = by_role.of_row[pair.ranks]
        sizes = np.bincount(role_of, minlength=by_role.count)
        having = np.flatnonzero(sizes)
        events = np.zeros(by_role.count)
        events[having] = Segments(sizes[having]).medians(pair.events)
        least = min(_COPY_EVENTS, config.min_events) if pair.kind == "transfer" else config.min_events
        often = 2 * sizes > by_role.sizes
        for place in having[~often[having]]:
            self._judge_censored(place, self._own[place][pair.kernel, pair.stream])
        for place in np.flatnonzero(often & (events < least)):
            reason = f"{events[place]:.0f} events a rank, {least} are needed"
            self._not_compared[place].append((pair.kernel, pair.stream, reason))
        enough = often & (events >= least)
        chosen = np.flatnonzero(enough)
        if not chosen.size:
            return
        rows = pair.at(enough[role_of])
        parts = Segments(sizes[chosen])
        share = rows.seconds / np.maximum(self._rank_seconds[rows.ranks], 1e-300)
        few, small = events[chosen] < config.min_events, self._small[chosen]
        shift, error, of_medians, evidence, in_tail = _pair_evidence(rows, parts, share, few, small, config)
        count = np.log(rows.events / parts.medians(rows.events)[parts.of_row])
        effect = np.full(parts.count, np.log1p(config.kernel_effect))
        other_count = significant(count, np.zeros_like(count), effect, config, small, parts) != 0.0
        for place, own in zip(chosen.tolist(), parts.slices, strict=True):
            modes = self._own[place][pair.kernel, pair.stream]
            of_role = share[own], shift[own], evidence[own], in_tail[own], other_count[own]
            self._judged[place].append(PairJudgement(modes, *of_role, scored=True))
        if pair.kind == "compute":
            ranks = len(self._whole.ranks)
            tables = (self._shifts, shift), (self._errors, error), (self._of_medians, of_medians)
            for table, values in tables:
                table.append(np.full(ranks, np.nan))
                table[-1][rows.ranks] = values
            self._weights.append(typical)
            self._longest[rows.ranks] = np.maximum(self._longest[rows.ranks], evidence)
            self._busy[rows.ranks] += share
            self._other_count[rows.ranks] += np.where(other_count, share, 0.0)
            whole = parts.sizes == by_role.sizes[chosen]
            self._add_spread(chosen, whole & ~few & ~small, parts, rows)

    def _judge_censored(self, place: int, pair: PairTriples) -> None:
        """A pair that is among the top pairs of a few ranks only, perhaps the sick ones.

        The others publish no triple of it, but it took them at most their cutoff, or as long as they took for
        what they ran instead, as where an autotuner has chosen another kernel: the shift is a lower bound.
        Launches cannot be compared, so it is more work as likely as slower work.
        """
        config, role = self._config, self._roles[place]
        ranks = len(role.ranks)
        reason = f"published by {len(pair.ranks)} of {ranks} ranks"
        bounds = np.delete(role.unpublished, pair.ranks)
        bounds = bounds[~np.isnan(bounds)]
        unknown = 2 * bounds.size <= ranks or not (bounds > 0.0).all()
        if pair.kind == "collective" or self._small[place] or unknown:
            if pair.kind != "collective" and not self._small[place]:
                reason += ", and too few of the others say what it took them at most"
            self._not_compared[place].append((pair.kernel, pair.stream, reason))
            return
        begin = int(self._by_role.sizes[:place].sum())
        share = pair.seconds / np.maximum(self._rank_seconds[begin + pair.ranks], 1e-300)
        alike = rank_seconds([one for one in role.pairs if one.kind == pair.kind], ranks)
        instead = pair.seconds - (alike[pair.ranks] - np.median(alike))
        shift = np.log(pair.seconds / np.maximum(float(np.median(bounds)), instead))
        counts = (pair.events >= config.min_events) & (share >= config.min_share)
        counts &= pair.seconds / pair.events >= config.min_duration_seconds
        evidence = np.where(counts & (shift > np.log1p(config.censored_effect)), shift, 0.0)
        no = np.zeros(len(pair.ranks), dtype=np.bool_)
        accused = evidence > 0.0
        found = PairJudgement(pair, share, np.maximum(shift, 0.0), evidence, no, accused, scored=False)
        self._judged[place].append(found)
        if pair.kind == "compute":
            self._longest[begin + pair.ranks] = np.maximum(self._longest[begin + pair.ranks], evidence)
            self._busy[begin + pair.ranks] += share
            self._other_count[begin + pair.ranks] += np.where(accused, share, 0.0)

    def _rank_evidence(
        self, shift: Floats, error: Floats, of_medians: Floats, weights: Floats, shifts: Floats
    ) -> Floats:
        """Ranks of which all compute kernels are slower, as a throttled GPU's are.

        The time-weighted mean must be significant, and the time-weighted median must have moved by half of
        it: one very slow kernel is that kernel's fault, not the GPU's.
        """
        config = self._config
        floor = np.log1p(np.where(self._small, config.small_role_effect, config.rank_effect))
        evidence = significant(shift, error, floor, config, self._small, self._by_role, differing=of_medians)
        for rank in np.flatnonzero(evidence):
            known = ~np.isnan(shifts[:, rank])
            middle = _weighted_median(shifts[known, rank], weights[known, rank])
            if middle / evidence[rank] < 0.5:
                evidence[rank] = 0.0
        return evidence

    def _add_spread(self, chosen: Ints, counts: Bools, parts: Segments, rows: PairTriples) -> None:
        """How often the busiest ranks ran a pair more than the least busy ones, where that says something."""
        low, high = (parts.quantiles(rows.events, level) for level in _WORK_QUANTILES)
        uneven = counts & (high - low >= _WORK_LEAST_EVENTS)
        spread, weight = np.zeros((2, self._by_role.count))
        spread[chosen] = np.where(uneven, np.log(high / low), 0.0)
        weight[chosen] = np.where(counts, parts.medians(rows.seconds), 0.0)
        self._spreads.append((spread, weight))

    def _work_spread(self) -> list[float]:
        """How unevenly the work of the same steps is spread in each role, at the same speed of kernels.

        Which ranks have more may change from step to step; who has more is nobody's fault.
        """
        least = float(np.log1p(self._config.workload_spread))
        found = [0.0] * len(self._roles)
        if not self._spreads:
            return found
        spreads, weights = np.array(self._spreads).transpose(1, 2, 0)
        for place in np.flatnonzero((spreads >= least).any(axis=1)).tolist():
            # By the kernel that holds the middle of the time: one that runs on demand says nothing of work.
            spread = _weighted_median(spreads[place], weights[place])
            if spread >= least and self._roles[place].window.steps > 0:
                found[place] = spread
        return found


def _pair_evidence(
    pair: PairTriples, parts: Segments, share: Floats, few: Bools, small: Bools, config: JudgeConfig
) -> tuple[Floats, Floats, Floats, Floats, Bools]:
    """(shift, its error, shift of medians, evidence, whether that is of a tail); see `PairJudgement`.

    Args:
        parts: ranks that are compared with one another.
        few, small: these have few events, or few ranks, shape (parts,).
    """
    least = np.where(few, min(_COPY_EVENTS, config.min_events), config.min_events)
    modes = mode_shifts(pair, least[parts.of_row, None], parts)
    shift, error, of_medians = pair_shift(modes)
    alike = modes.reference
    effect = np.log1p(np.where(small, config.small_role_effect, config.kernel_effect))
    if pair.kind == "collective":
        effect = effect / _COLLECTIVE_WEIGHT
    effect = np.where(few & (pair.kind != "collective"), effect / _FEW_COPIES_WEIGHT, effect)
    candidates = [significant(shift, error, effect, config, small, parts, alike, of_medians)]
    of_tail = [False]
    holds = (modes.time_share >= _MODE_TIME_SHARE) & (modes.event_share >= _MODE_EVENT_SHARE)
    for mode in np.flatnonzero(holds.any(axis=0)):
        values, errors, medians = np.where(
            holds[:, mode], (modes.whole[:, mode], modes.p50_error[:, mode], modes.p50[:, mode]), np.nan
        )
        candidates.append(significant(values, errors, effect, config, small, parts, alike, medians))
        of_tail.append(False)
        if pair.kind != "collective":
            tail = holds[:, mode] & ~parts.chosen(small)
            values, errors = np.where(tail, (modes.p99[:, mode], modes.p99_error[:, mode]), np.nan)
            floor = np.full(parts.count, np.log1p(config.tail_effect))
            tail_evidence = significant(values, errors, floor, config, small, parts, alike)
            candidates.append(np.where(modes.count[:, mode] >= _P99_MIN_EVENTS, tail_evidence, 0.0))
            of_tail.append(True)
    stacked = np.stack(candidates)
    largest = np.abs(stacked).argmax(axis=0)
    evidence: Floats = np.take_along_axis(stacked, largest[None, :], axis=0)[0]
    mean_seconds, weight = pair.seconds / pair.events, share
    if pair.kind == "collective":  # who is late has a short one: what it is to the others counts
        mean_seconds, weight = (parts.medians(values)[parts.of_row] for values in (mean_seconds, share))
    evidence[(weight < config.min_share) | (mean_seconds < config.min_duration_seconds)] = 0.0
    # A tail counts as one only where nothing shifted as a whole.
    in_tail: Bools = np.array(of_tail)[largest] & ~stacked[~np.array(of_tail)].any(axis=0)
    return shift, error, of_medians, evidence, in_tail


def significant(
    values: Floats,
    errors: Floats,
    floor: float | Floats,
    config: JudgeConfig,
    small: Bools | None = None,
    parts: Segments | None = None,
    alike: Ints | None = None,
    differing: Floats | None = None,
) -> Floats:
    """`values` where they exceed the floor and the noise, else 0; NaN counts as 0.

    Noise is the larger of how much ranks differ (see `deviations`) and the rank's own standard error. In
    roles of two or three ranks deviations mean nothing and the floor decides alone.

    Args:
        values: log shifts against the role's median, shape (ranks,).
        errors: their standard errors, shape (ranks,).
        floor: least log shift, of each part, shape (parts,).
        small: parts of two or three ranks, shape (parts,); None: none is.
        parts: ranks that are compared with one another; None: all.
        alike: see `deviations`.
        differing: by what ranks differ, shape (ranks,); None: by `values`.
    """
    parts = parts or Segments([values.size])
    small = np.zeros(parts.count, dtype=np.bool_) if small is None else small
    known = ~np.isnan(values)
    size = np.abs(np.nan_to_num(values))
    if not (size > np.broadcast_to(floor, parts.count)[parts.of_row]).any():
        return np.zeros_like(values)
    of_large = np.where(parts.chosen(small), np.nan, values if differing is None else differing)
    spread = np.where(small, 0.0, deviations(of_large, parts, alike))[parts.of_row]
    noise = np.maximum(np.nan_to_num(errors), spread)
    least = np.maximum(np.broadcast_to(floor, parts.count)[parts.of_row], config.deviations * noise)
    enough = parts.chosen(small | (parts.sums(known) >= config.min_ranks))
    return np.where(enough & known & (size > least), values, 0.0)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulated, cumulated[-1] / 2.0)])
