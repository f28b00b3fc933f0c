"""Table columns that look alike in every section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from argus_dashboards.current import column
from argus_dashboards.theme import (
    BAD,
    FACT,
    NOTICE,
    RATIO,
    TEAM_COLOURS,
    TICKET,
    VERDICT_COLOURS,
    Json,
    steps,
)

UID: Final = "argus-job"
"""Alerts link here (`dashboardUrl` in jsonnet/config.libsonnet), with var-training_job and var-rank."""

RANK_LINK: Final[Json] = {
    "title": "Show only rank ${__value.raw}",
    "url": f"/d/{UID}/{UID}?${{datasource:queryparam}}&${{training_job:queryparam}}"
    "&${__url_time_range}&var-rank=${__value.raw}",
    "targetBlank": False,
}

LOST: Final = "Wall time lost"
SHIFT: Final = "Shift"


def text(name: str, colours: Mapping[str, str], width: int = 110) -> Json:
    """A column of known words, each in its colour."""
    return column(
        name, mappings=_coloured(colours), custom__cellOptions={"type": "color-text"}, custom__width=width
    )


def value(name: str, unit: str, thresholds: Sequence[Json], width: int = 120) -> Json:
    """A column of numbers, coloured by threshold."""
    return column(
        name,
        unit=unit,
        decimals=1,
        thresholds={"mode": "absolute", "steps": list(thresholds)},
        custom__cellOptions={"type": "color-text"},
        custom__width=width,
    )


def _coloured(colours: Mapping[str, str]) -> list[Json]:
    options = {
        word: {"color": colour, "index": index} for index, (word, colour) in enumerate(colours.items())
    }
    return [{"type": "value", "options": options}]


RANK: Final = column("Rank", links=[RANK_LINK], custom__width=90)
TEAM: Final = text("Team", TEAM_COLOURS, 130)
VERDICT: Final = text("Verdict", VERDICT_COLOURS)
LOST_SHARE: Final = value(LOST, RATIO, steps(FACT, {NOTICE: 0.02, TICKET: 0.05, BAD: 0.2}), 140)
SHIFT_RATIO: Final = value(SHIFT, RATIO, steps(FACT, {NOTICE: 0.03, TICKET: 0.1, BAD: 0.5}), 100)
