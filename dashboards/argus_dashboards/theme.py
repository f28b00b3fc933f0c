"""What colours and units mean, on every panel alike.

Green: as it should be. Blue: a fact without judgement. Yellow: look when you have time. Orange: somebody's
ticket. Red: costs the job GPUs now. Grey: we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

GOOD: Final = "green"
FACT: Final = "blue"
NOTICE: Final = "yellow"
TICKET: Final = "orange"
BAD: Final = "red"
UNKNOWN: Final = "#808080"

SECONDS: Final = "s"
RATIO: Final = "percentunit"
TIMES: Final = "suffix:x"
BYTES: Final = "bytes"
BYTES_A_SECOND: Final = "Bps"
COUNT: Final = "short"
EXACT: Final = "none"
"""A count of which each one matters: 1,023 of 1,024 ranks."""
PER_SECOND: Final = "cps"
TIMESTAMP: Final = "dateTimeAsIsoNoDateIfToday"

CV_MILD: Final = 0.02
CV_SEVERE: Final = 0.05
"""Coefficients of variation from which rules record z, and which ARGUS calls severe."""
# The mixin's levels (jsonnet/config.libsonnet): spreadLeast, spreadYoung and fastRatio.
NOTICE_RATIO: Final = 1.05
CULPRIT_RATIO: Final = 1.2
FAST_RATIO: Final = 1.4

MOST: Final = "#CA95E5"
LEAST: Final = "#8AB8FF"
"""Of lines that judge nothing: the largest and the smallest of what is shown; between them stands FACT."""

SLOWNESS: Final = "continuous-blues"
"""Colour mode for maps, from 0 to the most of what is shown: even values look even, none is green or red."""

STATE_COLOURS_OF_JOB: Final = {
    "stable": GOOD,
    "slow": TICKET,
    "jitter": NOTICE,
    "regression": TICKET,
    "both": BAD,
    "stalled": "dark-red",
}
"""Order is the code under which `promql.state_of_job` gives it: worse is higher."""
STATE_WORDS: Final = {"jitter": "uneven", "regression": "slower", "both": "slower, uneven"}
"""What a panel calls the states whose names are the rules' own."""
PHASE_COLOURS: Final = {
    "forward": "#8AB8FF",
    "backward": "#3274D9",
    "optimizer": "#8F3BB8",
    "data": "#CA95E5",
    "dp-": "#37A2B4",
    "tp-": "#70DBED",
    "pp-": "#8C9BAB",
    "ep-": "#D8DFE6",
}
"""By how a phase's name begins; none is a colour that judges."""
VERDICT_COLOURS: Final = {"culprit": BAD, "victim": FACT, "abstain": UNKNOWN}
SEVERITY_COLOURS: Final = {"page": BAD, "ticket": TICKET, "info": FACT}
STATE_COLOURS: Final = {"firing": BAD, "pending": NOTICE}
TEAM_COLOURS: Final = {"operations": "purple", "infrastructure": "#5794F2", "algorithm": "#37872D"}


def state_codes() -> list[Json]:
    """Value mapping from the codes of `promql.state_of_job` to words."""
    return codes({STATE_WORDS.get(state, state): colour for state, colour in STATE_COLOURS_OF_JOB.items()})


def steps(base: str, above: Mapping[str, float] | None = None) -> list[Json]:
    """Threshold steps: `base` from minus infinity, then each colour from its value upwards."""
    rising = [{"color": colour, "value": value} for colour, value in (above or {}).items()]
    return [{"color": base, "value": None}, *rising]


def codes(colours: Mapping[str, str]) -> list[Json]:
    """Value mapping from 0, 1, 2, ... to the texts, in the order given."""
    return [
        {
            "type": "value",
            "options": {
                str(code): {"text": text, "color": colour, "index": code}
                for code, (text, colour) in enumerate(colours.items())
            },
        }
    ]


TOLD_CODES: Final = codes({"nobody": GOOD, "ticket": TICKET, "page": BAD})
"""Of `promql.told`."""
