"""The phases of the rank beside those of its peers."""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, states
from argus_dashboards.promql import HEALTHY, JOB, RANKS, RATE, RECENT, against_peers
from argus_dashboards.theme import (
    BAD,
    CULPRIT_RATIO,
    FACT,
    FAST_RATIO,
    GOOD,
    LEAST,
    NOTICE,
    RATIO,
    SECONDS,
    TIMES,
    UNKNOWN,
    codes,
    steps,
)

_MEAN = f"max by (phase) (rank:argus_phase_duration_seconds:mean{{{RANKS}}})"
_SPENT = f"argus_phase_duration_seconds_sum{{{RANKS}}}"

_STACK = lines(
    "Where its time goes",
    """
    Share of wall time in each phase. A layer that grew is what became slower on this rank; a comm layer that
    grew means that it waits for others, one that shrank that others wait for it.
    """,
    [("{{phase}}", f"sum by (phase) (rate({_SPENT}[{RATE}]))")],
    unit=RATIO,
    stacked=True,
    calcs=("lastNotNull", "mean"),
    by_phase=True,
)
_AGAINST_PEERS = lines(
    "Phases against the group's median",
    """
    1 is like its peers. A compute or host phase above 1.2 is slow on this rank itself; less may be, where
    ranks are closer to one another. In comm phases the small values are the suspicious ones: a collective
    ends together, so who is late is short in it.
    """,
    [
        (
            "{{phase}}",
            f"max by (phase) ({against_peers(RANKS)})",
        )
    ],
    unit=TIMES,
    decimals=2,
    floor=None,
    limits=steps(GOOD, {NOTICE: CULPRIT_RATIO, BAD: FAST_RATIO}),
    most_points=80,  # it reads the median of every group of the job
    by_phase=True,
)
_DURATIONS = lines(
    "Mean duration by phase",
    "Seconds a span of each phase takes on this rank. Compare a step in a line with the marked alerts.",
    [("{{phase}}", _MEAN)],
    unit=SECONDS,
    by_phase=True,
)
_LONGEST = lines(
    "Longest span by phase",
    """
    Longest span in the trailing window. Spikes that the mean beside it does not show are rare stalls:
    garbage collection, compilation, data loading, a slow link.
    """,
    [("{{phase}}", f"max by (phase) (argus_phase_window_max_seconds{{{RANKS}}})")],
    unit=SECONDS,
    by_phase=True,
)
_OPEN_SINCE = f"argus_phase_open_timestamp_seconds{{{RANKS}}}"
_AGE = lines(
    "Age of the span that is open now",
    """
    How long the rank has been in the phase it is in. It stays below the longest spans above; a line that
    climbs without end is a hang, and the panel beside it says where.
    """,
    # At the scrape: until the next one nothing is known. 0 +: a time has no label of a type, which some
    # stores give to series.
    [("open since", f"max(timestamp({_OPEN_SINCE}) - (0 + {_OPEN_SINCE}))")],
    unit=SECONDS,
    colours={"open since": FACT},
)
_OPEN = states(
    "Phase at each scrape",
    """
    What the rank was in the middle of when it was scraped: long phases appear more often. One phase without
    a break while the age beside it climbs is where the rank hangs; in a comm phase it waits for others.
    """,
    [("{{phase}}", f"max by (phase) (argus_phase_open_timestamp_seconds{{{RANKS}}}) > bool 0")],
    codes({"closed": UNKNOWN, "open": FACT}),
)
_ITERATIONS = lines(
    "Iteration time of the rank and of the job",
    """
    In a synchronous job all ranks have the same iteration time, whoever is slow: a difference here means
    that the rank is not in step with the job, and its other numbers cannot be compared.
    """,
    [
        (
            "this rank",
            f"max(rate(argus_iteration_duration_seconds_sum{{{RANKS}}}[{RATE}])"
            f" / (rate(argus_iteration_duration_seconds_count{{{RANKS}}}[{RATE}]) > 0))",
        ),
        ("job", f'max({RECENT}{{{JOB}, total="count"}})'),
        ("job before it became slower", f'max({HEALTHY}{{{JOB}, total="count"}} < Inf)'),
    ],
    unit=SECONDS,
    colours={"this rank": FACT, "job": LEAST, "job before it became slower": UNKNOWN},
    dashed=["job before it became slower"],
)

SECTION: Final = Section(
    2,
    "Phases",
    [
        Line(9, [(12, _STACK), (12, _AGAINST_PEERS)]),
        Line(8, [(8, _DURATIONS), (8, _LONGEST), (8, _ITERATIONS)]),
        Line(7, [(8, _AGE), (16, _OPEN)]),
    ],
)
