"""Whether whole groups of ranks differ, and which place in the topology divides them."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.kernel.promql import KERNEL, P50, POINTS
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import JOB
from argus_dashboards.theme import COUNT, FACT, GOOD, NOTICE, SECONDS, TICKET, TIMES, steps

_SHOWN: Final = 12
_ROWS: Final = 40
# A label of one name, whatever the coordinate: a table can rename only what it knows.
_INFO = f'label_replace(argus_rank_info{{{JOB}, role=~"$role"}}, "place", "${{1}}", "$coordinate", "(.*)")'
# One of two: a rank that moved to another node has both for five minutes.
_PLACES = f"topk by (cluster, rank) (1, max by (cluster, rank, place) ({_INFO}))"
_MEAN = f"avg by (place, mode, stream) ({P50} * on (cluster, rank) group_left (place) {_PLACES})"

_SHIFTS = table(
    "Groups that L3 tells apart",
    """
    Two clusters of ranks that should be alike, and the coordinate that divides them, in all roles. What the
    slow ranks share is the place to look: a host, a rail, a switch, an expert. Empty: no such split.
    """,
    [f"topk(20, max by (role, coordinate, value) (argus_l3_group_shift{{{KERNEL}}}))"],
    {"coordinate": "Place", "value": "Slow at", "Value": columns.SHIFT, "role": "Role"},
    overrides=[columns.SHIFT_RATIO],
    sort=columns.SHIFT,
    empty="No part of the role differs from the others",
)
_BY_PLACE = table(
    "Slowest places",
    f"""
    Mean p50 of the ranks at each place of the chosen coordinate, over the mean of all, for the {_ROWS}
    slowest. One place far above the others: that is where the fault is. All near 1: choose another
    coordinate.
    """,
    [
        f"topk({_ROWS}, max by (place)"
        f" ({_MEAN} / on (mode, stream) group_left () avg by (mode, stream) {P50}))",
        f"count by (place) ({_PLACES})",
    ],
    {"place": "Place", "Value #A": "Against all", "Value #B": "Ranks"},
    overrides=[
        columns.value("Against all", TIMES, steps(GOOD, {NOTICE: 1.03, TICKET: 1.1}), 130, 3),
        columns.value("Ranks", COUNT, steps(FACT), 90, 0),
    ],
    sort="Against all",
)
_OVER_TIME = lines(
    "p50 by place over time",
    f"""
    Mean p50 of the slowest mode at the {_SHOWN} slowest places of the chosen coordinate. Lines that part at
    one time: ask what happened at that place then.
    """,
    [("{{place}}", f"topk({_SHOWN}, max by (place) ({_MEAN}))")],
    unit=SECONDS,
    floor=None,
    most_points=POINTS,
)

SECTION: Final = Section(
    3,
    "Groups of ranks",
    [Line(9, [(8, _SHIFTS), (6, _BY_PLACE), (10, _OVER_TIME)])],
)
