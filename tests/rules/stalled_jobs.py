"""A job that has stopped, and what the rules say of it."""

from __future__ import annotations

from rules.scenario import Scenario

SAMPLES = 20
AT = "4m"
"""The last iteration ended at 1m; five usual durations of 4 s are less than the least, a minute."""
SOON = "2m30s"
"""A minute and a half after the last iteration."""
CULPRITS = 'rank:argus_verdict:active{verdict="culprit"}'
FIRING = 'ALERTS{alertstate="firing"}'


def stalled(ranks: int) -> Scenario:
    """A job of `ranks` whose iterations end at 1m."""
    job = Scenario(("job", "evidence", "nccl", "decision"))
    job.ranks(range(ranks), SAMPLES)
    job.add("argus_iteration_duration_seconds_count", f"0+4x4 16x{SAMPLES - 5}", rank=0)
    job.add("argus_iteration_duration_seconds_sum", f"0+16x4 64x{SAMPLES - 5}", rank=0)
    job.add("argus_job_last_iteration_timestamp_seconds", f"0+15x4 60x{SAMPLES - 5}")
    job.add("argus_job_usual_iteration_seconds", f"_ 4x{SAMPLES}")
    for rank in range(ranks):
        job.add("argus_rank_overdue_number", f"_x5 {rank}x{SAMPLES}", rank=rank)
    return job


def all_in_one_collective(ranks: int) -> Scenario:
    """All have called it, so what the hooks see accuses nobody."""
    job = stalled(ranks)
    for rank in range(ranks):
        entered(job, rank, 31)
        is_in(job, rank, "grad_sync", "comm")
    return job


def is_in(job: Scenario, rank: int, phase: str, kind: str, since: int = 62, waits: str = "none") -> None:
    """From the stall on, the rank has this span open; before it, there is none at a scrape."""
    labels = {"rank": rank, "phase": phase, "kind": kind, "waits": waits, "overdue": "true"}
    job.add("argus_phase_open_timestamp_seconds", f"_x5 {since}x{SAMPLES}", **labels)


def entered(job: Scenario, rank: int, collectives: int, group: str = "dp") -> None:
    job.add("argus_collective_sequence", f"{collectives}x{SAMPLES}", rank=rank, group=group)


def called(job: Scenario, rank: int, operation: str, number: int = 31, group: str = "dp") -> None:
    """By torch's flight recorder, which is looked at while the iteration is overdue."""
    name, values = "argus_collective_operation_sequence", f"_x6 {number}x{SAMPLES}"
    job.add(name, values, rank=rank, group=group, operation=operation)


def culprit(rank: int, phase: str, cause: str = "hang-host", team: str = "operations") -> str:
    return (
        'rank:argus_verdict:active{training_job="a", verdict="culprit", level="L1", '
        f'rank="{rank}", phase="{phase}", cause="{cause}", team="{team}"}}'
    )


def page(labels: str, team: str = "operations", severity: str = "page") -> str:
    return (
        f'ALERTS{{alertname="ArgusTrainingStalled", alertstate="firing", severity="{severity}", level="L1", '
        f'training_job="a", team="{team}"{labels}}}'
    )
