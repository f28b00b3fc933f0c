"""What a cycle does not conclude: from parts of answers, from two jobs of one name, from refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from argus_core import remote_write
from argus_l3_worker import job
from argus_l3_worker.cycle import CycleReport, Worker
from argus_l3_worker.errors import PartialAnswer, QueryError
from l3_worker.backends import Backend, vector
from l3_worker.cycles import cycles, one_cycle

pytestmark = pytest.mark.servers


def ranks_of(*series: dict[str, str]) -> Callable[[str], tuple[int, Any]]:
    """Ranks of a job without kernels, with these labels besides; the number of a rank is its place."""
    info = [
        {"metric": {"training_job": "llm", "rank": str(rank)} | one, "value": [0, "1"]}
        for rank, one in enumerate(series)
    ]
    return lambda query: (200, vector(*info) if query.startswith("argus_rank_info") else vector())


@pytest.mark.parametrize(
    ("series", "written"),
    [
        ([{}, {}], None),
        ([{"cluster": "a"}, {"cluster": "a"}], "a"),
        (
            [{"node": "host0", "instance": "host0:1"}, {"rank": "0", "node": "host1", "instance": "host1:1"}],
            None,
        ),
    ],
    ids=["no cluster", "one cluster", "a rank that moved"],
)
def test_what_is_written_of_a_job_is_in_its_cluster(
    series: list[dict[str, str]], written: str | None
) -> None:
    """Rules know a job by cluster and name."""
    with Backend(ranks_of(*series)) as backend:
        report = cycles(backend.url, lambda worker: worker.cycle(60.0, 60.0))
        (abstention,) = abstentions_written(backend)
    assert [one.reason for one in report.abstentions] == ["no-kernels"]
    assert (abstention["reason"], abstention.get("cluster")) == ("no-kernels", written)


@pytest.mark.parametrize(
    ("series", "why"),
    [
        ([{"cluster": "a"}, {"cluster": "b"}], "differ in cluster: a, b"),
        ([{}, {"cluster": "b"}], "differ in cluster: (none), b"),
        ([{"__tenant_id__": "a"}, {"__tenant_id__": "b"}], "differ in __tenant_id__: a, b"),
        ([{"vm_account_id": "1"}, {"vm_account_id": "2"}], "differ in vm_account_id: 1, 2"),
        (
            [
                {"instance": "host0:1", "prometheus": "x"},
                {"rank": "0", "instance": "host0:1", "prometheus": "y"},
            ],
            "rank 0 is there twice and differs in prometheus",
        ),
    ],
    ids=["clusters", "one without", "tenants of Mimir", "of VictoriaMetrics", "two servers"],
)
def test_two_jobs_of_one_name_are_not_judged_as_one(series: list[dict[str, str]], why: str) -> None:
    """Nor what two servers tell of one job, where nobody made one of both."""
    with Backend(ranks_of(*series)) as backend:
        report = cycles(backend.url, lambda worker: worker.cycle(60.0, 60.0))
        (abstention,) = abstentions_written(backend)
    ((reason, detail),) = [(one.reason, one.detail) for one in report.abstentions]
    assert (reason, abstention["reason"]) == ("not-one-job", "not-one-job") and detail.endswith(why)


@pytest.mark.parametrize(
    "mark", [{"isPartial": True}, {"warnings": ["store 10.0.0.3:10901 is not reachable"]}]
)
def test_an_incomplete_answer_is_not_judged_and_its_window_is_judged_later(mark: dict[str, Any]) -> None:
    """VictoriaMetrics' isPartial and Thanos' warnings: an abstention with the warning, no judgement."""
    info = {"metric": {"training_job": "llm", "rank": "0"}, "value": [0, "1"]}
    broken = True

    def answer(query: str) -> tuple[int, Any]:
        if query.startswith("argus_rank_info"):
            return 200, vector(info)
        if query.startswith("argus_kernel_window_steps"):
            return 200, vector({"metric": info["metric"], "value": [0, "0"]})
        if query.startswith("count by (kernel)"):
            return 200, vector({"metric": {"kernel": "gemm"}, "value": [0, "2"]})
        return 200, vector(**(mark if broken and query.startswith("max by (rank, kernel") else {}))

    async def two_cycles(worker: Worker) -> list[CycleReport]:
        nonlocal broken
        first = await worker.cycle(1000.0, 1000.0)
        broken = False
        return [first, await worker.cycle(1060.0, 1060.0)]

    with Backend(answer) as backend:
        first, second = cycles(backend.url, two_cycles)
    (abstention,) = first.abstentions
    assert (abstention.reason, first.windows_judged) == ("partial-answer", 0)
    assert (mark.get("warnings") or ["isPartial"])[0] in abstention.detail
    assert second.windows_judged == 3
    assert "partial-answer" not in {one.reason for one in second.abstentions}


def abstentions_written(backend: Backend) -> list[dict[str, str]]:
    """Their labels, those that end as well, in order."""
    written = [
        dict(remote_write.decode_labels(one))
        for request in backend.requests
        if request.path == "/api/v1/write"
        for one in remote_write.unpack(request.body)
    ]
    return [labels for labels in written if labels["__name__"] == "argus_l3_abstain"]


def abstentions_of_two_cycles(
    answer: Callable[[str], tuple[int, Any]], mend: Callable[[], None]
) -> list[dict[str, str]]:
    """What is written of a cycle that fails, and of the next, which is good."""

    async def two_cycles(worker: Worker) -> None:
        with pytest.raises((QueryError, ZeroDivisionError)):
            await worker.cycle(60.0, 60.0)
        await worker.report_failure(60.0)
        mend()
        await worker.cycle(120.0, 120.0)

    with Backend(answer) as backend:
        cycles(backend.url, two_cycles)
        return abstentions_written(backend)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (422, {"status": "error", "errorType": "execution", "error": "max-series"}, "not-answered"),
        (200, vector({"metric": {"rank": "0"}, "value": [0, "1"]}), "failed"),
    ],
)
def test_why_the_only_job_was_not_judged_is_written_though_the_cycle_failed(
    monkeypatch: pytest.MonkeyPatch, status: int, body: dict[str, Any], reason: str
) -> None:
    """Its reason ends with the next good cycle; of a success that never was nothing is said."""
    broken = True

    def answer(query: str) -> tuple[int, Any]:
        if query.startswith("argus_rank_info{}"):
            return 200, vector({"metric": {"training_job": "llm", "rank": "0"}, "value": [0, "1"]})
        return (status, body) if broken and "argus_kernel_window_steps" in query else (200, vector())

    def mend() -> None:
        nonlocal broken
        broken = False
        monkeypatch.undo()

    monkeypatch.setattr(job, "due", lambda *_: 1 // 0)
    said = [labels["reason"] for labels in abstentions_of_two_cycles(answer, mend)]
    assert said[0] == reason and sorted(map(str, said[1:])) == sorted([reason, "no-kernels"])


def test_a_store_that_does_not_say_which_jobs_there_are_is_the_reason_of_all() -> None:
    """The first answer of a cycle is incomplete: each known job is said not to be judged, and why."""
    info = vector({"metric": {"training_job": "llm", "rank": "0"}, "value": [0, "1"]})
    warning = {"warnings": ["store 10.0.0.3:10901 is not reachable"]}
    broken = False

    def answer(query: str) -> tuple[int, Any]:
        if query.startswith("argus_rank_info{}"):
            return 200, (info | warning if broken else info)
        return 200, vector()

    async def two_cycles(worker: Worker) -> None:
        nonlocal broken
        await worker.cycle(60.0, 60.0)
        broken = True
        with pytest.raises(PartialAnswer):
            await worker.cycle(120.0, 120.0)
        await worker.report_failure(120.0)

    with Backend(answer) as backend:
        cycles(backend.url, two_cycles)
        *_, last = abstentions_written(backend)
    assert (last["training_job"], last["reason"]) == ("llm", "partial-answer")


def test_a_worker_that_knows_no_job_yet_says_that_it_cannot_learn_of_them() -> None:
    """It starts while the store answers in part: a series of no job, which the first good cycle ends."""
    info = vector({"metric": {"training_job": "llm", "rank": "0"}, "value": [0, "1"]})
    broken = True

    def answer(query: str) -> tuple[int, Any]:
        return 200, (
            info | {"warnings": ["no store"] if broken else []}
        ) if "rank_info{}" in query else vector()

    def mend() -> None:
        nonlocal broken
        broken = False

    first, *others = abstentions_of_two_cycles(answer, mend)
    assert (first.get("training_job"), first["reason"]) == (None, "partial-answer")
    assert {one["reason"] for one in others} == {"partial-answer", "no-kernels"}, "the former is ended"


def test_a_restarted_worker_ends_what_it_finds_with_labels_of_the_store() -> None:
    """Thanos and a pair put `replica` and its like beside ours; the series ends that was written."""
    written = {
        "__name__": "argus_l3_anomaly",
        "training_job": "llm",
        "rank": "3",
        "cluster": "x",
    }
    found = vector(
        {"metric": written | {"replica": "b", "prometheus": "monitoring/k8s"}, "value": [0, "0.2"]}
    )

    def answer(query: str) -> tuple[int, Any]:
        if query == 'argus_l3_anomaly{worker=""}':
            return 200, found
        info = {"training_job": "llm", "rank": "3", "cluster": "x"}
        return 200, vector(*[{"metric": info, "value": [0, "1"]}] * query.startswith("argus_rank_info"))

    with Backend(answer) as backend:
        cycles(backend.url, lambda worker: worker.cycle(60.0, 60.0))
        bodies = [request.body for request in backend.requests if request.path == "/api/v1/write"]
    series = [remote_write.decode_labels(one) for body in bodies for one in remote_write.unpack(body)]
    assert [dict(one) for one in series if dict(one)["__name__"] == "argus_l3_anomaly"] == [written]


@pytest.mark.parametrize("refused", ["big", "big|small"])
def test_a_job_whose_queries_are_refused_ends_no_watch_over_others(refused: str) -> None:
    """As by a tenant's limit of series; a cycle fails where nobody could be judged."""

    def answer(query: str) -> tuple[int, Any]:
        if query.startswith("argus_rank_info{}"):
            ranks = [{"training_job": job, "rank": rank} for job in ("big", "small") for rank in "01"]
            return 200, vector(*({"metric": rank, "value": [0, "1"]} for rank in ranks))
        if re.search(f'training_job="({refused})', query):
            return 422, {"status": "error", "errorType": "execution", "error": "max-series exceeded"}
        return 200, vector()

    with Backend(answer) as backend:
        if "small" in refused:
            with pytest.raises(QueryError, match="max-series"):
                one_cycle(backend.url, 60.0)
            return
        report = one_cycle(backend.url, 60.0)
    assert report.delivered
    assert {(one.training_job, one.reason) for one in report.abstentions} == {
        ("big", "not-answered"),
        ("small", "no-kernels"),
    }


@pytest.mark.parametrize("said_by", ["", "remote query warning (10.0.0.2:10901): "])
def test_remarks_of_promql_are_no_missing_data(said_by: str) -> None:
    """Prometheus 2.48 and later put hints on the query beside warnings of stores; Thanos hands them on."""
    hint = "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket"
    with Backend(lambda _: (200, vector(warnings=[said_by + hint]))) as backend:
        assert one_cycle(backend.url, 1000.0).abstentions == ()
