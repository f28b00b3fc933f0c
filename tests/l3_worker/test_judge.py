"""Shifts, judgements of one window, and verdicts over several."""

from __future__ import annotations

import numpy as np
import pytest
from bench.l3_tables import judge_role, pair_triples

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import RoleJudgement, significant
from argus_l3_worker.judge.segments import robust_deviation
from argus_l3_worker.judge.shifts import match_modes, mode_shifts, pair_shift
from argus_l3_worker.judge.verdicts import ALL_KERNELS, History, Verdict, culprits, decide
from argus_l3_worker.roles import Abstention
from argus_l3_worker.triples import PairTriples, kind_of
from l3_worker.fleets import COPY, FLASH, GEMM, NORM, REDUCE, RankModes, fleet, role

CONFIG = JudgeConfig()


def judged(modes: dict[str, RankModes], config: JudgeConfig = CONFIG) -> RoleJudgement:
    result = judge_role(role(modes), config)
    assert isinstance(result, RoleJudgement), result
    return result


def verdicts(*windows: dict[str, RankModes], config: JudgeConfig = CONFIG) -> list[Verdict]:
    history = History(config.windows, config.windows_needed)
    for modes in windows:
        history.add(judged(modes, config))
    return decide("llm", [("pp0.tp0", history)])


def pair(*ranks: list[tuple[float, float, float]]) -> PairTriples:
    return pair_triples("gemm", "compute0", list(enumerate(ranks)))


# Kinds


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "collective"),
        ("Memcpy_HtoD_Pageable_-_Device", "transfer"),
        ("Memset_Device", "compute"),
        ("volta_sgemm_64x64_nt", "compute"),
    ],
)
def test_kernels_are_told_apart_by_what_their_duration_says(kernel: str, kind: str) -> None:
    """Collectives wait for peers, copies for a link; everything else computes."""
    assert kind_of(kernel) == kind


# Matching modes


def test_modes_match_by_place_not_by_duration() -> None:
    """A rank 1.2x slower, whose first mode lies where its peers' second does, is matched in order."""
    count = np.array([[600.0, 300.0], [600.0, 300.0], [600.0, 300.0], [590.0, 310.0]])
    match, modes = match_modes(count)
    assert modes.tolist() == [2]
    assert match.tolist() == [[0, 1]] * 4


def test_a_split_mode_is_left_out_and_the_others_still_match() -> None:
    """A rank whose middle mode was cut in two halves keeps its first and last."""
    count = np.array([[100.0, 100.0, 100.0, 0.0]] * 3 + [[100.0, 50.0, 50.0, 100.0]])
    match, modes = match_modes(count)
    assert modes.tolist() == [3]
    assert match[3].tolist() == [0, -1, 3]


@pytest.mark.parametrize("parts", [2, 1], ids=["most ranks tell two modes apart", "few ranks do"])
def test_a_mode_that_is_cut_in_two_here_and_not_there_is_not_matched(parts: int) -> None:
    """Two close peaks: the median of both is no shift of the larger one."""
    two, one = [128.0, 132.0], [260.0, 0.0]
    count = np.array([two, two, two, one] if parts == 2 else [one, one, one, two])
    match, modes = match_modes(count)
    assert modes.tolist() == [parts]
    assert match[3].tolist() == [-1] * parts
    assert (match[:3] >= 0).all()


def test_shift_is_the_log_ratio_to_the_role_median() -> None:
    """One of four ranks 12 % slower: ln 1.12 there, 0 elsewhere."""
    base = [(1e-3, 1.05e-3, 200.0)]
    slow = [(1.12e-3, 1.12 * 1.05e-3, 200.0)]
    shift, _, _ = pair_shift(mode_shifts(pair(base, base, slow, base), 20))
    assert shift == pytest.approx([0.0, 0.0, np.log(1.12), 0.0], abs=1e-12)


def test_a_median_that_jumps_inside_an_unchanged_mode_is_no_shift() -> None:
    """p50 up 60 % with p99 where it was: two modes that the sample did not part, not a slow rank."""
    base = [(1e-3, 4e-3, 200.0)]
    jumped = [(1.6e-3, 4e-3, 200.0)]
    shift, _, _ = pair_shift(mode_shifts(pair(base, base, jumped, base), 20))
    assert shift == pytest.approx(0.0, abs=1e-12)


def test_modes_with_too_few_events_are_not_compared() -> None:
    """19 events where 20 are needed: unknown, not 0."""
    base = [(1e-3, 1.05e-3, 200.0)]
    shift, _, _ = pair_shift(mode_shifts(pair(base, base, base, [(2e-3, 2.1e-3, 19.0)]), 20))
    assert np.isnan(shift[3])


def test_a_rank_with_other_launches_in_the_place_of_a_mode_is_not_slow() -> None:
    """Launches of two lengths, 1 : 1.5: long ones are 15 % of all, and 90 % on one rank. It is not slow."""

    def windows(fast: float, slow: float, speed: float = 1.0) -> list[tuple[float, float, float]]:
        return [(1e-3 * speed, 1.05e-3 * speed, fast), (1.5e-3 * speed, 1.575e-3 * speed, slow)]

    usual, other = windows(425.0, 75.0), windows(50.0, 450.0)
    # With and without what is left of the faster kind; and with the end of the slower one cut off by chance.
    few, tail = [*windows(50.0, 431.0), (1.8e-3, 2e-3, 19.0)], [*windows(500.0, 4410.0), (1.8e-3, 2e-3, 90.0)]
    for modes in (other, other[1:], few, tail):
        shift, _, _ = pair_shift(mode_shifts(pair(usual, usual, modes, usual), 20))
        assert np.isnan(shift[2]) or abs(shift[2]) < 0.01
    slow = windows(
        425.0, 75.0, 1.5
    )  # its faster mode lies at the slower one of the others, its slower nowhere
    shift, _, _ = pair_shift(mode_shifts(pair(usual, usual, slow, usual), 20))
    assert shift[2] == pytest.approx(np.log(1.5), abs=1e-9)


def test_of_two_ranks_one_that_runs_only_the_longer_kind_is_not_slow() -> None:
    """Its peer runs both: nobody else says which kinds there are."""
    both, longer = [(1e-3, 1.05e-3, 100.0), (2.3e-3, 2.4e-3, 20.0)], [(2.3e-3, 2.4e-3, 120.0)]
    for ranks in ((both, longer), (longer, both)):
        shift, _, _ = pair_shift(mode_shifts(pair(*ranks), 20))
        assert not np.nan_to_num(shift).any()


def test_robust_deviation_ignores_the_bad_ranks() -> None:
    """Two far ranks of nine leave the deviation of the others: 1.4826 x MAD."""
    values = np.array([-2.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 50.0, 60.0])
    assert robust_deviation(values) == pytest.approx(1.4826)


def test_a_shift_within_its_own_sampling_error_is_not_significant() -> None:
    """30 % with a standard error of 7 % is noise at five deviations, however tight the peers are."""
    values, errors = np.array([0.0, 0.0, 0.0, 0.0, 0.3]), np.array([0.0, 0.0, 0.0, 0.0, 0.07])
    assert not significant(values, errors, 0.1, CONFIG).any()
    assert significant(values, errors / 2.0, 0.1, CONFIG)[4] == 0.3


# One window


def test_a_healthy_window_has_no_evidence() -> None:
    """0.3 % noise raises nothing in 20 windows, although W1 fences are crossed in some."""
    crossed = 0
    for seed in range(20):
        result = judged(fleet(8, seed))
        assert not result.rank_evidence.any()
        assert not any(one.evidence.any() for one in result.pairs)
        crossed += sum(int(one.beyond_fence.sum()) for one in result.pairs)
    assert crossed > 0


def test_a_rank_with_slow_compute_kernels_stands_out() -> None:
    """x1.07 is under the effect floor of one kernel, and is seen in the rank as a whole."""
    result = judged(fleet(8, 1, {"5": 1.07}))
    assert np.flatnonzero(result.rank_evidence).tolist() == [5]
    assert result.rank_shift[5] == pytest.approx(np.log(1.07), abs=0.01)
    assert not any(one.evidence.any() for one in result.pairs)


@pytest.mark.parametrize(("width", "found"), [(1.1, [3]), (2.5, [])])
def test_samples_of_many_sizes_make_no_slow_rank(width: float, found: list[int]) -> None:
    """All kernels 10 % slower: evidence where launches are alike, chance where p99 is 2.5 medians."""
    kernels = ("flash", "gemm", "norm")
    speeds = np.where(np.arange(16) == 3, 1.1, 1.0) * (1.0 + 0.002 * np.arange(16))
    modes: dict[str, RankModes] = {
        str(rank): {(name, "compute0"): [(1e-3 * of, width * 1e-3 * of, 128.0)] for name in kernels}
        for rank, of in enumerate(speeds)
    }
    assert np.flatnonzero(judged(modes).rank_evidence).tolist() == found


def test_one_slow_kernel_is_not_a_slow_rank() -> None:
    """A GEMM x1.5 lifts the time-weighted mean by 14 %, but the other kernels did not move."""
    result = judged(fleet(8, 1, {"5": 1.5}, kernel=FLASH[0]))
    assert not result.rank_evidence.any()
    assert {one.kernel for one in result.pairs if one.evidence.any()} == {FLASH[0]}


def test_a_single_slow_mode_is_found() -> None:
    """One mode of a kernel 12 % slower on one rank, as W1 would dilute."""
    modes = fleet(8, 2)
    (first, second) = modes["2"][GEMM]
    modes["2"][GEMM] = [(first[0] * 1.12, first[1] * 1.12, first[2]), second]
    result = judged(modes)
    found = {one.kernel: one.evidence for one in result.pairs if one.evidence.any()}
    assert set(found) == {GEMM[0]}
    assert np.flatnonzero(found[GEMM[0]]).tolist() == [2]


def test_kernels_under_the_share_gate_raise_nothing() -> None:
    """A kernel of under 1 % of kernel time may double without a verdict."""
    modes = fleet(8, 3)
    for rank, pairs in modes.items():
        factor = 2.0 if rank == "4" else 1.0
        pairs["tiny", "compute0"] = [(60e-6 * factor, 66e-6 * factor, 64.0)]
    assert not any(one.evidence.any() for one in judged(modes).pairs)


def test_a_collective_that_is_short_only_for_the_late_rank_still_speaks() -> None:
    """Its own share falls under the gate because it is late; what the collective is to the others counts."""
    modes = fleet(8, 3)
    modes["4"][REDUCE] = [(p50 / 50, p99 / 50, n) for p50, p99, n in modes["4"][REDUCE]]
    (reduce,) = [one for one in judged(modes).pairs if one.kernel == REDUCE[0]]
    assert np.flatnonzero(reduce.evidence).tolist() == [4]
    assert reduce.share[4] < CONFIG.min_share


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_of_two_ranks_the_slower_one_alone_is_named_with_what_it_lost(factor: float) -> None:
    """No fence, no deviation: the ratio to the other counts alone, from a quarter on."""
    result = judged(fleet(2, 0, {"1": factor}))
    assert not any(one.beyond_fence.any() for one in result.pairs)
    assert result.rank_evidence[0] == 0.0
    assert np.exp(result.rank_evidence[1]) == pytest.approx(factor, rel=0.03)
    assert not judged(fleet(2, 0, {"1": 1.1})).rank_evidence.any()


# Abstaining


def abstains(modes: dict[str, RankModes]) -> Abstention:
    result = judge_role(role(modes), CONFIG)
    assert isinstance(result, Abstention)
    return result


def test_one_rank_has_nobody_to_be_compared_with() -> None:
    """Abstains with too-few-ranks."""
    assert abstains(fleet(1)).reason == "too-few-ranks"


def test_no_kernels_is_said() -> None:
    """Abstains with no-kernels and the number of ranks."""
    result = abstains({"0": {}, "1": {}, "2": {}, "3": {}})
    assert (result.reason, "4 ranks" in result.detail) == ("no-kernels", True)


def test_too_few_events_is_said_with_the_share() -> None:
    """One short step: no pair has 20 events, so nothing is judged, however far ranks are apart."""
    modes = fleet(8, 0, {"3": 2.0})
    short: dict[str, RankModes] = {
        rank: {key: [(p50, p99, 4.0) for p50, p99, _ in of_pair] for key, of_pair in pairs.items()}
        for rank, pairs in modes.items()
    }
    result = abstains(short)
    assert result.reason == "too-few-events"
    assert "0% of compute time" in result.detail


def test_a_pair_that_few_ranks_publish_is_left_out_with_the_reason() -> None:
    """Half of the ranks or fewer: there is no majority to compare with."""
    modes = fleet(8)
    modes["1"]["odd", "compute0"] = [(1e-3, 1.1e-3, 100.0)]
    (reason,) = [reason for kernel, _, reason in judged(modes).not_compared if kernel == "odd"]
    assert reason.startswith("published by 1 of 8 ranks")


# Pairs that the sick rank alone publishes


def censored(seconds: float, unpublished: float, launches: float = 100.0) -> RoleJudgement:
    modes = fleet(8, 5)
    each = seconds / launches
    modes["6"]["odd", "compute0"] = [(each, 1.1 * each, launches)]
    result = judge_role(role(modes, unpublished=unpublished), CONFIG)
    assert isinstance(result, RoleJudgement)
    return result


def test_a_pair_above_its_peers_cutoff_is_evidence_against_the_only_rank_that_publishes_it() -> None:
    """0.1 s where it took the others 0.02 s at most: at least 5 times slower, or more work."""
    (odd,) = [one for one in censored(0.1, 0.02).pairs if one.kernel == "odd"]
    assert odd.ranks.tolist() == [6]
    assert np.exp(odd.evidence) == pytest.approx([5.0], rel=0.1)
    assert odd.w1 is None
    assert odd.other_count.all()


def test_another_kernel_for_the_same_work_is_none() -> None:
    """An autotuner chose it: two of eight ranks run it instead of the one that the others run, as long."""
    modes = fleet(8)
    for rank in ("2", "5"):
        modes[rank]["tuned", "compute0"] = modes[rank].pop(GEMM)
    result = judge_role(role(modes, unpublished=1e-4), CONFIG)
    assert isinstance(result, RoleJudgement)
    assert {one.kernel for one in result.pairs} >= {GEMM[0], "tuned"}
    assert not any(one.evidence.any() for one in result.pairs)


def test_a_pair_that_just_passed_the_cutoff_is_none() -> None:
    """10 % above the most it took elsewhere may be nothing at all."""
    (odd,) = [one for one in censored(0.022, 0.02).pairs if one.kernel == "odd"]
    assert not odd.evidence.any()
    assert odd.shift == pytest.approx([np.log(1.1)], rel=0.2)


def test_without_a_cutoff_such_a_pair_is_not_compared() -> None:
    """Peers that do not say what an unpublished pair took at most say nothing."""
    ((kernel, _, reason),) = censored(0.1, np.nan).not_compared
    assert kernel == "odd"
    assert reason.startswith("published by 1 of 8 ranks, and too few of the others say")


def test_a_censored_pair_does_not_make_the_whole_rank_slow() -> None:
    """Its weight on the median rank is nothing."""
    assert not censored(0.1, 0.02).rank_evidence.any()


# Verdicts


def test_a_slow_rank_in_two_of_three_windows_is_the_culprit() -> None:
    """All its compute kernels are named, and the rank as a whole."""
    slow = {"3": 1.2}
    found = verdicts(fleet(8, 0), fleet(8, 1, slow), fleet(8, 2, slow))
    assert culprits(found) == ["3"]
    assert {one.kernel for one in found} == {ALL_KERNELS, GEMM[0], FLASH[0], NORM[0]}
    assert {(one.cause, one.verdict, one.team) for one in found} == {("gpu-compute", "culprit", "operations")}
    assert all((one.windows, one.looked_at) == (2, 3) for one in found)


def test_one_bad_window_is_no_verdict() -> None:
    """Evidence in one window of three does not persist."""
    assert verdicts(fleet(8, 0), fleet(8, 1, {"3": 1.5}), fleet(8, 2)) == []


def test_a_verdict_ends_when_it_falls_out_of_the_windows() -> None:
    """Two healthy windows after two slow ones: one of three is left."""
    slow = {"3": 1.5}
    assert verdicts(fleet(8, 0, slow), fleet(8, 1, slow), fleet(8, 2), fleet(8, 3)) == []


def test_a_faster_rank_is_no_culprit() -> None:
    """Shorter compute kernels are shown, never blamed."""
    fast = {"3": 0.8}
    assert verdicts(fleet(8, 0, fast), fleet(8, 1, fast)) == []


def test_slow_copies_are_a_transfer_fault() -> None:
    """Memory copies x3 on one rank: gpu-transfer, and the rank's compute is not accused."""
    windows = [fleet(8, seed, {"6": 3.0}, kinds=("transfer",)) for seed in range(2)]
    assert {(one.rank, one.kernel, one.cause) for one in verdicts(*windows)} == {
        ("6", COPY[0], "gpu-transfer")
    }


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_collectives_alone_accuse_nobody(factor: float) -> None:
    """Healthy ranks differ by 100-220 % in collectives, by when they arrive."""
    windows = [fleet(8, seed, {"2": factor}, kinds=("collective",)) for seed in range(3)]
    assert verdicts(*windows) == []


def test_collectives_confirm_the_culprit_and_name_the_victim() -> None:
    """The slow rank arrives late (shortest collective); a peer that waits longest is its victim."""
    windows = []
    for seed in range(2):
        modes = fleet(8, seed, {"3": 1.2})
        for rank, factor in (("3", 0.3), ("5", 2.0)):
            modes[rank][REDUCE] = [(p50 * factor, p99 * factor, n) for p50, p99, n in modes[rank][REDUCE]]
        windows.append(modes)
    found = {(one.rank, one.cause, one.verdict) for one in verdicts(*windows) if one.kernel == REDUCE[0]}
    assert found == {("3", "collective-late", "culprit"), ("5", "collective-wait", "victim")}


def test_a_third_of_the_fleet_slow_is_found_where_the_fence_is_blind() -> None:
    """Three of eight ranks: medians still hold, and all three are named."""
    slow = {"1": 1.3, "4": 1.3, "6": 1.3}
    assert culprits(verdicts(fleet(8, 0, slow), fleet(8, 1, slow))) == ["1", "4", "6"]
