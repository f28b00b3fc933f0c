"""Two clusters with a job of one name, as a Prometheus that holds both shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_core.remote_write import Labels
from argus_dashboards.inspection import queries
from argus_dashboards.probe import Answer, Source, Span, all_uids, load, resolve

pytestmark = pytest.mark.servers
JOB = "llm"
COSTS = {"a": 0.2, "b": 0.3}
"""Share of the time that rank 1 costs the job of each cluster."""


def series(cluster: str, place: int) -> Iterator[tuple[Labels, float]]:
    """A job of two ranks, of which rank 1 is slow; its ranks are elsewhere in the job of each cluster."""

    def of(name: str, value: float, **labels: str) -> tuple[Labels, float]:
        return remote_write.labels_of(name, cluster=cluster, training_job=JOB, **labels), value

    phase = {"phase": "forward", "kind": "compute", "group": "stage:0", "source": "event"}
    for rank in ("0", "1"):
        where = {"node": f"{cluster}{rank}", "gpu_uuid": f"GPU-{cluster}{rank}", "role": "pp0"}
        coordinates = {"dp": str(int(rank) + place), "tp": "0", "pp": "0", "ep": "0"}
        yield of("argus_rank_info", 1, rank=rank, **where, **coordinates)
        yield of("argus_rank_up", 1, rank=rank)
        yield of("rank:argus_phase_duration_seconds:mean", 1.0 + int(rank), rank=rank, **phase)
        yield of("argus_kernel_mode_p50_seconds", 1.0, rank=rank, kernel="k", stream="compute0", mode="0")
        yield of("argus_channel_up", 0, rank=rank, channel="kernels")
        yield of("argus_channel_info", 1, rank=rank, channel="kernels", reason="lost")
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
    yield of("rank:argus_verdict:lost_ratio", cost, row="gpu-compute", **named, **phase)
    yield of("ALERTS", 1, alertstate="firing", **alert)
    yield of("ALERTS_FOR_STATE", time.time(), **alert)
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
    told = [one for place, cluster in enumerate(COSTS) for one in series(cluster, place)]
    try:
        server.start()
        end = int(time.time())
        for at in range(end - 300, end + 1, 15):
            server.write([remote_write.encode_series(labels, value, at * 1000) for labels, value in told])
        yield Source(server.url, Span(float(end), 300.0))
    finally:
        server.stop()


def ask(source: Source, uid: str, cluster: str) -> list[Answer]:
    given = {"training_job": JOB, "cluster": cluster, "kernel": "k", "role": "pp0", "rank": "1"}
    values = resolve(source, load(uid), given)
    asked = (query for query in queries(load(uid)) if not query.panel.startswith("variable "))
    return [source.ask(query, values) for query in asked]


@pytest.mark.parametrize("cluster", [".*", "a"])
@pytest.mark.parametrize("uid", all_uids())
def test_no_query_is_refused(uid: str, cluster: str, source: Source) -> None:
    """Whether a cluster is chosen or all of them."""
    assert [(one.query.panel, one.error) for one in ask(source, uid, cluster) if one.error] == []


def test_each_has_its_row_and_its_cost(source: Source) -> None:
    """ARGUS / Jobs shows what the job of either cluster loses."""
    lost = {
        one["metric"]["cluster"]: float(one["value"][1])
        for answer in ask(source, "argus-jobs", ".*")
        if (answer.query.panel, answer.query.ref) == ("Training jobs", "D")
        for one in answer.result
    }
    assert lost == pytest.approx(COSTS)


def test_a_chosen_cluster_shows_its_own_host(source: Source) -> None:
    """Rank 1 of cluster b is on another host than rank 1 of cluster a."""
    (found,) = (
        one["metric"]
        for answer in ask(source, "argus-job", "b")
        if answer.query.panel == "Whose fault it is"
        for one in answer.result
    )
    assert (found["node"], found["phase"], found["alertname"]) == ("b1", "forward", "ArgusStragglerRank")
