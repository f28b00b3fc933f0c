"""PromQL that several dashboards share."""

from __future__ import annotations

from typing import Final

from argus_core.causes import CONTEXT, HANGS
from argus_dashboards.theme import STATE_COLOURS_OF_JOB

RANKS_SHOWN: Final = 20
CULPRITS_SHOWN: Final = 30

CLUSTER: Final = 'cluster=~"$cluster|"'
"""Also what has no such label: where there is one cluster, nothing needs to say so."""
JOB: Final = f'{CLUSTER}, training_job="$training_job"'
WITH_RANK: Final = ', rank!=""'
WITHOUT_RANK: Final = ', rank=""'
RANKS: Final = f'{JOB}, rank=~"$rank"{WITH_RANK}'
"""Never what has no rank: a link that names none would else show what was found of a group."""
PHASES: Final = f'{JOB}, phase=~"$phase"'

JOB_LABELS: Final = "cluster, training_job"
"""What makes a job one job: two clusters may have jobs of one name."""

RATE: Final = "$__rate_interval"

LAST_SUCCESS_AGE: Final = "time() - max(max_over_time(argus_l3_last_success_timestamp_seconds[604799s]))"
"""Of the worker, dead for up to a week: the lookback of its alert."""

MEDIAN: Final = "group:argus_phase_duration_seconds:median"
_MEAN: Final = "rank:argus_phase_duration_seconds:mean"
GROUP: Final = f"{JOB_LABELS}, phase, kind, group, source"
"""Labels of the ranks that are compared with one another in a phase."""
RECENT: Final = "job:argus_iteration_recent:seconds"
HEALTHY: Final = "job:argus_iteration_healthy:seconds"
"""Seconds of an iteration, and of a unit of work: now; before the job became slower, while that is held."""

COMM: Final = 'kind="comm"'
NOT_COMM: Final = 'kind!="comm"'

OF_ARGUS: Final = 'alertname=~"Argus.*"'
ALERTS: Final = f'{CLUSTER}, {OF_ARGUS}, training_job=~"$training_job|"'
"""Alerts of the job, and those of ARGUS itself, which name no job."""


LOST_FLOOR: Final = 0.02
"""Share of its time that a job may lose and still be well: the mixin's decision.ticket.enter."""

EVIDENCE: Final = "rank:argus_evidence:lost_ratio"
HANGING: Final = f'verdict="culprit", cause=~"{"|".join(HANGS)}"'
FINDING: Final = "rank, set, group, cause, team, level"
"""Labels of a finding: whom it is about, what it is, and who can mend it."""


def state_of_job(selector: str) -> str:
    """State of each job as its place in `STATE_COLOURS_OF_JOB`: its L1 class, and what L1 cannot see.

    A job that was slow from its first step is stable to L1, and not well.
    """
    states = [
        f'{code} * job:argus_iteration:class{{{selector}, class="{name}"}}'
        for code, name in enumerate(STATE_COLOURS_OF_JOB)
        if name not in ("slow", "stalled")
    ]
    codes = {name: code for code, name in enumerate(STATE_COLOURS_OF_JOB)}
    # Of two without a class the first counts.
    states.append(f"{codes['stalled']} * job:argus_stalled:seconds{{{selector}}} ^ 0")
    states.append(f"{codes['slow']} * (job:argus_lost:ratio{{{selector}}} >= {LOST_FLOOR}) ^ 0")
    return "max by ({}) (\n  {}\n)".format(JOB_LABELS, "\n  or ".join(states))


def lost_share(selector: str) -> str:
    """Share of its time that each job loses: all of it while it stands still."""
    lost = f"job:argus_stalled:seconds{{{selector}}} ^ 0 or job:argus_lost:ratio{{{selector}}}"
    return f"clamp_max(max by ({JOB_LABELS}) ({lost}), 1)"


def lost_gpus(selector: str) -> str:
    """The same in GPUs of each job: one value in two units."""
    ranks = f"max by ({JOB_LABELS}) (job:argus_ranks:count{{{selector}}})"
    return f"{lost_share(selector)} * on ({JOB_LABELS}) {ranks}"


def against_healthy(selector: str, by: str = JOB_LABELS) -> str:
    """Time of an iteration, or of a unit of work, over that before the job became slower; else 1."""
    ratio = f"max by ({by}) (job:argus_iteration:regression_ratio{{{selector}}})"
    return f"{ratio}\nor max by ({by}) ({RECENT}{{{selector}}} ^ 0)"


def told(selector: str) -> str:
    """The loudest alert of each job that fires, as its place in `theme.TOLD_CODES`; none is no series."""
    firing = f'ALERTS{{{selector}, alertstate="firing"'
    page, ticket = (f'{firing}, severity="{name}"}}' for name in ("page", "ticket"))
    return f"max by ({JOB_LABELS}) (2 * {page} or {ticket})"


def onset(selector: str, whose: str, of: str) -> str:
    """Unix time since when each job loses what it loses most by: `of`, told apart by the labels `whose`."""
    stalled = f"job:argus_stalled:seconds{{{selector}}}"
    since = f"rank:argus_finding:onset_timestamp_seconds{{{selector}}}\n  and on ({whose}) {of}"
    return f"max by ({JOB_LABELS}) (timestamp({stalled}) - {stalled})\nor min by ({JOB_LABELS}) ({since})"


def findings(selector: str) -> str:
    """What costs a job time, and whose it is, by `FINDING`: whoever hangs costs all of it."""
    return (
        f"max by ({FINDING}) (rank:argus_finding:lost_ratio{{{selector}}})\n"
        f"or max by ({FINDING}) (rank:argus_verdict:active{{{selector}, {HANGING}}})"
    )


def to_median(kind: str) -> str:
    """Mean duration of the chosen ranks over their group's median: 1 is like its peers."""
    return (
        f'{_MEAN}{{{RANKS}, phase=~"$phase", {kind}}}'
        f" / on ({GROUP}) group_left () ({MEDIAN}{{{PHASES}, {kind}}} > 0)"
    )


def against_peers(rank_phases: str) -> str:
    """Mean duration over the group's median, also where groups are even and no rule records it."""
    return f"{_MEAN}{{{rank_phases}}} / on ({GROUP}) group_left () ({MEDIAN}{{{JOB}}} > 0)"


WHOSE: Final = "rank, set, group, cause, level"
"""Labels by which the rows below belong to a finding."""


def named_phases(selector: str) -> str:
    """The phases of what is named, and its row of the table of causes, by `WHOSE`.

    The row of a hang is its cause; rows of the history are one rule, and told apart by the cause.
    """
    verdict = f"rank:argus_verdict:lost_ratio{{{selector}"
    kept = "cause, level, row, phase"
    hanging = (
        f"max by (rank, group, cause, level, phase) (rank:argus_verdict:active{{{selector}, {HANGING}}})"
    )
    history = f'max by (cause, level) ({verdict}, row="history"}})'
    return (
        f'max by (rank, {kept}) ({verdict}, rank!="", set=""}})\n'
        f'or max by (set, {kept}) ({verdict}, set!=""}})\n'
        f'or max by (group, {kept}) ({verdict}, rank="", row!="history"}})\n'
        f'or label_replace({history}, "row", "history-$1", "cause", "(.*)")\n'
        f'or label_replace({hanging}, "row", "$1", "cause", "(.*)")'
    )


def with_place(expr: str, ranks: str = RANKS, of: str = "") -> str:
    """`expr` by rank, with the rank's node and GPU where they are known; `of`: as in `with_labels`."""
    return with_labels("node, gpu_uuid", "rank", expr, f"argus_rank_info{{{ranks}}}", of)


def with_kernel_name(expr: str) -> str:
    """`expr` by kernel id, with the kernel's name where it is known."""
    return with_labels("name", "kernel", expr, f"argus_kernel_info{{{RANKS}}}")


def with_labels(labels: str, on: str, expr: str, info: str, of: str = "") -> str:
    """`expr` with labels of `info` where there is one; `of`: something shorter that has the same series."""
    # topk takes one of two info series: a rank that moved to another node has both for five minutes.
    one = f"topk by ({on}) (1, {info})"
    without = f"max by ({on}) ({of or expr})"
    return f"({expr}) * on ({on}) group_left ({labels}) (({one}) ^ 0 or on ({on}) ({without}) ^ 0)"


def filled(expr: str, label: str, value: str) -> str:
    """`expr` with a value of the label where it has none."""
    return f'label_replace({expr}, "{label}", "{value}", "{label}", "")'


def zero_if(watched: str) -> str:
    """What a sum of nothing is: 0 where `watched` has series, and where not no data rather than a good 0."""
    return f"0 * max({watched})"


def ranks_of_interest(phases: str) -> str:
    """Who is named, who may be meant, then by kernels, by what was seen, and by phases; any rank fills up."""
    return f"""topk({RANKS_SHOWN},
  max by (rank) (3e6 + rank:argus_finding:lost_ratio{{{JOB}, rank!=""}})
  or max by (rank) (3e6 + rank:argus_verdict:active{{{JOB}, verdict="culprit", rank!=""}})
  or max by (rank) (2e6 + rank:argus_evidence:lost_ratio{{{JOB}, cause="suspect-set"}})
  or max by (rank) (1e6 + abs(argus_l3_anomaly{{{JOB}, rank!=""}}))
  or max by (rank) (1e3 + rank:argus_evidence:lost_ratio{{{JOB}, rank!="", cause!~"{"|".join(CONTEXT)}"}})
  or max by (rank) (abs(ln(rank:argus_phase_duration_seconds:median_ratio{{{phases}}})))
  or 0 * max by (rank) (argus_rank_up{{{JOB}}})
)"""
