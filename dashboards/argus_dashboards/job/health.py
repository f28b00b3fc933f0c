"""Does ARGUS itself see what it should, and what does it cost?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import JOB, LAST_SUCCESS_AGE, RATE
from argus_dashboards.theme import BAD, COUNT, EXACT, FACT, GOOD, PER_SECOND, RATIO, SECONDS, steps

_POINTS = 40
"""These read three series of every rank."""
# Those of the end: the ranks are then read once, and not at each point.
_EXPORTERS_OF_JOB = f"and on (job, instance) max by (job, instance) (argus_rank_up{{{JOB}}} @ end())"

_CHANNELS = lines(
    "Channels that observe",
    """
    Share of ranks on which each channel works. Below 100 % the channel is blind there, and the table on the
    right says why; the other channels go on.
    """,
    [("{{channel}}", f"avg by (channel) (argus_channel_up{{{JOB}}})")],
    unit=RATIO,
    ceiling=1,
    calcs=("lastNotNull", "min"),
    most_points=_POINTS,
)

_REASONS = table(
    "Why channels are down",
    """
    Ranks by channel and reason. A channel that is off on purpose (disabled, not_configured) needs nobody,
    nor do stacks that the rank samples itself (..._inprocess); any other reason does, since findings of that
    level are missing there.
    """,
    [
        f"topk(20, count by (channel, reason) (argus_channel_info{{{JOB}}}"
        f" and on (rank, channel) (argus_channel_up{{{JOB}}} == 0)))"
    ],
    {"channel": "Channel", "reason": "Reason", "Value": "Ranks"},
    overrides=[columns.value("Ranks", EXACT, steps(FACT), 70, 0)],
    sort="Ranks",
    empty="All channels observe",
)

_DROPPED = lines(
    "Records lost",
    """
    Records dropped against those received, by channel and reason. Above 1 % what the channel says is
    thinned out and what is found by it is weaker.
    """,
    [
        (
            "{{channel}}: {{reason}}",
            f"(sum by (channel, reason) (rate(argus_records_dropped_total{{{JOB}}}[{RATE}])) > 0)\n"
            "/ on (channel) group_left ()"
            f" (sum by (channel) (rate(argus_records_total{{{JOB}}}[{RATE}])) > 0)",
        )
    ],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.01}),
    most_points=_POINTS,
    empty="No record was lost",
)

_RECEIVED = lines(
    "Records received",
    "Over all ranks. A channel that falls to zero while the job trains has stopped observing.",
    [("{{channel}}", f"sum by (channel) (rate(argus_records_total{{{JOB}}}[{RATE}]))")],
    unit=PER_SECOND,
    most_points=_POINTS,
)

_PRODUCER_CPU = lines(
    "CPU inside the training process",
    """
    Share of a core that ARGUS takes on the worst rank, by channel. The budget for all together is 1 %;
    above it switch off the costliest channel.
    """,
    [("{{channel}}", f"max by (channel) (rate(argus_producer_cpu_seconds_total{{{JOB}}}[{RATE}]))")],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.01}),
    most_points=_POINTS,
)

_EXPORTER_FAILURES = lines(
    "Exporter failures",
    """
    Collectors in error, and connections refused for what they sent, over the exporters of this job.
    Anything above zero is a fault of ARGUS: the exporter's log says more.
    """,
    [
        (
            "collector {{collector}} in error",
            f'sum by (collector) ((argus_exporter_collector_state{{state="error"}} > 0) {_EXPORTERS_OF_JOB})',
        ),
        (
            "refused: {{reason}}",
            "sum by (reason)"
            f" ((increase(argus_exporter_rejected_connections_total[{RATE}]) > 0) {_EXPORTERS_OF_JOB})",
        ),
    ],
    unit=COUNT,
    most_points=_POINTS,
    empty="No failure in this range",
)

_WORKER = lines(
    "L3 worker",
    """
    Age of the last cycle that reached Prometheus, and how long a cycle takes. An age beyond 5 minutes: the
    worker is behind or down, and kernel anomalies are old or missing.
    """,
    [
        ("age of last success", LAST_SUCCESS_AGE),
        ("cycle", "max(argus_l3_cycle_seconds)"),
    ],
    unit=SECONDS,
    limits=steps(GOOD, {BAD: 300}),
    most_points=_POINTS,
)

SECTION: Final = Section(
    8,
    "Does ARGUS see?",
    [
        Line(8, [(8, _CHANNELS), (8, _REASONS), (8, _DROPPED)]),
        Line(8, [(6, _RECEIVED), (6, _PRODUCER_CPU), (6, _EXPORTER_FAILURES), (6, _WORKER)]),
    ],
    folded=True,
)
