"""What dashboards show of a few jobs in a real Prometheus; two have one name, in two clusters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_core.remote_write import Labels
from argus_dashboards.inspection import panels, queries
from argus_dashboards.probe import Answer, Source, Span, all_uids, load, resolve
from argus_dashboards.theme import STATE_COLOURS_OF_JOB
from argus_preview import frames

pytestmark = pytest.mark.servers
JOB = "llm"
COSTS = {"a": 0.2, "b": 0.3}
"""Share of the time that rank 1 costs the job of each cluster."""
RANKS_AT_FAULT = "Whose fault it is: ranks"
OTHERS_AT_FAULT = "Whose fault it is: links, sets, or the whole job"
TARGET = {"job": "argus", "instance": "10.0.0.1:9877"}
"""Hosts of two clusters may have one address."""
BEGAN = float(int(time.time()) - 200)
HANGS = {"rank": "3", "verdict": "culprit", "cause": "hang-host", "team": "operations", "level": "L1"}


def series(cluster: str, place: int) -> Iterator[tuple[Labels, float]]:
    """A job of two ranks, of which rank 1 is slow; its ranks are elsewhere in the job of each cluster."""

    def of(name: str, value: float, **labels: str) -> tuple[Labels, float]:
        return remote_write.labels_of(name, cluster=cluster, training_job=JOB, **labels), value

    phase = {"phase": "forward", "kind": "compute", "group": "stage:0", "source": "event"}
    for rank in ("0", "1"):
        where = {"node": f"{cluster}{rank}", "gpu_uuid": f"GPU-{cluster}{rank}", "role": "pp0"}
        coordinates = {"dp": str(int(rank) + place), "tp": "0", "pp": "0", "ep": "0"}
        yield of("argus_rank_info", 1, rank=rank, **where, **coordinates)
        yield of("argus_rank_up", 1, rank=rank, **TARGET)
        yield of("argus_group_expected_ranks", 3, rank=rank, group="dp")
        yield of("rank:argus_phase_duration_seconds:mean", 1.0 + int(rank), rank=rank, **phase)
        yield of("argus_kernel_mode_p50_seconds", 1.0, rank=rank, kernel="k", stream="compute0", mode="0")
        yield of("argus_channel_up", 0, rank=rank, channel="kernels")
        yield of("argus_channel_info", 1, rank=rank, channel="kernels", reason="lost")
    for name in ("argus_exporter_build_info", "scrape_samples_scraped"):
        yield remote_write.labels_of(name, cluster=cluster, **TARGET), 100.0
    yield of("group:argus_ranks:expected", 3, group="dp")
    # On another stream the same kernel takes ten times as long, on both ranks alike.
    for rank, seconds in (("0", 10.0), ("1", 12.0)):
        yield of("argus_kernel_mode_p50_seconds", seconds, rank=rank, kernel="k", stream="compute1", mode="0")
    yield of("rank:argus_phase_duration_seconds:median_ratio", 2.0, rank="1", **phase)
    for name, value in (
        ("group:argus_phase_duration_seconds:median", 1.0),
        ("group:argus_phase_spans:rate", 0.3),
        ("group:argus_phase_ranks:count", 2.0),
    ):
        yield of(name, value, **phase)
    cost = COSTS[cluster]
    named = {"rank": "1", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    alert = {**named, "alertname": "ArgusStragglerRank", "severity": "page"}
    yield of("rank:argus_finding:lost_ratio", cost, **named)
    yield of("rank:argus_finding:onset_timestamp_seconds", BEGAN, **named)
    yield of("rank:argus_verdict:lost_ratio", cost, row="gpu-compute", **named, **phase)
    yield of("ALERTS", 1, alertstate="firing", **alert)
    yield of("ALERTS_FOR_STATE", BEGAN, **alert)
    yield of("rank:argus_finding:place", 1, rank="1", node=f"{cluster}1", gpu_uuid=f"GPU-{cluster}1")
    late = {"rank": "0", "cause": "collective-late", "phase": "dp-allreduce", "group": "dp"}
    yield of("rank:argus_evidence:lost_ratio", cost, detector="shortest", **late)
    yield of("rank:argus_exclusion:lost_ratio", cost, by="gpu-compute", by_rank="1", at="job", **late)
    yield of("rank:argus_evidence:lost_ratio", cost, cause="regression", detector="change")
    yield of("job:argus_iteration:regression_ratio", 1 / (1 - cost), rank="0")
    yield of("job:argus_iteration:class", 1, **{"class": "regression"})
    yield of("job:argus_lost:ratio", cost)
    yield of("job:argus_ranks:count", 2)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """Both jobs, for five minutes."""
    server = PrometheusServer(tmp_path_factory.mktemp("prometheus"))
    told = [one for place, cluster in enumerate(COSTS) for one in series(cluster, place)] + [
        *a_set("a"),
        *a_stall(),
        *a_move("a"),
    ]
    try:
        server.start()
        end = int(time.time())
        for at in range(end - 300, end + 1, 15):
            server.write([remote_write.encode_series(labels, value, at * 1000) for labels, value in told])
        yield Source(server.url, Span(float(end), 300.0))
    finally:
        server.stop()


def a_set(cluster: str) -> Iterator[tuple[Labels, float]]:
    """One of the ranks of a tensor-parallel group is slow, and they wait for one another."""
    job = {"cluster": cluster, "training_job": "tp", "set": "tp:dp0"}
    named = {**job, "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    yield remote_write.labels_of("rank:argus_finding:lost_ratio", **named), 0.1
    for rank in ("0", "1"):
        where = {"rank": rank, "phase": "forward", "group": "stage:0"}
        verdict = {**named, **where, "row": "suspect-set"}
        yield remote_write.labels_of("rank:argus_verdict:lost_ratio", **verdict), 0.1
        seen = {**job, **where, "cause": "suspect-set", "detector": "mean"}
        yield remote_write.labels_of("rank:argus_evidence:lost_ratio", **seen), 0.1


def a_stall() -> Iterator[tuple[Labels, float]]:
    """A job that stands still, of which a finding is still remembered."""
    for name, value, labels in (
        ("job:argus_stalled:seconds", 600.0, {}),
        ("job:argus_iteration:class", 1.0, {"class": "stable"}),
        ("job:argus_lost:ratio", 0.1, {}),
        ("job:argus_ranks:count", 4.0, {}),
        ("rank:argus_verdict:active", 1.0, HANGS),
    ):
        yield remote_write.labels_of(name, cluster="a", training_job="still", **labels), value


def a_move(cluster: str) -> Iterator[tuple[Labels, float]]:
    """The same job once more, of which rank 1 moved: its old host is still there beside the new one.

    Of twelve ranks that it should have it lost one, and nine are on hosts that nobody hears.
    """
    job = {"cluster": cluster, "training_job": "moved"}
    yield remote_write.labels_of("argus_job_world_size", **job, rank="0"), 12
    yield remote_write.labels_of("argus_rank_up", **job, rank="5"), 0
    for labels, value in series(cluster, 0):
        moved = dict(labels) | ({"training_job": "moved"} if "training_job" in dict(labels) else {})
        name = moved.pop("__name__")
        yield remote_write.labels_of(name, **moved), value
        if name == "argus_rank_info" and moved["rank"] == "1":
            yield remote_write.labels_of(name, **moved | {"node": "new", "gpu_uuid": "GPU-new"}), value


def ask(source: Source, uid: str, cluster: str, job: str = JOB) -> list[Answer]:
    given = {"training_job": job, "cluster": cluster, "kernel": "k", "role": "pp0", "rank": "1"}
    values = resolve(source, load(uid), given)
    asked = (query for query in queries(load(uid)) if not query.panel.startswith("variable "))
    return [source.ask(query, values) for query in asked]


@pytest.mark.parametrize(("cluster", "job"), [(".*", JOB), ("a", JOB), ("a", "moved")])
@pytest.mark.parametrize("uid", all_uids())
def test_no_query_is_refused(uid: str, cluster: str, job: str, source: Source) -> None:
    """Whether a cluster is chosen or all of them, and while a rank is on two hosts."""
    assert [(one.query.panel, one.error) for one in ask(source, uid, cluster, job) if one.error] == []


@pytest.mark.parametrize("job", [JOB, "tp", "still"])
@pytest.mark.parametrize("uid", all_uids())
def test_no_empty_cell_is_a_link(uid: str, job: str, source: Source) -> None:
    """Grafana cannot leave a link out: one of an empty cell leads to a rank or a page that does not exist."""
    answers: dict[str, list[Answer]] = {}
    for answer in ask(source, uid, "a", job):
        answers.setdefault(answer.query.panel, []).append(answer)
    for panel in panels(load(uid)):
        if panel["type"] == "table":
            _, rows = frames.table(
                [answer.result for answer in answers[panel["title"]]], panel["transformations"]
            )
            for linked in (override["matcher"]["options"] for override in linking(panel)):
                assert all(row.get(linked) for row in rows), (panel["title"], linked, rows)


def linking(panel: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for override in panel["fieldConfig"]["overrides"]:
        if any(one["id"] == "links" for one in override["properties"]):
            yield override


def test_a_job_says_whom_to_call_where_and_since_when(source: Source) -> None:
    """In its row of ARGUS / Jobs: rank, host, how loud it was told, and when it was first there."""
    shown = [answer for answer in ask(source, "argus-jobs", "a") if answer.query.panel == "Training jobs"]
    [panel] = [panel for panel in panels(load("argus-jobs")) if panel["title"] == "Training jobs"]
    _, rows = frames.table([answer.result for answer in shown], panel["transformations"])
    by_job = {row["Job"]: row for row in rows}

    assert (by_job[JOB]["To blame"], by_job[JOB]["Host"]) == ("rank 1", "a1")
    assert by_job[JOB]["Since"] == pytest.approx(1000 * BEGAN)
    assert by_job[JOB]["Told"] == 2 and by_job["tp"]["Told"] is None
    assert by_job["still"]["Since"] == pytest.approx(1000 * (source.span.end - 600))
    assert by_job["tp"]["To blame"] == "tp:dp0"


def test_a_kernel_is_compared_within_its_stream(source: Source) -> None:
    """The rank that is slow on one of two streams by 1.09 of the median is not ten times slower."""
    answers = ask(source, "argus-kernel", "a")
    [spread] = [one for one in answers if one.query.panel == "Slowest rank against the median"]
    assert float(spread.result[0]["value"][1]) == pytest.approx(12 / 11)
    [places] = [
        one for one in answers if "max by (place)" in one.query.expr and one.query.panel == "Slowest places"
    ]
    assert max(float(row["value"][1]) for row in places.result) == pytest.approx(12 / 11)


def test_ranks_of_a_group_are_missing_in_each_cluster(source: Source) -> None:
    """One of three, whether a cluster is chosen or all of them."""
    for cluster in ("a", ".*"):
        answers = ask(source, "argus-job", cluster)
        [missing] = [one for one in answers if one.query.panel == "Ranks missing"]
        assert float(missing.result[0]["value"][1]) == 1


def test_who_is_lost_hides_nobody_who_is_missing(source: Source) -> None:
    """All that do not live are missing from a job whose size is known."""
    answers = ask(source, "argus-job", "a", "moved")
    [missing] = [one for one in answers if one.query.panel == "Ranks missing"]
    assert float(missing.result[0]["value"][1]) == 10


def test_without_data_nothing_is_said_to_be_well(source: Source) -> None:
    """Of a job that nobody has heard of every number is missing, rather than 0."""
    numbers = {panel["title"] for uid in all_uids() for panel in panels(load(uid)) if panel["type"] == "stat"}
    for uid in ("argus-job", "argus-rank", "argus-kernel"):
        for answer in ask(source, uid, "a", "nobody"):
            assert answer.query.panel not in numbers or answer.result == [], answer


def test_each_has_its_row_and_its_cost(source: Source) -> None:
    """ARGUS / Jobs shows what the job of either cluster loses."""
    lost = {
        one["metric"]["cluster"]: float(one["value"][1])
        for answer in ask(source, "argus-jobs", ".*")
        if (answer.query.panel, answer.query.ref) == ("Training jobs", "D")
        for one in answer.result
        if one["metric"]["training_job"] == JOB
    }
    assert lost == pytest.approx(COSTS)


def test_a_chosen_cluster_shows_its_own_host(source: Source) -> None:
    """Rank 1 of cluster b is on another host than rank 1 of cluster a."""
    (found,) = (
        one["metric"]
        for answer in ask(source, "argus-job", "b")
        if answer.query.panel == RANKS_AT_FAULT
        for one in answer.result
    )
    assert (found["node"], found["phase"], found["alertname"]) == ("b1", "forward", "ArgusStragglerRank")


def test_of_a_set_the_phase_and_the_ranks_are_shown(source: Source) -> None:
    """It is named without a rank; those that stand out are listed beside it."""
    answers = {answer.query.panel: answer.result for answer in ask(source, "argus-job", "a", "tp")}
    (found,) = (one["metric"] for one in answers[OTHERS_AT_FAULT])
    assert (found["set"], found["row"], found["phase"], found.get("rank")) == (
        "tp:dp0",
        "suspect-set",
        "forward",
        None,
    )
    assert {one["metric"]["rank"] for one in answers["Suspect sets"]} == {"0", "1"}


def test_a_job_that_stands_still_loses_everything(source: Source) -> None:
    """Whatever was found before; whoever hangs costs that, and the job is stalled."""
    answers = {answer.query.panel: answer.result for answer in ask(source, "argus-job", "a", "still")}

    def value(panel: str) -> float:
        (one,) = answers[panel]
        return float(one["value"][1])

    assert value("Time lost now") == 1.0
    assert value("GPUs lost now") == 4.0
    assert value("State of the job") == [*STATE_COLOURS_OF_JOB].index("stalled")
    assert (value(RANKS_AT_FAULT), answers[RANKS_AT_FAULT][0]["metric"]["rank"]) == (1.0, "3")
