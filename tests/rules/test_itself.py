"""When ARGUS tells of itself: on the shipped files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rules.scenario import STEP, STORIES, Scenario, at, fires

SAMPLES = 80


class TestItself:
    """What is lost on the way, what observing costs, whether worker and rules keep up."""

    pytestmark = STORIES

    @pytest.mark.parametrize(
        ("reason", "down", "told"),
        [
            pytest.param("profiler_conflict", SAMPLES, True, id="for a reason"),
            pytest.param("", SAMPLES, True, id="nobody knows why"),
            pytest.param("disabled", SAMPLES, False, id="on purpose"),
            pytest.param("py_spy_missing", SAMPLES, True, id="nobody samples"),
            pytest.param("py_spy_missing_inprocess", SAMPLES, False, id="the rank samples itself"),
            pytest.param("profiler_conflict", 12, False, id="for three minutes"),
        ],
    )
    def test_a_channel_that_is_down_is_a_ticket(self, reason: str, down: int, told: bool) -> None:
        """One for all ranks."""
        job = Scenario(("job", "health"))
        for rank in range(3):
            job.add("argus_channel_up", f"0x{down} 1x{SAMPLES}", rank=rank, channel="kernels")
            if reason:
                job.add("argus_channel_info", f"1x{down} stale", rank=rank, channel="kernels", reason=reason)
        job.expect(fires("ArgusChannelDown"), "4m", {})
        job.expect(fires("ArgusChannelDown"), "8m", {"{}": 1} if told else {})
        job.run()

    @pytest.mark.parametrize(("lost", "told"), [(14, False), (16, True)])
    def test_more_than_one_record_in_a_hundred_lost_is_a_ticket(self, lost: int, told: bool) -> None:
        job = Scenario(("job", "health"))
        job.add("argus_records_total", f"0+1500x{SAMPLES}", rank=0, channel="kernels")
        job.add(
            "argus_records_dropped_total", f"0+{lost}x{SAMPLES}", rank=0, channel="kernels", reason="socket"
        )
        job.expect(fires("ArgusRecordsDropped"), "12m", {"{}": 1} if told else {})
        job.run()

    @pytest.mark.parametrize(("seconds", "told"), [(0.14, False), (0.16, True)])
    def test_more_than_one_percent_of_a_core_is_a_ticket(self, seconds: float, told: bool) -> None:
        """Over all channels of the rank that it costs most."""
        job = Scenario(("job", "health"))
        for channel in ("phases", "kernels"):
            job.add("argus_producer_cpu_seconds_total", f"0+{seconds / 2}x{SAMPLES}", rank=0, channel=channel)
        job.add("argus_producer_cpu_seconds_total", f"0+0.01x{SAMPLES}", rank=1, channel="phases")
        job.expect(fires("ArgusOverheadBudget"), "16m", {"{}": 1} if told else {})
        job.run()


LAST = "argus_l3_last_success_timestamp_seconds"
WORKER_SAMPLES = 60


def successes(
    *, until: int = WORKER_SAMPLES, missing: range = range(0), samples: int = WORKER_SAMPLES
) -> str:
    """A cycle each minute succeeds until a sample; some samples are missing."""
    return " ".join(
        "_" if sample in missing else str(min(sample, until) // 4 * 4 * STEP) for sample in range(samples)
    )


class TestWorker:
    """ArgusL3WorkerBehind is about no job."""

    pytestmark = STORIES

    @pytest.mark.parametrize(
        ("replicas", "told"),
        [
            pytest.param([successes(until=32)], True, id="no success for five minutes and more"),
            pytest.param([successes(until=36)], False, id="five minutes are the limit"),
            pytest.param([successes()], False, id="each minute"),
            pytest.param([successes(missing=range(33, 60))], True, id="gone for six minutes: looked up"),
            pytest.param([successes(missing=range(48, 54))], False, id="a gap of a minute and a half"),
            pytest.param([successes(missing=range(30, 50))], False, id="a restart, and success again"),
            pytest.param([successes(until=20), successes()], False, id="one of two replicas is behind"),
            pytest.param([successes(until=20), successes(until=24)], True, id="both replicas are behind"),
            pytest.param([], False, id="never there"),
        ],
    )
    def test_the_last_success_of_any_replica_counts(self, replicas: list[str], told: bool) -> None:
        """Also when its series is gone."""
        job = Scenario(("job", "health"))
        job.ranks(range(2), WORKER_SAMPLES)
        for index, values in enumerate(replicas):
            job.inputs.append({"series": f'{LAST}{{worker="{index}"}}', "values": values})
        job.expect(fires("ArgusL3WorkerBehind"), at(56), {"{}": 1} if told else {})
        job.run()

    @pytest.mark.parametrize("ends", [WORKER_SAMPLES, 40])
    def test_only_while_a_job_runs(self, ends: int) -> None:
        """Nobody misses the worker after the last job; two scrapers of its page change nothing."""
        job = Scenario(("job", "health"))
        job.add("argus_rank_up", f"1x{ends - 1} stale", rank=0)
        for prometheus in ("a", "b"):
            series = f'{LAST}{{prometheus="{prometheus}"}}'
            job.inputs.append({"series": series, "values": successes(until=20)})
        job.expect(fires("ArgusL3WorkerBehind"), at(56), {"{}": 1} if ends == WORKER_SAMPLES else {})
        job.run()

    def test_a_worker_that_died_is_missed_for_three_days(self) -> None:
        """Its last success was looked for an hour back, so the alert resolved while the worker was dead."""
        minutes = 3 * 24 * 60 + 60
        job = Scenario(("job", "health"), interval=60, evaluation=60)
        job.add("argus_rank_up", f"1x{minutes}", rank=0)
        job.inputs.append({"series": LAST, "values": "0+60x5 stale"})
        for hour in (1, 24, 72):
            job.expect(fires("ArgusL3WorkerBehind"), f"{hour}h", {"{}": 1})
        job.run()


BEAT = "argus_rules_interval_seconds"
MINUTES = 120


def beats(seconds: int, missing: Sequence[int] = ()) -> str:
    """One sample each minute of a group that is evaluated so often."""
    return " ".join("_" if minute in missing else str(seconds) for minute in range(MINUTES))


class TestRuler:
    """A ruler that leaves out evaluations; its groups write a sample a minute here."""

    pytestmark = STORIES

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            pytest.param(beats(60), False, id="all are there"),
            pytest.param(beats(60, range(0, MINUTES, 3)), True, id="one of three is missing"),
            pytest.param(beats(60, range(0, MINUTES, 6)), False, id="one of six"),
            pytest.param(beats(60, range(40, 46)), False, id="a restart of six minutes"),
            pytest.param(beats(60, range(50)), False, id="young"),
            pytest.param(beats(60, range(46, MINUTES)), False, id="a group that is no longer loaded"),
            pytest.param(
                beats(240, [m for m in range(MINUTES) if m % 4]), False, id="seldom, as it should be"
            ),
        ],
    )
    def test_a_ruler_that_misses_more_than_a_fifth_of_its_evaluations_is_a_ticket(
        self, values: str, told: bool
    ) -> None:
        job = Scenario(("health",), interval=60, evaluation=60)
        job.inputs.append({"series": f'{BEAT}{{rule_group="argus-phases"}}', "values": values})
        for minute in (48, 56, 64, 72):
            job.expect(fires("ArgusRulesBehind"), f"{minute}m", {"{}": 1} if told else {})
        job.run()

    def test_one_ticket_for_all_groups(self) -> None:
        job = Scenario(("health",), interval=60, evaluation=60)
        for number in range(20):
            values = beats(60, range(number % 3, MINUTES, 3))
            job.inputs.append({"series": f'{BEAT}{{rule_group="argus-{number}"}}', "values": values})
        job.expect(fires("ArgusRulesBehind"), "60m", {"{}": 1})
        job.run()
