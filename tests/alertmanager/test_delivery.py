"""A real Alertmanager: what is grouped, muted and sent to whom."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rjsonnet

from alertmanager.recorders import HttpRecorder, http_recorder
from alertmanager.server import PATIENCE_S, ROOT, Alertmanager, labels, load, running
from argus_simulator.stack.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not (shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")),
    reason="Alertmanager is not on PATH (tools/setup.sh)",
)
TEAMS = ("operations", "infrastructure", "algorithm")


def towards(config: dict[str, Any], url: str) -> dict[str, Any]:
    """The configuration with its webhooks at `url`."""
    return json.loads(json.dumps(config).replace("http://127.0.0.1:9", url))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def hooks() -> Iterator[HttpRecorder]:
    with http_recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def alertmanager(hooks: HttpRecorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """The routes and rules of production with waits of a second."""
    config = towards(load("alertmanager.test.yaml"), hooks.url)
    with running(config, tmp_path_factory.mktemp("alertmanager")) as server:
        yield server


def a_round_later(alertmanager: Alertmanager, hooks: HttpRecorder, job: str, *told: str) -> None:
    """All receivers have heard of `job`, whose alerts came last, and somebody of each job in `told`.

    All groups before it had their turn then; on a busy machine deliveries overtake one another.
    """
    alerts = [
        labels("ArgusChannelDown", severity, job, team) for team in TEAMS for severity in ("page", "ticket")
    ]
    alertmanager.fire(*alerts)
    wait_for(lambda: len(hooks.deliveries(job=job)) == len(alerts), PATIENCE_S, f"all deliveries of {job}")
    for one in told:
        wait_for(lambda job=one: hooks.deliveries(job=job), PATIENCE_S, f"a delivery of {one}")


def test_one_page_for_one_slow_rank(alertmanager: Alertmanager, hooks: HttpRecorder) -> None:
    """What three teams would hear of one slow rank: its own team gets one page, nobody a ticket."""
    job = "one-rank"
    alertmanager.fire(labels("ArgusStragglerRank", "page", job, rank="3", cause="gpu-compute"))
    # A group waits for one second here, which inhibition may need to take the page on a busy machine.
    alertmanager.settle()
    alertmanager.fire(
        labels("ArgusStragglerRank", "info", job, rank="3", cause="host-cpu"),
        labels("ArgusHostStall", "ticket", job, "algorithm", rank="3", cause="data-input"),
        labels("ArgusCollectiveLateRank", "ticket", job, rank="3", cause="collective-late"),
        labels("ArgusIterationRegression", "ticket", job, "infrastructure", cause="host-sync"),
        labels("ArgusIterationJitter", "ticket", job, "infrastructure", cause="jitter"),
        labels("ArgusGroupImbalance", "info", job, "algorithm", cause="work-uneven"),
    )
    a_round_later(alertmanager, hooks, "after-one-rank", job)
    assert [one.path for one in hooks.deliveries(job=job)] == ["/operations/page"]
    [page] = hooks.deliveries(job=job)
    assert [alert["labels"]["alertname"] for alert in page.body["alerts"]] == ["ArgusStragglerRank"]


def test_alerts_of_one_job_and_severity_are_one_notification(
    alertmanager: Alertmanager, hooks: HttpRecorder
) -> None:
    """Two slow ranks are one page with two alerts; another job has its own."""
    for job in ("grouped", "grouped-too"):
        alertmanager.fire(*(labels("ArgusStragglerRank", "page", job, rank=rank) for rank in "12"))
    a_round_later(alertmanager, hooks, "after-grouped", "grouped", "grouped-too")
    for job in ("grouped", "grouped-too"):
        [page] = hooks.deliveries(job=job)
        assert sorted(alert["labels"]["rank"] for alert in page.body["alerts"]) == ["1", "2"]


def test_clusters_are_told_apart(alertmanager: Alertmanager, hooks: HttpRecorder) -> None:
    """A job of the same name in another cluster is another job: its own page, not muted by the first's."""
    job = "twin"
    stalled = labels("ArgusTrainingStalled", "page", job, cluster="a")
    slow = labels("ArgusStragglerRank", "page", job, rank="1", cluster="b")
    alertmanager.fire(stalled, slow)
    alertmanager.settle()
    assert not alertmanager.is_silent(slow)
    wait_for(lambda: len(hooks.deliveries(job=job)) == 2, PATIENCE_S, "a page of each cluster")


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("severity", ["page", "ticket"])
def test_the_team_is_told(alertmanager: Alertmanager, hooks: HttpRecorder, team: str, severity: str) -> None:
    """Delivered under /team/severity, and nowhere else."""
    job = f"routed-{team}-{severity}"
    alertmanager.fire(labels("ArgusHostStall", severity, job, team, rank="1"))
    wait_for(lambda: hooks.deliveries(job=job), PATIENCE_S, "the delivery")
    assert [one.path for one in hooks.deliveries(job=job)] == [f"/{team}/{severity}"]


def test_the_end_is_told_too(alertmanager: Alertmanager, hooks: HttpRecorder) -> None:
    """Who was paged hears that it is over."""
    slow = labels("ArgusStragglerRank", "page", "over", rank="1")
    alertmanager.fire(slow)
    wait_for(lambda: hooks.deliveries(job="over"), PATIENCE_S, "the page")
    alertmanager.resolve(slow)
    wait_for(lambda: len(hooks.deliveries(job="over")) == 2, PATIENCE_S, "the end")
    assert [one.body["status"] for one in hooks.deliveries(job="over")] == ["firing", "resolved"]


STALL = ("ArgusTrainingStalled", "page", {})
STRAGGLER = ("ArgusStragglerRank", "page", {"rank": "2"})
TICKET = ("ArgusStragglerRank", "ticket", {"rank": "2"})
"""Goes out in working hours only, so what it muted at night nobody would hear of."""
HOST = ("ArgusHostStall", "page", {"rank": "2", "team": "algorithm"})

INHIBITION = {
    "stall mutes a straggler": (STALL, STRAGGLER, True),
    "stall mutes a kernel": (STALL, ("ArgusKernelDegraded", "ticket", {}), True),
    "stall mutes a group shift": (STALL, ("ArgusKernelGroupShift", "ticket", {}), True),
    "stall leaves the lost rank": (STALL, ("ArgusRankMissing", "ticket", {}), False),
    "stall leaves a dead channel": (STALL, ("ArgusChannelDown", "ticket", {}), False),
    "another job is untouched": (STALL, ("ArgusStragglerRank", "page", {"training_job": "other"}), False),
    "a culprit mutes the ticket of the slow job": (
        STRAGGLER,
        ("ArgusIterationRegression", "ticket", {}),
        True,
    ),
    "what a culprit does not explain by size pages": (
        STRAGGLER,
        ("ArgusIterationRegression", "page", {}),
        False,
    ),
    "a ticket mutes no page": (TICKET, ("ArgusIterationRegression", "page", {}), False),
    "a ticket mutes no ticket": (TICKET, ("ArgusGroupImbalance", "ticket", {}), False),
    "a ticket mutes no info": (TICKET, ("ArgusStragglerRank", "info", {"rank": "2"}), False),
    "a culprit mutes the jitter": (STRAGGLER, ("ArgusIterationJitter", "ticket", {}), True),
    "a culprit mutes the imbalance": (STRAGGLER, ("ArgusGroupImbalance", "info", {}), True),
    "a slow job mutes the jitter": (
        ("ArgusIterationRegression", "page", {}),
        ("ArgusIterationJitter", "ticket", {}),
        True,
    ),
    "a page leaves who has more to do elsewhere": (
        STRAGGLER,
        ("ArgusGroupImbalance", "ticket", {"rank": "5"}),
        False,
    ),
    "a page mutes its own info": (STRAGGLER, ("ArgusStragglerRank", "info", {"rank": "2"}), True),
    "a page leaves the info of another rank": (
        STRAGGLER,
        ("ArgusStragglerRank", "info", {"rank": "3"}),
        False,
    ),
    "a page mutes the tickets of its rank": (
        STRAGGLER,
        ("ArgusHostStall", "ticket", {"rank": "2"}),
        True,
    ),
    "a page leaves kernels of other ranks": (STRAGGLER, ("ArgusKernelDegraded", "ticket", {}), False),
    "a page leaves the tickets of another rank": (
        STRAGGLER,
        ("ArgusHostStall", "ticket", {"rank": "3"}),
        False,
    ),
    "a page leaves tickets that name no rank": (STRAGGLER, ("ArgusCollectiveSlowLink", "ticket", {}), False),
    "no page mutes another": (STRAGGLER, HOST, False),
    "nor that of a rank that comes late": (
        STRAGGLER,
        ("ArgusCollectiveLateRank", "page", {"rank": "3"}),
        False,
    ),
    "two culprits both speak": (
        STRAGGLER,
        ("ArgusHostStall", "page", {"rank": "3", "team": "algorithm"}),
        False,
    ),
    "health says nothing about speed": (
        ("ArgusChannelDown", "ticket", {}),
        ("ArgusIterationJitter", "info", {}),
        False,
    ),
}


@pytest.mark.parametrize(("source", "target", "expected"), INHIBITION.values(), ids=INHIBITION)
def test_inhibition(
    alertmanager: Alertmanager,
    request: pytest.FixtureRequest,
    source: tuple[str, str, dict[str, str]],
    target: tuple[str, str, dict[str, str]],
    expected: bool,
) -> None:
    """What explains something mutes it, and nothing else."""
    job = str(request.node.callspec.id).replace(" ", "-")
    speaks, mute = (
        {**labels(name, severity, job), **more}
        | ({"training_job": job + "-b"} if "training_job" in more else {})
        for name, severity, more in (source, target)
    )
    alertmanager.fire(speaks, mute)
    alertmanager.settle()
    assert alertmanager.is_silent(mute) is expected
    assert not alertmanager.is_silent(speaks)


ALWAYS = "[{ times: [{ start_time: '00:00', end_time: '24:00' }] }]"


@pytest.mark.parametrize(
    ("intervals", "told"),
    [
        (f"workingHours={ALWAYS}, maintenance=am.never", {"/operations/page", "/operations/ticket", "/info"}),
        ("workingHours=am.never", {"/operations/page", "/info"}),
        (f"maintenance={ALWAYS}", set()),
    ],
    ids=["working hours", "at night", "maintenance"],
)
def test_time_intervals(tmp_path: Path, intervals: str, told: set[str]) -> None:
    """At night tickets wait and pages do not; in a maintenance nobody is told."""
    source = f"""
        local am = import 'alertmanager.libsonnet';
        local plain = am.new(am.receivers.webhook('http://127.0.0.1:9/'), timing=am.quick, {intervals});
        // One receiver keeps no hours: it shows that all groups had their turn.
        local probe = {{ matchers: ['severity="probe"'], receiver: 'probe', group_wait: '1s' }};
        plain {{
          route+: {{ routes: [probe] + super.routes }},
          receivers+: [{{ name: 'probe' }} + am.receivers.webhook('http://127.0.0.1:9/')('probe', 'page')],
        }}
    """
    config = json.loads(rjsonnet.evaluate_snippet("intervals", source, jpathdir=[str(ROOT / "jsonnet")]))
    with http_recorder() as hooks, running(towards(config, hooks.url), tmp_path) as alertmanager:
        alertmanager.fire(
            *(
                labels("ArgusHostStall", severity, "a", rank=severity)
                for severity in ("page", "ticket", "info")
            )
        )
        for turn in ("first", "second"):
            alertmanager.fire(labels("Probe", "probe", turn))
            wait_for(lambda turn=turn: hooks.deliveries("/probe/page", turn), PATIENCE_S, f"the {turn} turn")
        wait_for(lambda: {one.path for one in hooks.deliveries(job="a")} >= told, PATIENCE_S, f"{told}")
        assert {one.path for one in hooks.deliveries(job="a")} == told
