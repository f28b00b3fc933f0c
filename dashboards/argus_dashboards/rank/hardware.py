"""The GPU of the rank as dcgm-exporter sees it, where one is scraped."""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines
from argus_dashboards.theme import COUNT, FACT, Json

_GPU: Final = 'UUID="$gpu"'
HERTZ: Final = "hertz"
WATTS: Final = "watt"
CELSIUS: Final = "celsius"


def _gpu(title: str, metric: str, unit: str, text: str, factor: str = "") -> Json:
    panel: Json = lines(
        title,
        text,
        [("GPU", f"{factor}max({metric}{{{_GPU}}})")],
        unit=unit,
        colours={"GPU": FACT},
        empty="No dcgm-exporter says this of the GPU",
    )
    return panel


_CLOCK = _gpu(
    "SM clock",
    "DCGM_FI_DEV_SM_CLOCK",
    HERTZ,
    "A clock that fell when the rank became slow explains it: heat, power, or a clock that somebody set.",
    factor="1e6 * ",
)
_TEMPERATURE = _gpu(
    "Temperature",
    "DCGM_FI_DEV_GPU_TEMP",
    CELSIUS,
    "Rises before a thermal throttle. Hotter than its neighbours: dust, a fan, a loose heat sink.",
)
_POWER = _gpu(
    "Power",
    "DCGM_FI_DEV_POWER_USAGE",
    WATTS,
    "Less than its peers at the same work: it waits, or it is capped. At the limit: the clock will fall.",
)
_BITS = f"max(DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{_GPU}}} or DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_GPU}}})"
_SLOWS_DOWN = {
    4: "power cap",
    8: "hardware slowdown",
    32: "thermal, software",
    64: "thermal, hardware",
    128: "power brake",
}
"""Bits of DCGM's mask; the others are idle, clocks that somebody set, and clocks tied to another GPU's."""
_REASONS = lines(
    "Throttled",
    "1 while DCGM says that this takes speed from the GPU. Idle and application clocks are left out.",
    [(why, f"floor({_BITS} / {bit}) % 2") for bit, why in _SLOWS_DOWN.items()],
    unit=COUNT,
    ceiling=1,
    calcs=("lastNotNull", "max"),
    empty="No dcgm-exporter says this of the GPU",
)
_XID = _gpu(
    "Last Xid",
    "DCGM_FI_DEV_XID_ERRORS",
    COUNT,
    "Number of the last error of the driver. 48, 63, 64, 74, 79, 94 and 95 are hardware: drain the host.",
)

SECTION: Final = Section(
    5,
    "Hardware",
    [Line(7, [(5, _CLOCK), (5, _TEMPERATURE), (5, _POWER), (5, _REASONS), (4, _XID)])],
)
