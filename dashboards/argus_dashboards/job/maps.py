"""Where in the topology the slow ranks sit."""

from __future__ import annotations

from typing import Final

from argus_dashboards.current import column as grafana_column
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import matrix
from argus_dashboards.promql import JOB
from argus_dashboards.theme import COUNT, SLOWNESS

CELLS_SHOWN: Final = 2048

STATISTICS: Final = {
    "longest span (s)": "argus_phase_window_max_seconds",
    "mean duration (s)": "rank:argus_phase_duration_seconds:mean",
    "uneven groups: duration / median": "rank:argus_phase_duration_seconds:median_ratio",
    "uneven groups: z-score": "rank:argus_phase_duration_seconds:zscore",
    "ranks that stand out: share of wall time lost": "rank:argus_phase_slow:lost_ratio",
}
"""What the maps can show, by what the reader is offered. Rules record the last three where groups differ."""

STEPS: Final = {"1": "()", "10": "[0-9]", "100": "[0-9][0-9]"}
"""DP indices in one row, and the digits that are cut for it: PromQL has no division of labels."""


def _map(column: str, text: str) -> object:
    return matrix(
        f"Worst rank by DP and {column.upper()} index: $map_phase",
        f"""
        In the phase and statistic chosen above; colours go from 0 to the largest value shown: a job whose
        ranks are alike is of one colour. {text} In a comm phase the small durations are the late ranks'. With
        several DP indices a row, row 3 of 10 holds 30 to 39. Places without a value are below the
        {CELLS_SHOWN} largest.
        """,
        f"""topk({CELLS_SHOWN}, label_replace(
  max by (place, {column}) (
    label_replace(
      $map_statistic{{{JOB}, phase="$map_phase"}}
      * on (cluster, rank) group_left (dp, {column})
        max by (cluster, rank, dp, {column}) (argus_rank_info{{{JOB}}}),
      "place", "${{1}}", "dp", "(.*?)$map_step"
    )
  ),
  "place", "0", "place", ""
))""",
        rows="place",
        columns=column,
        numbered=("place", column),
        unit=COUNT,
        thresholds=[],
        overrides=[
            grafana_column(
                f"place\\{column}",  # the name that Grafana's matrix gives to its first column
                displayName=f"DP \\ {column.upper()}",
                unit="string",
                custom__cellOptions={"type": "auto"},
                custom__width=90,
            )
        ],
        scheme=SLOWNESS,
        empty="No value of this statistic: groups are even in this phase",
    )


SECTION: Final = Section(
    6,
    "Where they sit",
    [
        Line(
            18,  # 16 replicas, and what stands over them
            [
                (
                    12,
                    _map("tp", "A single brighter cell: one GPU. A brighter row: one replica, or its host."),
                ),
                (12, _map("pp", "A brighter column: one pipeline stage has more work, or slower kernels.")),
            ],
        )
    ],
    folded=True,
)
