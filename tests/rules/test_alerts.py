"""When each alert that is no finding of a rank fires, and when it does not: on the shipped files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rules.jobs import Job, paused, several
from rules.scenario import STORIES, Scenario, at, fires
from rules.test_promises import ALL, ONSET_S, Told, play
from rules.test_promises import RULES as FILES

SAMPLES = 80
LOST_AT = 20


# ---- coverage


class TestCoverage:
    """Who is not observed."""

    pytestmark = STORIES

    @pytest.mark.parametrize("lost", [1, 40])
    def test_all_ranks_that_a_job_has_lost_are_one_ticket(self, lost: int) -> None:
        """10,240 of them had been as many alerts, and as many templates to expand in each evaluation."""
        job = Scenario(("job", "health"))
        for rank in range(48):
            died = f"1x{LOST_AT} 0x{SAMPLES - LOST_AT}" if rank < lost else f"1x{SAMPLES}"
            job.add("argus_rank_up", died, rank=rank)
            job.add("argus_group_expected_ranks", f"48x{SAMPLES}", rank=rank, group="dp")
        missing = 'ALERTS{alertname="ArgusRankMissing", alertstate="firing"}'
        job.expect(missing, at(LOST_AT), {})
        labels = 'severity="ticket", team="operations", level="L1", training_job="a"'
        one = f'ALERTS{{alertname="ArgusRankMissing", alertstate="firing", {labels}}}'
        job.expect(missing, at(LOST_AT + 10), {one: 1})
        job.run()

    @pytest.mark.parametrize(
        ("size", "alive", "told"),
        [
            pytest.param(8, SAMPLES, True, id="two of eight never came"),
            pytest.param(6, SAMPLES, False, id="all are there"),
            pytest.param(8, 2, False, id="a job that has ended misses nobody"),
        ],
    )
    def test_ranks_that_the_topology_has_and_nobody_reports_are_one_ticket(
        self, size: int, alive: int, told: bool
    ) -> None:
        """However many groups they are missing from."""
        job = Scenario(("job", "health"))
        for rank in range(6):
            job.add("argus_rank_up", f"1x{alive} stale", rank=rank)
            for group in ("dp", f"tp:{rank // 4}"):
                expected = size if group == "dp" else 4 if size > 6 else 4 - rank // 4 * 2
                job.add("argus_group_expected_ranks", f"{expected}x{alive} stale", rank=rank, group=group)
        job.expect(fires("ArgusRankMissing"), "10m", {"{}": 1} if told else {})
        job.run()

    def test_a_stage_that_is_gone_with_its_host_is_missed_by_the_size_of_the_job(self) -> None:
        """It was all of its groups: none of those that are left lacks a rank."""
        job = Scenario(("job", "health"))
        job.ranks(range(6), SAMPLES, group="dp:pp0")
        job.add("argus_job_world_size", f"8x{SAMPLES}")
        told = 'ALERTS{alertname="ArgusRankMissing", alertstate="firing"}'
        job.expect(f"sum by (training_job) ({told})", "10m", {'{training_job="a"}': 1})
        job.run()

    @pytest.mark.parametrize(
        ("places", "clash"),
        [
            pytest.param(
                [{}, {"gpu_uuid": "GPU-2"}], True, id="two clusters whose hosts have the same names"
            ),
            pytest.param([{}, {"node": "n2"}], True, id="two users in one cluster"),
            pytest.param(
                [{"cluster": "x"}, {"cluster": "y", "node": "n2"}], False, id="two clusters by label"
            ),
            pytest.param([{"replica": "a"}, {"replica": "b"}], False, id="two scrapers of one job"),
            pytest.param([{}], False, id="one job"),
        ],
    )
    def test_two_jobs_of_one_name_are_a_ticket(self, places: list[dict[str, str]], clash: bool) -> None:
        """Their ranks are taken for one: if one of them hangs, the other goes on and nothing fires."""
        job = Scenario(("job", "health"))
        for place in places:
            job.add("argus_rank_up", f"1x{SAMPLES}", rank=0, **place)
            where = {"node": "n1", "gpu_uuid": "GPU-1"} | place
            job.add("argus_rank_info", f"1x{SAMPLES}", rank=0, instance=str(place), **where)
        job.expect(fires("ArgusJobNameClash"), "9m", {})
        job.expect(fires("ArgusJobNameClash"), "12m", {"{}": 1} if clash else {})
        job.run()

    def test_a_rank_that_moves_is_not_two_jobs(self) -> None:
        """Its old exporter remembers it for five minutes."""
        job = Scenario(("job", "health"))
        job.add("argus_rank_up", f"1x{SAMPLES}", rank=0)
        job.add("argus_rank_info", "1x40 stale", rank=0, node="n1", gpu_uuid="GPU-1")
        job.add("argus_rank_info", f"_x20 1x{SAMPLES}", rank=0, node="n2", gpu_uuid="GPU-2")
        job.expect(fires("ArgusJobNameClash"), "15m", {})
        job.run()


# ---- kernels


class TestKernels:
    """What the worker says, and no finding tells."""

    pytestmark = STORIES

    def _job(self) -> Scenario:
        job = Scenario(("job", "decision"), evaluation=5)
        job.ranks(range(8), SAMPLES)
        return job

    def _anomaly(
        self, job: Scenario, values: str, rank: int, kernel: str, cause: str = "gpu-compute"
    ) -> None:
        where = {"rank": rank, "kernel": kernel, "stream": "compute", "verdict": "culprit"}
        team = "algorithm" if cause == "workload" else "operations"
        job.add("argus_l3_anomaly", values, **where, cause=cause, team=team)

    def test_many_kernels_of_many_ranks_are_one_alert_a_cause(self) -> None:
        """135 tickets for one slow expert."""
        job = self._job()
        for rank in range(1, 6):
            for kernel in range(9):
                self._anomaly(job, f"0.1x{SAMPLES}", rank, f"k{kernel}", "workload")
        self._anomaly(job, f"0.1x{SAMPLES}", 7, "k", "gpu-memory")
        query = (
            'sum by (cause, severity, team) (ALERTS{alertname="ArgusKernelDegraded", alertstate="firing"})'
        )
        told = {
            '{cause="workload", severity="info", team="algorithm"}': 1.0,
            '{cause="gpu-memory", severity="ticket", team="operations"}': 1.0,
        }
        job.expect(query, "4m30s", {})
        job.expect(query, "7m", told)
        job.run()

    @pytest.mark.parametrize("ranks", [(), (1, 2)])
    def test_uneven_work_of_a_whole_role_counts_no_rank(self, ranks: tuple[int, ...]) -> None:
        """The worker names no rank of it; where it names some, these are told."""
        job = self._job()
        for rank in ranks:
            self._anomaly(job, f"0.1x{SAMPLES}", rank, "k", "workload")
        where = {"kernel": "all", "stream": "all", "verdict": "culprit"}
        job.add("argus_l3_anomaly", f"0.06x{SAMPLES}", **where, cause="workload", team="algorithm")
        told = 'count by (severity, team) (ALERTS{alertname="ArgusKernelDegraded", alertstate="firing"})'
        job.expect(told, "7m", {'{severity="info", team="algorithm"}': 1.0})
        job.run()

    @pytest.mark.parametrize(("shift", "told"), [(0.029, False), (0.031, True)])
    def test_three_percent_are_enough(self, shift: float, told: bool) -> None:
        job = self._job()
        self._anomaly(job, f"{shift}x{SAMPLES}", 3, "k")
        job.expect(fires("ArgusKernelDegraded"), "7m", {"{}": 1} if told else {})
        job.run()

    def test_whoever_is_told_by_rank_keeps_that_name(self) -> None:
        """What the worker says later makes no other alert of it."""
        job = self._job()
        where = {"rank": 3, "phase": "forward", "group": "dp"}
        job.add("rank:argus_evidence:lost_ratio", f"0.1x{SAMPLES}", cause="gpu-compute", **where)
        self._anomaly(job, f"_x12 0.3x{SAMPLES}", 3, "all")
        query = 'count by (alertname) (ALERTS{alertstate=~"firing|pending", alertname!="ArgusRankMissing"})'
        for minute in (5, 8, 12):
            job.expect(query, f"{minute}m", {'{alertname="ArgusStragglerRank"}': 1.0})
        job.run()

    @pytest.mark.parametrize(("missing", "stays"), [(10, True), (14, False)])
    def test_a_restart_of_the_worker_withdraws_nothing(self, missing: int, stays: bool) -> None:
        """Its series end and begin again; after three minutes they are missed."""
        job = self._job()
        begin = 40
        gap = f"0.1x{begin - 1} stale _x{missing} 0.1x{SAMPLES}"
        self._anomaly(job, gap, 3, "k")
        shift = {
            "role": "r",
            "kernel": "k",
            "stream": "compute",
            "cause": "gpu-compute",
            "team": "operations",
        }
        job.add("argus_l3_group_shift", gap, **shift, coordinate="node", value="n1")
        for alert in ("ArgusKernelDegraded", "ArgusKernelGroupShift"):
            job.expect(fires(alert), at(begin + missing), {"{}": 1} if stays else {})
        job.run()

    def test_a_group_of_ranks_is_one_alert_whatever_its_kernels_and_causes(self) -> None:
        """And nobody can be sent anywhere where no coordinate tells them apart."""
        job = self._job()
        node = {"coordinate": "node", "value": "n1", "team": "operations", "role": "r", "stream": "s"}
        for kernel in range(6):
            cause = "gpu-transfer" if kernel % 2 else "gpu-compute"
            job.add("argus_l3_group_shift", f"0.2x{SAMPLES}", **node, cause=cause, kernel=f"k{kernel}")
        job.add(
            "argus_l3_group_shift",
            f"-0.2x{SAMPLES}",
            **node | {"value": "n2"},
            cause="gpu-compute",
            kernel="k",
        )
        nowhere = node | {"coordinate": "none", "value": ""}
        job.add("argus_l3_group_shift", f"0.2x{SAMPLES}", **nowhere, cause="gpu-compute", kernel="k")
        labels = "coordinate, value, cause, severity"
        query = f'sum by ({labels}) (ALERTS{{alertname="ArgusKernelGroupShift", alertstate="firing"}})'
        told = {
            '{coordinate="node", value="n1", cause="gpu-compute", severity="ticket"}': 1.0,
            '{coordinate="none", cause="gpu-compute", severity="info"}': 1.0,
        }
        job.expect(query, "7m", told)
        job.run()

    @pytest.mark.parametrize("told", [False, True])
    def test_a_slow_link_that_is_told_is_not_told_again_by_its_kernels(self, told: bool) -> None:
        """Which names its group; the coordinate that those ranks have in common others may have too."""
        job = self._job()
        shift = {"role": "pp0.tp0", "kernel": "k", "stream": "nccl:edp", "cause": "link-slow"}
        where = {"coordinate": "ep", "value": "0", "team": "operations"}
        job.add("argus_l3_group_shift", f"2x{SAMPLES}", **shift, **where)
        if told:
            link = {"cause": "link-slow", "phase": "reduce_scatter", "group": "edp:pp0.tp0.ep0"}
            job.add("rank:argus_evidence:lost_ratio", f"0.1x{SAMPLES}", **link, detector="transfer")
        query = 'count by (alertname) (ALERTS{alertstate="firing", alertname!="ArgusRankMissing"})'
        alert = "ArgusCollectiveSlowLink" if told else "ArgusKernelGroupShift"
        job.expect(query, "10m", {f'{{alertname="{alert}"}}': 1.0})
        job.run()


class TestCosts:
    pytestmark = STORIES

    def test_phases_add_up_and_what_is_seen_twice_counts_once(self) -> None:
        """The collectives of a rank, by their spans and by their kernels: the larger sum is what is lost."""
        job = Scenario(("job", "decision"))
        job.ranks(range(8), SAMPLES)
        for group, phase, view, cost in (
            ("dp", "all_gather_single", "", 0.03),
            ("dp", "reduce_scatter_single", "", 0.02),
            ("dp", "all_gather", "kernel", 0.04),
            ("edp", "reduce_scatter", "kernel", 0.03),
        ):
            who = {"rank": 3, "group": group, "phase": phase} | ({"view": view} if view else {})
            evidence = {"cause": "collective-late", "detector": "shortest"}
            job.add("rank:argus_evidence:lost_ratio", f"{cost}x{SAMPLES}", **evidence, **who)
        job.expect(
            "sum by (rank, cause) (rank:argus_finding:lost_ratio)",
            "5m",
            {'{rank="3", cause="collective-late"}': 0.07},
        )
        job.run()


# ---- the job as a whole


class TestWhatSaysLess:
    """Uneven work and jitter: told while nothing else is."""

    pytestmark = STORIES

    def _job(self, cause: str, cost: float = 0.04) -> Scenario:
        job = Scenario(("job", "decision"), evaluation=5)
        job.ranks(range(8), 2 * SAMPLES)
        job.add("rank:argus_evidence:lost_ratio", f"{cost}x{2 * SAMPLES}", cause=cause, detector="d")
        return job

    @pytest.mark.parametrize(
        ("cause", "alert", "severity"),
        [
            ("work-uneven", "ArgusGroupImbalance", "info"),
            ("jitter", "ArgusIterationJitter", "ticket"),
        ],
    )
    def test_it_is_told_after_two_minutes(self, cause: str, alert: str, severity: str) -> None:
        """Uneven work is nothing that anybody must mend."""
        job = self._job(cause)
        query = f'count by (severity) (ALERTS{{alertname="{alert}"}})'
        job.expect(query, "1m30s", {})
        job.expect(query, "2m15s", {'{severity="info"}': 1.0})
        job.expect(query, "10m", {f'{{severity="{severity}"}}': 1.0})
        job.run()

    @pytest.mark.parametrize("cause", ["work-uneven", "jitter"])
    def test_it_is_silent_while_anything_else_is_told_and_a_while_after(self, cause: str) -> None:
        job = self._job(cause)
        slow = f"_x8 0.1x30 stale _x{2 * SAMPLES - 39}"
        job.add(
            "rank:argus_evidence:lost_ratio", slow, cause="gpu-compute", rank=3, phase="forward", group="dp"
        )
        query = 'count(rank:argus_finding:lost_ratio{rank=""})'
        for minute, told in ((3, 1), (6, 0), (11, 0), (20, 0), (32, 1)):
            job.expect(query, f"{minute}m", {"{}": 1} if told else {})
        job.run()

    def test_uneven_work_silences_jitter(self) -> None:
        """Who has more to do in one step and less in the next makes steps of different length."""
        job = self._job("jitter")
        job.add("rank:argus_evidence:lost_ratio", f"0.04x{2 * SAMPLES}", cause="work-uneven", detector="d")
        query = 'count by (alertname) (ALERTS{alertname!="ArgusRankMissing"})'
        job.expect(query, "15m", {'{alertname="ArgusGroupImbalance"}': 1.0})
        job.run()


def pauses(seconds: float, every_s: float, until_s: float = 900, phase: str = "optimizer") -> Job:
    """All ranks stop now and then, from the onset on."""
    moments = np.arange(ONSET_S, ONSET_S + until_s, every_s)
    slow = several(*(paused(ALL, seconds, moment, phase) for moment in moments))
    return Job(f"{seconds:g} s every {every_s:g} s", slow=slow, lasting_s=3600)


JITTER = [pauses(4, 60), pauses(3, 100), pauses(20, 240)]
QUIET = [
    Job("healthy", lasting_s=3600),
    pauses(0.9, 30),
    pauses(10, 400),
    pauses(30, 200, until_s=201),
]
LONG_PAUSE = pauses(75, 1000)
KILLED = Job("killed", ranks=64, killed_s=ONSET_S, lasting_s=3600)


@pytest.fixture(scope="module")
def told() -> list[Told]:
    return play([*JITTER, *QUIET, LONG_PAUSE, KILLED], FILES)


def of(told: Sequence[Told], job: Job) -> list[Told]:
    return [one for one in told if one.training_job == job.name]


@pytest.mark.servers
class TestJitter:
    """Single iterations that take longer, again and again."""

    @pytest.mark.parametrize("job", JITTER, ids=lambda job: str(job.name))
    def test_pauses_again_and_again_are_one_ticket(self, job: Job, told: list[Told]) -> None:
        """After an info, and for as long as they go on; no rank is named."""
        found = sorted(of(told, job), key=lambda one: one.begin_s)
        assert [(one.alertname, one.severity, one.rank) for one in found] == [
            ("ArgusIterationJitter", "info", ""),
            ("ArgusIterationJitter", "ticket", ""),
        ]
        assert found[0].begin_s <= 900
        assert 900 <= found[1].end_s <= 900 + 900

    @pytest.mark.parametrize("job", QUIET, ids=lambda job: str(job.name))
    def test_pauses_that_are_few_or_small_tell_nothing(self, job: Job, told: list[Told]) -> None:
        assert of(told, job) == []

    def test_a_pause_of_75_seconds_is_one_info_that_names_no_rank(self, told: list[Told]) -> None:
        """A job may not stand still for longer than `stallMinSeconds`; nothing proves who holds it up."""
        found = of(told, LONG_PAUSE)
        assert {(one.alertname, one.severity, one.rank) for one in found} == {
            ("ArgusTrainingStalled", "info", "")
        }


@pytest.mark.servers
def test_a_job_all_of_whose_ranks_are_killed_is_one_ticket(told: list[Told]) -> None:
    """It does not stand still: it is dead."""
    (ticket,) = of(told, KILLED)
    assert (ticket.alertname, ticket.severity, ticket.rank) == ("ArgusRankMissing", "ticket", "")
    assert ticket.begin_s <= 210
