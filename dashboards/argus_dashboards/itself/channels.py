"""What is observed, what is lost, and what it costs the training processes."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, stat, table
from argus_dashboards.promql import CLUSTER, JOB_LABELS, RATE
from argus_dashboards.theme import BAD, EXACT, FACT, GOOD, NOTICE, PER_SECOND, RATIO, steps

_JOBS: Final = 10
POINTS: Final = 60
"""These read a series of every rank of every job."""


def _up(channel: str, what: str) -> object:
    return stat(
        f"Ranks with {channel}",
        f"Share of all ranks on which the channel observes. Without it: no {what} there.",
        f'avg(argus_channel_up{{{CLUSTER}, channel="{channel}"}})',
        unit=RATIO,
        decimals=1,
        thresholds=steps(BAD, {NOTICE: 0.8, GOOD: 0.99}),
    )


_DROPPED_NOW = stat(
    "Records lost now",
    "Share of records that never arrived, over all jobs and channels. Above 1 % verdicts are weaker.",
    f"sum(rate(argus_records_dropped_total{{{CLUSTER}}}[5m]))"
    f" / (sum(rate(argus_records_total{{{CLUSTER}}}[5m])) > 0)",
    unit=RATIO,
    decimals=3,
    thresholds=steps(GOOD, {BAD: 0.01}),
)
_COST_NOW = stat(
    "CPU in the costliest process",
    "Share of a core that ARGUS takes inside the training process that it costs most. The budget is 1 %.",
    f"max(sum by ({JOB_LABELS}, rank) (rate(argus_producer_cpu_seconds_total{{{CLUSTER}}}[5m])))",
    unit=RATIO,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: 0.008, BAD: 0.01}),
)
_CHANNELS = lines(
    "Channels that observe",
    """
    Share of ranks on which each channel works. A step down at one time: an upgrade of driver or framework,
    another profiler, a permission that went.
    """,
    [("{{channel}}", f"avg by (channel) (argus_channel_up{{{CLUSTER}}})")],
    unit=RATIO,
    ceiling=1,
    calcs=("lastNotNull", "min"),
    most_points=POINTS,
)
_REASONS = table(
    "Why channels are down",
    """
    Ranks by job, channel and reason. disabled and not_configured are on purpose, and with ..._inprocess
    the rank samples its own stacks. slot_taken, no_records: another profiler is there; permission: one is
    missing; the troubleshooting page has the rest.
    """,
    [
        f"topk(30, count by ({JOB_LABELS}, channel, reason) (argus_channel_info{{{CLUSTER}}}"
        f" and on ({JOB_LABELS}, rank, channel) (argus_channel_up{{{CLUSTER}}} == 0)))"
    ],
    {
        "training_job": "Job",
        "cluster": "Cluster",
        "channel": "Channel",
        "reason": "Reason",
        "Value": "Ranks",
    },
    overrides=[columns.value("Ranks", EXACT, steps(FACT), 70, 0)],
    sort="Ranks",
    empty="All channels observe",
)
_DROPPED = lines(
    "Records lost, by channel and reason",
    """
    socket: the exporter was away or slow. source: the training process could not send them. Those that end in
    _limit: more names, phases or kernels than a rank may have.
    """,
    [
        (
            "{{channel}}: {{reason}}",
            "topk(12, sum by (channel, reason)"
            f" (rate(argus_records_dropped_total{{{CLUSTER}}}[{RATE}]))) > 0",
        )
    ],
    unit=PER_SECOND,
    most_points=POINTS,
    empty="No record was lost",
)
_COST = lines(
    "CPU in training processes, by job",
    f"""
    Of the costliest rank of each channel, all channels together, in the {_JOBS} costliest jobs. Over 1 %
    switch off the costliest channel there.
    """,
    [
        (
            "{{training_job}} {{cluster}}",
            f"topk({_JOBS}, sum by ({JOB_LABELS}) (max by ({JOB_LABELS}, channel)"
            f" (rate(argus_producer_cpu_seconds_total{{{CLUSTER}}}[{RATE}]))))",
        )
    ],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.01}),
    most_points=POINTS,
)

SECTION: Final = Section(
    1,
    "Channels",
    [
        Line(
            4,
            [
                (5, _up("phases", "L1 and L2 verdict")),
                (5, _up("kernels", "L3 verdict")),
                (5, _up("stacks", "function names for host causes, or those that the rank itself samples")),
                (4, _DROPPED_NOW),
                (5, _COST_NOW),
            ],
        ),
        Line(8, [(6, _CHANNELS), (6, _REASONS), (6, _DROPPED), (6, _COST)]),
    ],
)
