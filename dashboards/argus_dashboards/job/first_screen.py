"""What whoever is called at night needs, on one screen: state, since when, cost, who, and who not."""

from __future__ import annotations

from typing import Final

from argus_dashboards.job import card, exclusions, findings, iterations, state
from argus_dashboards.layout import Line, Section

ROWS: Final = 22
"""Of Grafana's grid, 38 pixels each: what 1,080 lines show below the bars of Grafana and of a browser."""


def section() -> Section:
    return Section(
        1,
        "What is wrong, and whose it is",
        [
            Line(
                3,
                [
                    (4, state.L1_CLASS),
                    (3, iterations.SLOWER_SINCE),
                    (3, state.LOST),
                    (2, state.LOST_GPUS),
                    (3, state.AGAINST_HEALTHY),
                    (3, state.LOST_GPU_HOURS),
                    (2, state.CONNECTED),
                    (2, state.MISSING),
                    (2, state.TOLD),
                ],
            ),
            Line(
                12,
                [
                    (13, card.panel()),
                    (11, [(5, iterations.ITERATION_TIME), (4, exclusions.BY_CAUSE), (3, exclusions.SETS)]),
                ],
            ),
            Line(6, [(13, findings.RANKS), (11, findings.OTHERS)]),
        ],
    )
