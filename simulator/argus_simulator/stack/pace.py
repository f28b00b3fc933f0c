"""How fast everything is played here: one number, by which rules, scrapes, windows and jobs go together.

`rules/test` are the shipped rules with every second a tenth as long (`_config.second` in
jsonnet/argus.jsonnet). So scrapes, the windows of exporters and of the worker, and the steps of jobs are a
tenth of what they are in production: what is found here is found there as well, in ten times as long.
"""

from __future__ import annotations

from typing import Final

SECOND_S: Final = 0.1
"""How long a second of the shipped configuration lasts here."""
SCRAPE_S: Final = 15 * SECOND_S
"""Between scrapes, and between evaluations of what follows each scrape."""
LOOKBACK_S: Final = 300 * SECOND_S
"""For so long Prometheus takes a sample for the present where no newer one is there: its default."""


def duration(seconds: float) -> str:
    """As Prometheus writes it: 1.5 is 1500ms."""
    return f"{round(seconds * 1000)}ms"
