"""PromQL that several dashboards share."""

from __future__ import annotations

from typing import Final

from argus_dashboards.theme import STATE_COLOURS_OF_JOB

RANKS_SHOWN: Final = 20
CULPRITS_SHOWN: Final = 30

CLUSTER: Final = 'cluster=~"$cluster|"'
"""Also what has no such label: rules that aggregate by job drop it, unless it is an external label."""
JOB: Final = f'{CLUSTER}, training_job="$training_job"'
RANKS: Final = f'{JOB}, rank=~"$rank"'
PHASES: Final = f'{JOB}, phase=~"$phase"'

RATE: Final = "$__rate_interval"

MEDIAN: Final = "group:argus_phase_duration_seconds:median"
_MEAN: Final = "rank:argus_phase_duration_seconds:mean"
_GROUP: Final = "training_job, phase, kind, group, source"

COMM: Final = 'kind="comm"'
NOT_COMM: Final = 'kind!="comm"'

ALERTS: Final = 'alertname=~"Argus.*", training_job=~"$training_job|"'
"""Alerts of the job, and those of ARGUS itself, which name no job."""


LOST_FLOOR: Final = 0.02
"""Share of its time that a job may lose to a culprit and still be well: the mixin's minLostRatio."""


def state_of_job(selector: str) -> str:
    """State of each job as its place in `STATE_COLOURS_OF_JOB`: its L1 class, and what L1 cannot see.

    A job that was slow from its first step, or for longer than L1 looks back, is stable to L1, and not well.
    """
    states = [
        f'{code} * job:argus_iteration:class{{{selector}, class="{name}"}}'
        for code, name in enumerate(STATE_COLOURS_OF_JOB)
        if name not in ("slow", "stalled")
    ]
    lost = f"max by (training_job) (job:argus_lost_gpus:current{{{selector}}})"
    ranks = f"max by (training_job) (job:argus_ranks:count{{{selector}}})"
    codes = {name: code for code, name in enumerate(STATE_COLOURS_OF_JOB)}
    states.append(f"{codes['slow']} * ({lost} >= {LOST_FLOOR} * {ranks}) ^ 0")
    states.append(f"{codes['stalled']} * job:argus_stalled:seconds{{{selector}}} ^ 0")
    return "max by (training_job) (\n  {}\n)".format("\n  or ".join(states))


def to_median(kind: str) -> str:
    """Mean duration of the chosen ranks over their group's median: 1 is like its peers."""
    return (
        f'{_MEAN}{{{RANKS}, phase=~"$phase", {kind}}}'
        f" / on ({_GROUP}) group_left () ({MEDIAN}{{{PHASES}, {kind}}} > 0)"
    )


def against_peers(rank_phases: str) -> str:
    """Mean duration over the group's median, also where groups are even and no rule records it."""
    return f"{_MEAN}{{{rank_phases}}} / on ({_GROUP}) group_left () ({MEDIAN}{{{JOB}}} > 0)"


def with_place(expr: str, ranks: str = RANKS) -> str:
    """`expr` by rank, with the rank's node and GPU where they are known."""
    return with_labels("node, gpu_uuid", "rank", expr, f"argus_rank_info{{{ranks}}}")


def with_kernel_name(expr: str) -> str:
    """`expr` by kernel id, with the kernel's name where it is known."""
    return with_labels("name", "kernel", expr, f"argus_kernel_info{{{RANKS}}}")


def with_labels(labels: str, on: str, expr: str, info: str) -> str:
    """`expr` with labels of `info`, a series of value 1, where there is one."""
    # topk takes one of two info series: a rank that moved to another node has both for five minutes.
    one = f"topk by ({on}) (1, {info})"
    return f"({expr}) * on ({on}) group_left ({labels}) {one}\nor\n(({expr}) unless on ({on}) {info})"


def ranks_of_interest(phases: str) -> str:
    """Culprits, then ranks with a kernel anomaly, then those furthest from their group; any rank fills up."""
    return f"""topk({RANKS_SHOWN},
  max by (rank) (2e6 + rank:argus_verdict:lost_ratio{{{JOB}, verdict="culprit"}})
  or max by (rank) (1e6 + abs(argus_l3_anomaly{{{JOB}}}))
  or max by (rank) (abs(ln(rank:argus_phase_duration_seconds:median_ratio{{{phases}}})))
  or 0 * max by (rank) (argus_rank_up{{{JOB}}})
)"""
