"""The papers' methods as verdicts, and what is published beside every anomaly."""

from __future__ import annotations

import numpy as np
import pytest
from bench.l3_tables import judge_role

from argus_core.settings import SettingsError, from_mapping
from argus_l3_worker.judge.config import JudgeConfig, Method
from argus_l3_worker.judge.methods import judged_by_method
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import History, Verdict, culprits, decide
from argus_l3_worker.write import results
from l3_worker.fleets import GEMM, RankModes, fleet
from l3_worker.test_judge import role


def judged(modes: dict[str, RankModes], method: Method) -> RoleJudgement:
    config = JudgeConfig(method=method)
    result = judge_role(role(modes), config)
    assert isinstance(result, RoleJudgement)
    return judged_by_method(result, config)


def verdicts(method: Method, **of_fleet: object) -> list[Verdict]:
    """Of two windows of 16 ranks."""
    history = History(3, 2)
    for seed in (1, 2):
        history.add(judged(fleet(16, seed=seed, **of_fleet), method))  # type: ignore[arg-type]
    return decide("llm", [("pp0.tp0", history)])


@pytest.mark.parametrize("method", ["modes", "w1-iqr", "eroica"])
def test_a_kernel_twice_as_slow_is_found_by_every_method(method: Method) -> None:
    """Rank 3's gemm, and nobody else's."""
    found = verdicts(method, slow={"3": 2.0}, kernel=GEMM[0])
    assert culprits(found) == ["3"]
    assert {one.kernel for one in found if one.verdict == "culprit"} >= {GEMM[0]}


@pytest.mark.parametrize(("method", "named"), [("modes", ["3"]), ("w1-iqr", ["3"]), ("eroica", [])])
def test_a_kernel_20_percent_slower_is_less_than_eroica_sees(method: Method, named: list[str]) -> None:
    """Its delta is 0.4 of a share."""
    assert culprits(verdicts(method, slow={"3": 1.2})) == named


@pytest.mark.parametrize(("method", "named"), [("modes", []), ("w1-iqr", ["3"]), ("eroica", [])])
def test_a_rank_one_percent_slower_is_beyond_the_fence_and_no_effect(
    method: Method, named: list[str]
) -> None:
    """Why the paper's fence is not the default: it has no size."""
    assert culprits(verdicts(method, slow={"3": 1.015})) == named


def test_a_faster_rank_is_as_far_away_and_no_culprit() -> None:
    """W1 has no sign; the mean launch has."""
    judgement = judged(fleet(16, slow={"3": 0.8}), "w1-iqr")
    gemm = next(pair for pair in judgement.pairs if pair.kernel == GEMM[0])
    assert gemm.evidence[3] == pytest.approx(np.log(0.8), abs=0.02)
    assert culprits(verdicts("w1-iqr", slow={"3": 0.8})) == []


@pytest.mark.parametrize("ranks", [2, 3, 4, 16])
def test_a_published_anomaly_carries_w1_fence_and_iqr_over_the_whole_role(ranks: int) -> None:
    """Also in roles of two and three ranks, and where the verdict is of all kernels."""
    judgement = judged(fleet(ranks, slow={"1": 2.0}), "modes")
    history = History(3, 2)
    for _ in range(2):
        history.add(judgement)
    found = decide("llm", [("pp0.tp0", history)])
    assert culprits(found) == ["1"]
    written = [dict(labels) for labels, _ in results.of_deviations([judgement], found, (), "")]
    for verdict in found:
        of_kernel = [
            one["__name__"] for one in written if verdict.kernel in ("all", one.get("kernel"))
            and one.get("rank", verdict.rank) == verdict.rank
        ]  # fmt: skip
        assert {f"argus_l3_kernel_w1{of}_seconds" for of in ("", "_fence", "_iqr")} <= set(of_kernel)


def test_an_anomaly_keeps_its_w1_over_a_window_without_its_kernel() -> None:
    """The verdict holds on two of three windows; W1 is of the newest that has the kernel."""
    slow = fleet(8, slow={"1": 2.0})
    other = {
        rank: {key: of for key, of in kernels.items() if key != GEMM} for rank, kernels in fleet(8).items()
    }
    history, latest = History(3, 2), judged(other, "modes")
    for one in (judged(slow, "modes"), judged(slow, "modes"), latest):
        history.add(one)
    found = [one for one in decide("llm", [("pp0.tp0", history)]) if one.kernel == GEMM[0]]
    assert [one.rank for one in found] == ["1"]
    for newest in ([latest], []):  # the last was judged, or abstained
        written = [dict(of) for of, _ in results.of_deviations([*newest, *history.telling()], found, (), "")]
        assert {one["kernel"] for one in written if one["__name__"] == "argus_l3_kernel_w1_seconds"} == {
            GEMM[0]
        }


def test_a_gpu_that_is_slow_as_a_whole_keeps_the_w1_of_its_costliest_kernel() -> None:
    """No kernel of it is beyond its own bar, and the newest window was not judged."""
    history = History(3, 2)
    for seed in (1, 2):
        history.add(judged(fleet(8, seed=seed, slow={"1": 1.07}), "modes"))
    history.add(None)
    found = decide("llm", [("pp0.tp0", history)])
    assert {(one.rank, one.kernel) for one in found} == {("1", "all")}
    assert all(len(judgement.pairs) == 1 for judgement in history.telling()), "and holds no other"
    written = [dict(of) for of, _ in results.of_deviations(history.telling(), found, (), "")]
    names = {one["__name__"] for one in written if one.get("rank", "1") == "1"}
    assert {f"argus_l3_kernel_w1{of}_seconds" for of in ("", "_fence", "_iqr")} <= names


def test_a_method_that_nobody_knows_is_refused_with_those_that_are_allowed() -> None:
    """`judge.method` in the worker's file."""
    with pytest.raises(SettingsError, match="'z-score'; allowed: modes, w1-iqr, eroica"):
        from_mapping(JudgeConfig, {"method": "z-score"}, "worker.yml")
