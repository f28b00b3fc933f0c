"""The worst jobs over time."""

from __future__ import annotations

from typing import Final

from argus_dashboards.jobs.overview import STATE, STATE_CODES
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, states
from argus_dashboards.promql import CLUSTER
from argus_dashboards.theme import BAD, COUNT, GOOD, NOTICE, SECONDS, TIMES, steps

_SHOWN: Final = 15
_RECENT = f"max by (training_job) (job:argus_iteration_seconds:recent{{{CLUSTER}}})"
_BASELINE = f"max by (training_job) (job:argus_iteration_seconds:baseline{{{CLUSTER}}})"

_LOST = lines(
    "GPUs lost, by job",
    f"""
    The {_SHOWN} jobs that lose most. Several jobs that begin to lose at one time share something: a rack, a
    network, a file system, an image.
    """,
    [
        (
            "{{training_job}}",
            f"topk({_SHOWN}, max by (training_job) (job:argus_lost_gpus:current{{{CLUSTER}}}))",
        )
    ],
    unit=COUNT,
    decimals=1,
    filled=True,
    empty="No job lost anything in this range",
)
_AGAINST_BASELINE = lines(
    "Iteration against baseline, by job",
    f"""
    Iteration time over its median of the last hour, for the {_SHOWN} worst. Above 1.05 the job became
    slower; back at 1 after an hour means that slow has become the baseline, not that it is healthy.
    """,
    [("{{training_job}}", f"topk({_SHOWN}, {_RECENT} / {_BASELINE})")],
    unit=TIMES,
    decimals=2,
    floor=1,
    limits=steps(GOOD, {NOTICE: 1.05, BAD: 1.5}),
)
_CLASSES = states(
    "State of the worst jobs",
    f"State of the {_SHOWN} worst jobs. Changes at one time in several jobs have one cause outside of them.",
    [("{{training_job}}", f"topk({_SHOWN}, {STATE})")],
    STATE_CODES,
)
_ITERATIONS = lines(
    "Iteration time, by job",
    f"Of the {_SHOWN} jobs with the longest steps: a step in a line is a change of that job.",
    [("{{training_job}}", f"topk({_SHOWN}, {_RECENT})")],
    unit=SECONDS,
)

SECTION: Final = Section(
    2,
    "The worst jobs over time",
    [Line(8, [(12, _LOST), (12, _AGAINST_BASELINE)]), Line(8, [(12, _CLASSES), (12, _ITERATIONS)])],
)
