"""PromQL that several sections share."""

from __future__ import annotations

from typing import Final

RANKS_SHOWN: Final = 20
CULPRITS_SHOWN: Final = 30
VICTIMS_SHOWN: Final = 20

JOB: Final = 'training_job="$training_job"'
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


def to_median(kind: str) -> str:
    """Mean duration of the chosen ranks over their group's median: 1 is like its peers."""
    return (
        f'{_MEAN}{{{RANKS}, phase=~"$phase", {kind}}}'
        f" / on ({_GROUP}) group_left () ({MEDIAN}{{{PHASES}, {kind}}} > 0)"
    )


def with_node(expr: str) -> str:
    """`expr` by rank, with the rank's node where it is known."""
    return _with_label("node", "rank", expr, f"argus_rank_info{{{RANKS}}}")


def with_kernel_name(expr: str) -> str:
    """`expr` by kernel id, with the kernel's name where it is known."""
    return _with_label("name", "kernel", expr, f"argus_kernel_info{{{RANKS}}}")


def _with_label(label: str, on: str, expr: str, info: str) -> str:
    # topk takes one of two info series: a rank that moved to another node has both for five minutes.
    one = f"topk by ({on}) (1, {info})"
    return f"({expr}) * on ({on}) group_left ({label}) {one}\nor\n(({expr}) unless on ({on}) {info})"


RANKS_OF_INTEREST: Final = f"""topk({RANKS_SHOWN},
  max by (rank) (2e6 + rank:argus_verdict:lost_ratio{{{JOB}, verdict="culprit"}})
  or max by (rank) (1e6 + abs(argus_l3_anomaly{{{JOB}}}))
  or max by (rank) (abs(ln(rank:argus_phase_duration_seconds:median_ratio{{{PHASES}}})))
  or 0 * max by (rank) (argus_rank_up{{{JOB}}})
)"""
"""Culprits, then ranks with a kernel anomaly, then those furthest from their group; any rank fills up."""
