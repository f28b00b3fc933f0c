"""Alerts on coverage that a story tells better than a table: losing many ranks, and two jobs of one name."""

from __future__ import annotations

import pytest

from rules.scenario import STEP, STORIES, Scenario

pytestmark = STORIES
SAMPLES = 80
LOST_AT = 20


@pytest.mark.parametrize("lost", [1, 40])
def test_all_ranks_that_a_job_has_lost_are_one_alert(lost: int) -> None:
    """10,240 of them had been as many alerts, and as many templates to expand in each evaluation."""
    job = Scenario(("job",))
    for rank in range(48):
        died = f"1x{LOST_AT} 0x{SAMPLES - LOST_AT}" if rank < lost else f"1x{SAMPLES}"
        job.add("argus_rank_up", died, rank=rank)
        job.add("argus_group_expected_ranks", f"48x{SAMPLES}", rank=rank, group="dp")
    missing = 'ALERTS{alertname="ArgusRankMissing", alertstate="firing"}'
    job.expect(missing, f"{LOST_AT * STEP}s", {})
    labels = 'severity="ticket", team="operations", level="L1", training_job="a"'
    one = f'ALERTS{{alertname="ArgusRankMissing", alertstate="firing", {labels}}}'
    job.expect(missing, f"{(LOST_AT + 10) * STEP}s", {one: 1})
    job.run()


@pytest.mark.parametrize(
    ("places", "clash"),
    [
        pytest.param([{"cluster": "x"}, {"cluster": "y"}], True, id="two clusters, told apart by a label"),
        pytest.param([{}, {"gpu_uuid": "GPU-2"}], True, id="two clusters whose hosts have the same names"),
        pytest.param([{}, {"node": "n2"}], True, id="two users in one cluster"),
        pytest.param([{"replica": "a"}, {"replica": "b"}], False, id="two scrapers of one job"),
        pytest.param([{}], False, id="one job"),
    ],
)
def test_two_jobs_of_one_name_are_a_ticket(places: list[dict[str, str]], clash: bool) -> None:
    """Their ranks are taken for one: if one of them hangs, the other goes on and nothing fires."""
    job = Scenario(("job",))
    for place in places:
        job.add("argus_rank_up", f"1x{SAMPLES}", rank=0, **place)
        where = {"node": "n1", "gpu_uuid": "GPU-1"} | place
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=0, instance=str(place), **where)
    told = 'ALERTS{alertname="ArgusJobNameClash", alertstate="firing"}'
    job.expect(f"count({told})", "9m", {})
    job.expect(f"count({told})", "12m", {"{}": 1} if clash else {})
    job.run()


def test_a_rank_that_moves_is_not_two_jobs() -> None:
    """Its old exporter remembers it for five minutes."""
    job = Scenario(("job",))
    job.add("argus_rank_up", f"1x{SAMPLES}", rank=0)
    job.add("argus_rank_info", "1x40 stale", rank=0, node="n1", gpu_uuid="GPU-1")
    job.add("argus_rank_info", f"_x20 1x{SAMPLES}", rank=0, node="n2", gpu_uuid="GPU-2")
    job.expect('ALERTS{alertname="ArgusJobNameClash", alertstate="firing"}', "15m", {})
    job.run()
