"""Whether ARGUS sees this rank, and what that costs it."""

from __future__ import annotations

from typing import Final

from argus_dashboards.current import column
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import RANKS, RATE
from argus_dashboards.theme import BAD, COUNT, GOOD, PER_SECOND, RATIO, codes, steps

_CHANNELS = table(
    "Channels",
    """
    What ARGUS observes on this rank. A channel that is down says why; without kernels nothing is said of its
    kernels, without phases nothing at all.
    """,
    [
        f"max by (channel) (argus_channel_up{{{RANKS}}})",
        f"max by (channel, reason) (argus_channel_info{{{RANKS}}})",
    ],
    {"channel": "Channel", "Value #A": "State", "reason": "Reason"},
    overrides=[
        column(
            "State",
            mappings=codes({"down": BAD, "up": GOOD}),
            unit=COUNT,
            custom__cellOptions={"type": "color-text"},
        )
    ],
)
_RECORDS = lines(
    "Records received",
    "By channel. A channel that falls to 0 while the job trains has stopped observing.",
    [("{{channel}}", f"max by (channel) (rate(argus_records_total{{{RANKS}}}[{RATE}]))")],
    unit=PER_SECOND,
)
_DROPPED = lines(
    "Records lost",
    "By channel and reason. Above 0 the channel's numbers describe a part of what happened.",
    [
        (
            "{{channel}}: {{reason}}",
            f"max by (channel, reason) (rate(argus_records_dropped_total{{{RANKS}}}[{RATE}])) > 0",
        )
    ],
    unit=PER_SECOND,
    empty="No record was lost",
)
_CPU = lines(
    "CPU inside the training process",
    "Share of a core that ARGUS takes in this process. The budget for all channels together is 1 %.",
    [("{{channel}}", f"max by (channel) (rate(argus_producer_cpu_seconds_total{{{RANKS}}}[{RATE}]))")],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.01}),
)

SECTION: Final = Section(
    6, "Does ARGUS see it?", [Line(7, [(6, _CHANNELS), (6, _RECORDS), (6, _DROPPED), (6, _CPU)])]
)
