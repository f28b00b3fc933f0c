"""Table columns that look alike in every section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from argus_core.abstentions import ABSTENTIONS
from argus_core.causes import WORDS
from argus_dashboards.current import column
from argus_dashboards.links import KERNEL as KERNEL_DASHBOARD
from argus_dashboards.links import RANK as RANK_DASHBOARD
from argus_dashboards.links import to_dashboard
from argus_dashboards.theme import (
    BAD,
    COUNT,
    FACT,
    NOTICE,
    RATIO,
    TEAM_COLOURS,
    TICKET,
    VERDICT_COLOURS,
    Json,
    steps,
)

RANK_LINK: Final = to_dashboard(RANK_DASHBOARD, "Open rank ${__value.raw}", "rank=${__value.raw}")
KERNEL_LINK: Final = to_dashboard(KERNEL_DASHBOARD, "Open kernel ${__value.raw}", "kernel=${__value.raw}")
RUNBOOKS: Final = "https://github.com/argus-for-prometheus/argus/blob/main/docs/runbooks"
RUNBOOK_LINK: Final[Json] = {
    "title": "Runbook of ${__value.raw}",
    "url": f"{RUNBOOKS}/${{__value.raw}}.md",
    "targetBlank": True,
}
TRACE_LINK: Final[Json] = {
    "title": "Timeline in the Perfetto UI",
    "url": "${traces}/traces/${__value.raw}?ui=1",
    "targetBlank": True,
}

_NO_ROW: Final = {
    "all": "anything",
    **ABSTENTIONS,
    "history": "is slower than earlier runs of its model",
}
"""What is no row of the table of causes: what excuses everybody, and all that the history may say."""

LOST: Final = "Time lost"
LOSSES: Final = steps(FACT, {NOTICE: 0.02, TICKET: 0.05, BAD: 0.2})
"""Of a share of the job's time: below the first it is nobody's."""
SHIFT: Final = "Shift"


def text(name: str, colours: Mapping[str, str], width: int = 110) -> Json:
    """A column of known words, each in its colour."""
    return column(
        name, mappings=_coloured(colours), custom__cellOptions={"type": "color-text"}, custom__width=width
    )


def coded(name: str, mappings: Sequence[Json], width: int = 90, cell: str = "color-text") -> Json:
    """A column of numbers that stand for words (`theme.codes`), each in its colour."""
    return column(
        name, mappings=mappings, unit=COUNT, custom__cellOptions={"type": cell}, custom__width=width
    )


def value(name: str, unit: str, thresholds: Sequence[Json], width: int = 120, decimals: int = 1) -> Json:
    """A column of numbers, coloured by threshold."""
    return column(
        name,
        unit=unit,
        decimals=decimals,
        thresholds={"mode": "absolute", "steps": list(thresholds)},
        custom__cellOptions={"type": "color-text"},
        custom__width=width,
    )


def words(name: str, width: int = 260) -> Json:
    """A column of rows of the table of causes, in its words."""
    options = {
        cause: {"text": text, "color": FACT, "index": index}
        for index, (cause, text) in enumerate({**WORDS, **_NO_ROW}.items())
    }
    return column(name, mappings=[{"type": "value", "options": options}], custom__width=width)


def rank_number(width: int = 70) -> Json:
    """A column of ranks that may be empty, and so has no link."""
    return column("Rank", custom__width=width)


def _coloured(colours: Mapping[str, str]) -> list[Json]:
    options = {
        word: {"color": colour, "index": index} for index, (word, colour) in enumerate(colours.items())
    }
    return [{"type": "value", "options": options}]


def share(name: str) -> Json:
    """A column of shares of the job's time."""
    return value(name, RATIO, LOSSES, 90)


ALL_RUNBOOKS: Final = "README"
"""The page of all runbooks: where whoever is named has not been told of to anybody yet."""

# Grafana cannot leave out the link of an empty cell: no column with a link may have one (tests/dashboards).
RANK: Final = column("Rank", links=[RANK_LINK], custom__width=70)
KERNEL: Final = column("Kernel", links=[KERNEL_LINK])
ALERT: Final = column("Alert", links=[RUNBOOK_LINK], custom__width=200)
RUNBOOK: Final = column(
    "Runbook",
    links=[RUNBOOK_LINK],
    mappings=[{"type": "value", "options": {ALL_RUNBOOKS: {"text": "all runbooks", "index": 0}}}],
    custom__width=185,
)
TRACE: Final = column("Trace", links=[TRACE_LINK])
GPU: Final = column("GPU", custom__width=245)
STREAM: Final = column("Stream", custom__width=100)
CAUSE: Final = column("Cause", custom__width=130)
HOST: Final = column("Host", custom__width=150)
ROLE: Final = column("Role", custom__width=80)
PLACES: Final = column("/^(dp|tp|pp|ep)$/", custom__width=60)
TEAM: Final = text("Team", TEAM_COLOURS, 110)
VERDICT: Final = text("Verdict", VERDICT_COLOURS)
LOST_SHARE: Final = share(LOST)
SHIFT_RATIO: Final = value(SHIFT, RATIO, steps(FACT, {NOTICE: 0.03, TICKET: 0.1, BAD: 0.5}), 100)
