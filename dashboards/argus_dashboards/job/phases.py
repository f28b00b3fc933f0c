"""L2: which phase is uneven, over all ranks?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import heatmap, lines
from argus_dashboards.promql import GROUP, MEDIAN, NOT_COMM, PHASES
from argus_dashboards.theme import BAD, COUNT, CV_MILD, CV_SEVERE, GOOD, NOTICE, RATIO, SECONDS, steps

# Rules never mix sources (CUDA event, host clock, NCCL kernel) in one group, and neither do we.
_BY = "phase, source"
_LEGEND = "{{phase}} ({{source}})"
_GROUP = "group:argus_phase_duration_seconds"

_TYPICAL = lines(
    "Phase duration: typical rank",
    """
    Median over groups of each group's median rank: what a healthy rank needs. A rise here is the whole
    job's, not one rank's.
    """,
    [(_LEGEND, f"quantile by ({_BY}) (0.5, {MEDIAN}{{{PHASES}}})")],
    unit=SECONDS,
    by_phase=True,
)

# Of the ranks that differ from their median; where none does, the slowest is like the others. Collectives are
# left out: whoever waits is longest there, and that is nearly all ranks.
_OWN_MEDIAN = f"{MEDIAN}{{{PHASES}, {NOT_COMM}}}"
_DIFFERING = f"rank:argus_phase_duration_seconds:median_ratio{{{PHASES}, {NOT_COMM}}}"
_SLOWEST = lines(
    "Phase duration: slowest rank",
    """
    The longest mean of any rank in compute and host phases. Far above the panel on the left: somebody is slow
    in that phase, by himself or because it holds a wait.
    """,
    [
        (
            _LEGEND,
            f"max by ({_BY}) ({_DIFFERING} * on ({GROUP}) group_left () {_OWN_MEDIAN})\n"
            f"or max by ({_BY}) ({_OWN_MEDIAN})",
        )
    ],
    unit=SECONDS,
    by_phase=True,
)

_IMBALANCE = lines(
    "Imbalance inside groups",
    """
    Highest coefficient of variation of any group, by phase. Under 2 %: balanced. Over 5 %: severe; the next
    section shows which ranks. One slow rank among hundreds hardly moves it, so trust the findings before this
    line.
    """,
    [(_LEGEND, f"max by ({_BY}) ({_GROUP}:cv{{{PHASES}}})")],
    unit=RATIO,
    limits=steps(GOOD, {NOTICE: CV_MILD, BAD: CV_SEVERE}),
    by_phase=True,
)

# Collectives are left out: one late rank makes ten thousand others differ in each, which says no more than
# the findings above, and took 6 s an hour's picture. So are ranks like their peers.
_DISTRIBUTION = heatmap(
    "Ranks that differ from their group's median",
    """
    How many (rank, phase) pairs take how much more or less than their group's median, beyond 5 %, in compute
    and host phases: empty is good. A few cells far above 1 are stragglers. Two bands are two kinds of ranks:
    look for the topology that divides them. One broad band is uneven work.
    """,
    f"""count_values("ratio",
  round(clamp(rank:argus_phase_duration_seconds:median_ratio{{{PHASES}, {NOT_COMM}}}, 0, 5), 0.1) != 1
)""",
    legend="{{ratio}}",
    axis="duration / median",
    unit=COUNT,
    empty="All ranks are within 5 % of their group's median",
)

_STACK = lines(
    "Where the time goes",
    """
    Share of wall time that the median rank spends in each phase, without what lies in other phases; what the
    stack lacks to 100 % is time that no phase covers. A layer that grew is what became slower; a comm layer
    that grew alone is waiting, so look for a late rank.
    """,
    [
        (
            "{{phase}}",
            f"sum by (phase) ({MEDIAN}{{{PHASES}}} * group:argus_phase_spans:rate{{{PHASES}}}"
            f" * group:argus_phase_ranks:count{{{PHASES}}})"
            f"\n/ sum by (phase) (group:argus_phase_ranks:count{{{PHASES}}})",
        )
    ],
    unit=RATIO,
    stacked=True,
    calcs=("lastNotNull", "mean"),
    most_points=40,  # it multiplies three series of every group, and a tensor-parallel group has four ranks
    by_phase=True,
)

_NO_PAUSE = 'phase!~"gc|compile|jit"'  # the mixin's pausePhases
_COVERAGE = lines(
    "Groups that are not judged",
    """
    Share of its ranks that report the phase, of the worst group, where that is less than half: the rest is no
    majority, so nothing is said of the group. Empty is good. Pauses (gc, compile) are left out: few ranks
    have them at a time.
    """,
    [("{{phase}}", f"min by (phase) (group:argus_phase_coverage:low_ratio{{{PHASES}, {_NO_PAUSE}}})")],
    unit=RATIO,
    ceiling=1,
    calcs=("lastNotNull", "min"),
    by_phase=True,
    empty="At least half of the ranks of every group report",
)

SECTION: Final = Section(
    4,
    "Phases (L2)",
    [
        Line(9, [(12, _STACK), (12, _IMBALANCE)]),
        Line(8, [(12, _TYPICAL), (12, _SLOWEST)]),
        Line(8, [(16, _DISTRIBUTION), (8, _COVERAGE)]),
    ],
    folded=True,
)
