"""The worst jobs over time."""

from __future__ import annotations

from typing import Final

from argus_dashboards.jobs.overview import PACE, STATE, STATE_CODES
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, states
from argus_dashboards.promql import CLUSTER, against_healthy, lost_gpus
from argus_dashboards.theme import BAD, COUNT, GOOD, NOTICE, SECONDS, TIMES, steps

_SHOWN: Final = 15
_NAME = "{{training_job}} {{cluster}}"

_LOST = lines(
    "GPUs lost, by job",
    f"""
    The {_SHOWN} jobs that lose most. Several jobs that begin to lose at one time share something: a rack, a
    network, a file system, an image.
    """,
    [(_NAME, f"topk({_SHOWN}, {lost_gpus(CLUSTER)})")],
    unit=COUNT,
    decimals=1,
    filled=True,
    empty="No job lost anything in this range",
)
_AGAINST_HEALTHY = lines(
    "Iteration against healthy, by job",
    f"""
    Time of an iteration, or of a unit of work, over that before the job became slower, for the {_SHOWN}
    worst. It stays until the job recovers or starts anew.
    """,
    [(_NAME, f"topk({_SHOWN}, {against_healthy(CLUSTER)})")],
    unit=TIMES,
    decimals=2,
    floor=1,
    limits=steps(GOOD, {NOTICE: 1.035, BAD: 1.5}),
)
_CLASSES = states(
    "State of the worst jobs",
    f"State of the {_SHOWN} worst jobs. Changes at one time in several jobs have one cause outside of them.",
    [(_NAME, f"topk({_SHOWN}, {STATE})")],
    STATE_CODES,
)
_ITERATIONS = lines(
    "Iteration time, by job",
    f"Of the {_SHOWN} jobs with the longest steps: a step in a line is a change of that job.",
    [(_NAME, f"topk({_SHOWN}, {PACE})")],
    unit=SECONDS,
)

SECTION: Final = Section(
    2,
    "The worst jobs over time",
    [Line(8, [(12, _LOST), (12, _AGAINST_HEALTHY)]), Line(8, [(12, _CLASSES), (12, _ITERATIONS)])],
)
