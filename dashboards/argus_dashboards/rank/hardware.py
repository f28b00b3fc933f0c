"""The GPU of the rank as dcgm-exporter sees it, where one is scraped."""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines
from argus_dashboards.theme import COUNT, FACT, Json

_GPU: Final = 'UUID="$gpu"'
MEGAHERTZ: Final = "suffix:MHz"
WATTS: Final = "watt"
CELSIUS: Final = "celsius"


def _gpu(title: str, metric: str, unit: str, text: str, renamed: str = "") -> Json:
    other = f" or {renamed}{{{_GPU}}}" if renamed else ""
    panel: Json = lines(
        title,
        text,
        [("GPU", f"max({metric}{{{_GPU}}}{other})")],
        unit=unit,
        colours={"GPU": FACT},
        empty="No dcgm-exporter says this of the GPU",
    )
    return panel


_CLOCK = _gpu(
    "SM clock",
    "DCGM_FI_DEV_SM_CLOCK",
    MEGAHERTZ,
    "A clock that fell when the rank became slow explains it: heat, power, or a clock that somebody set.",
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
_REASONS = _gpu(
    "Throttle reasons",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    COUNT,
    """
    Bit mask of DCGM: 1 idle, 2 application clocks, 4 power cap, 8 hardware slowdown, 32 software thermal, 64
    hardware thermal, 128 power brake. Anything but 0, 1 and 2 takes speed from this GPU.
    """,
    renamed="DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
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
