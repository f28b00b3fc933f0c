"""Copies that nothing hides, and GPUs that wait for launches: a rank against those that do the same work."""

from __future__ import annotations

import pytest

from rules.scenario import STORIES, Scenario

pytestmark = STORIES
SAMPLES = 60
EVIDENCE = 'rank:argus_evidence:lost_ratio{detector="anatomy"}'


def a_job(copied: dict[int, str], whole: str = f"0+15x{SAMPLES}", evaluation: int = 15) -> Scenario:
    """Two stages of four ranks; the first loads the input.

    Args:
        copied: seconds of copies of those ranks that do not copy a hundredth (the last stage) or a twentieth.
        whole: the rest of the iterations.
    """
    job = Scenario(("job", "evidence", "decision"), evaluation=evaluation)
    job.ranks(range(8), SAMPLES)
    for rank in range(8):
        usual = f"0+0.75x{SAMPLES}" if rank < 4 else f"0+0.15x{SAMPLES}"
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, role=f"pp{rank // 4}", node=f"n{rank // 4}")
        job.add("argus_iteration_gpu_seconds_total", copied.get(rank, usual), rank=rank, part="copy")
        job.add("argus_iteration_gpu_seconds_total", whole, rank=rank, part="compute")
    return job


def test_whoever_copies_longer_than_its_stage_is_named():
    """By what it loses; not the whole stage that copies more than the other."""
    job = a_job({2: f"0+2x{SAMPLES}"})
    [share, usual] = 2 / 17, 0.75 / 15.75
    query = f"round(max by (rank) ({EVIDENCE}), 0.001)"
    job.expect(query, "5m", {'{rank="2"}': round(share - usual, 3)})
    job.run()


def test_one_checkpoint_accuses_nobody():
    """A rank that copies its model to the host for twenty seconds, once."""
    job = a_job({0: f"0+0.75x19 {0.75 * 19 + 15}+0.75x{SAMPLES - 20}"}, evaluation=5)
    job.expect(f"count({EVIDENCE})", "6m", {"{}": 1.0})
    for minute in range(5, 15):
        job.expect('count(ALERTS{alertname="ArgusStragglerRank", alertstate="firing"})', f"{minute}m", {})
    job.run()


@pytest.mark.parametrize("rank", [0, 7])
def test_steps_that_are_longer_than_a_scrape_interval_are_compared_by_step(rank: int):
    """A host that is scraped just after a step's end seems to do more in the window than one just before."""
    steps = " ".join(f"{10 * (number // 6)}" for number in range(SAMPLES))
    later = " ".join(f"{10 * ((number + 1) // 6)}" for number in range(SAMPLES))
    job = a_job({}, steps)
    job.inputs = [one for one in job.inputs if "gpu_seconds" not in one["series"]]
    for one in range(8):
        whole = later if one == rank else steps
        for part, scale in (("copy", 0.2), ("compute", 0.8)):
            values = " ".join(f"{scale * int(value):g}" for value in whole.split())
            job.add("argus_iteration_gpu_seconds_total", values, rank=one, part=part)
    for minute in range(4, 15):
        job.expect(EVIDENCE, f"{minute}m", {})
    job.run()


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        pytest.param(
            0.0,
            {'{cause="host-cpu", rank="5"}': round(1.5 / 16.65, 3)},
            id="its kernels start as they are launched",
        ),
        pytest.param(1.0, {}, id="it launches as early as the others"),
    ],
)
def test_a_gpu_that_waits_for_launches_is_its_hosts_fault(ahead: float, told: dict[str, float]):
    """Its kernels take as long as those of others, so nothing but idle time and launches tells of it."""
    job = a_job({})
    for rank in range(8):
        idle, waited = (1.5, ahead) if rank == 5 else (0.0, 1.0)
        for part, seconds in (("idle", idle), ("compute", 13.5)):
            where = {"rank": rank, "phase": "forward", "kind": "compute", "group": "dp", "part": part}
            job.add("argus_phase_gpu_seconds_total", f"0+{seconds}x{SAMPLES}", **where)
        job.add("argus_iteration_gpu_seconds_total", f"0+{idle}x{SAMPLES}", rank=rank, part="idle")
        for total, grown in (("sum", 100 * waited), ("count", 100)):
            name = f"argus_issue_latency_seconds_{total}"
            job.add(name, f"0+{grown}x{SAMPLES}", rank=rank, kernel_class="compute")
    for minute in (5, 10):
        job.expect(f"round(max by (rank, cause) ({EVIDENCE}), 0.001)", f"{minute}m", told)
    job.run()


@pytest.mark.parametrize(
    ("observed", "lost"),
    [
        pytest.param(True, 0.1, id="as long as their GPUs have nothing else to do"),
        pytest.param(False, 0.3, id="as long as their collectives take longer, where nothing else is known"),
    ],
)
def test_a_late_rank_costs_the_others(observed: bool, lost: float):
    """They wait 0.9 s in three for it; two thirds of that computation hides."""
    job = Scenario(("job", "phases", "evidence"))
    job.ranks(range(8), SAMPLES)
    collective = {"phase": "all_reduce", "kind": "comm", "group": "dp:0", "source": "kernel"}
    for rank in range(8):
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, role="decoder", node=f"n{rank}")
        late = rank == 3
        job.add("argus_phase_duration_seconds_count", f"0+5x{SAMPLES}", rank=rank, **collective)
        seconds = f"0+{3 if late else 7.5}x{SAMPLES}"
        job.add("argus_phase_duration_seconds_sum", seconds, rank=rank, **collective)
        exposed = 1.5 if late else 3.0
        for part, share in (("exposed", exposed), ("compute", 15 - exposed)) if observed else ():
            job.add("argus_iteration_gpu_seconds_total", f"0+{share}x{SAMPLES}", rank=rank, part=part)
    query = 'round(max by (rank) (rank:argus_evidence:lost_ratio{cause="collective-late"}), 0.001)'
    job.expect(query, "8m", {'{rank="3"}': lost})
    job.run()
