"""Ranks that are known twice: one that moved at a restart, and two jobs of one name."""

from __future__ import annotations

from rules.scenario import STORIES, Scenario

pytestmark = STORIES

SAMPLES = 64
CONCERNS = ("job", "phases", "evidence", "decision")
BEFORE = "1x19 0x19 stale"
"""`argus_rank_up` of a process that crashed at 5 minutes, whose exporter remembers it for five more."""
AFTER = f"_x21 1x{SAMPLES - 22}"


def test_a_rank_that_moved_is_told_with_the_host_where_it_lives() -> None:
    """Ranks 2 and 3 swapped hosts at a restart, and the new rank 3 is slow: on c, not on d."""
    job = Scenario(CONCERNS, evaluation=5)

    def lives(
        rank: int, host: str, up: str, share: float = 0.4, since: int = 0, until: int = SAMPLES
    ) -> None:
        where = {"rank": rank, "instance": host}
        job.add("argus_rank_up", up, **where)
        known = f"_x{since} 1x{until - since} stale"
        job.add("argus_rank_info", known, node=host, gpu_uuid=f"GPU-{host}", **where)
        job.add("argus_group_expected_ranks", known.replace(" 1x", " 4x"), group="dp", **where)
        steps = f"_x{since} 0+15x{until - since} stale"
        job.phase(rank, "forward", steps, steps.replace("0+15", f"0+{15 * share:g}"), instance=host)
        job.waits(rank, "forward", "none", SAMPLES, instance=host)

    for rank, host in enumerate("ab"):
        lives(rank, host, f"1x{SAMPLES}")
    for rank, former, host in ((2, "c", "d"), (3, "d", "c")):
        lives(rank, former, BEFORE, until=40)
        lives(rank, host, AFTER, share=0.8 if rank == 3 else 0.4, since=24)
    named = 'count by (rank, node) (ALERTS{alertname="ArgusStragglerRank", alertstate="firing"})'
    for at in ("9m", "12m", "14m", "15m45s"):
        job.expect(named, at, {'{rank="3", node="c"}': 1})
    job.run()


def test_two_jobs_of_one_name_take_nothing_from_a_third() -> None:
    """As two users' train.py, whose layouts differ: the slow set of another job is found all the same."""
    job = Scenario(CONCERNS, evaluation=5)
    for rank in range(16):
        dp, tp = divmod(rank, 2)
        place = {"rank": rank, "instance": f"h{rank // 8}"}
        job.add("argus_rank_up", f"1x{SAMPLES}", **place)
        job.add("argus_rank_info", f"1x{SAMPLES}", node=place["instance"], role=f"tp{tp}", **place)
        job.add("argus_group_expected_ranks", f"8x{SAMPLES}", group=f"dp:tp{tp}", **place)
        seconds = f"0+{15 * (0.8 if dp == 3 else 0.4):g}x{SAMPLES}"
        of_phase = {"group": f"dp:tp{tp}", "instance": place["instance"]}
        job.phase(rank, "forward", f"0+15x{SAMPLES}", seconds, **of_phase)
        job.waits(rank, "forward", "tp", SAMPLES, set=f"tp:dp{dp}", instance=place["instance"])
        job.add("argus_iteration_gpu_seconds_total", f"0+14x{SAMPLES}", part="compute", **place)
        copies = 4 if rank == 2 else 1
        job.add("argus_iteration_gpu_seconds_total", f"0+{copies}x{SAMPLES}", part="copy", **place)
    for host, layout, role in (("x", "tp:dp0", "tp0"), ("y", "tp:dp0.pp0", "pp0.tp0")):
        of_train = {"training_job": "train", "rank": 0, "instance": host}
        job.add("argus_rank_up", f"1x{SAMPLES}", **of_train)
        job.add("argus_rank_info", f"1x{SAMPLES}", node=host, role=role, **of_train)
        phase = {"phase": "forward", "kind": "compute", "group": "dp", "source": "event", **of_train}
        job.add("argus_phase_duration_seconds_count", f"0+15x{SAMPLES}", **phase)
        job.add("argus_phase_duration_seconds_sum", f"0+6x{SAMPLES}", **phase)
        info = {"phase": "forward", "kind": "compute", "waits": "tp", "set": layout, **of_train}
        job.add("argus_phase_info", f"1x{SAMPLES}", **info)
    of_third = 'training_job="a", cause=~"suspect-set|gpu-transfer"'
    evidence = f"count by (cause) (rank:argus_evidence:lost_ratio{{{of_third}}})"
    job.expect(evidence, "6m", {'{cause="suspect-set"}': 2, '{cause="gpu-transfer"}': 1})
    job.expect(
        'count(ALERTS{alertname="ArgusStragglerRank", training_job="a", set="tp:dp3"})', "6m", {"{}": 1}
    )
    job.run()
