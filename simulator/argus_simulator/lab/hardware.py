"""What dcgm-exporter shows of the GPUs of a job whose faults have `counters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argus_simulator.engine.faults import Counters, Fault

HEALTHY: Final = {
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_GPU_TEMP": 62.0,
    "DCGM_FI_DEV_POWER_USAGE": 560.0,
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0.0,
}
"""Of an H100 that trains. All but the reasons are in dcgm-exporter's default list (default-counters.csv)."""
_IDLE_MEGAHERTZ: Final = 345.0
_CHANGED: Final[Mapping[Counters, Mapping[str, float]]] = {
    "": {},
    # The hardware's thermal slowdown, bit 0x40 of NVML's reasons.
    "thermal": {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 64.0, "DCGM_FI_DEV_GPU_TEMP": 88.0},
    # The power brake, bit 0x80.
    "power-brake": {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 128.0, "DCGM_FI_DEV_POWER_USAGE": 300.0},
    # The latest Xid: rows are remapped (63), or the GPU has fallen off the bus (79); both stay until a reset.
    "xid-63": {"DCGM_FI_DEV_XID_ERRORS": 63.0},
    "xid-79": {"DCGM_FI_DEV_XID_ERRORS": 79.0},
}


def counters(faults: Mapping[str, Fault], rank: int, step: int) -> dict[str, float]:
    """By name, in megahertz, degrees, watts, or as NVML numbers them; empty: no exporter of them is there.

    Args:
        step: how many steps the job has done.
    """
    told = [fault for fault in faults.values() if fault.counters]
    if not told:
        return {}
    found = dict(HEALTHY)
    for fault in told:
        lasting = fault.counters.startswith("xid") and step >= fault.onset_step
        if rank in fault.ranks and (lasting or fault.active(step)):
            found |= _CHANGED[fault.counters]
            if fault.counters in ("thermal", "power-brake"):
                clock = found["DCGM_FI_DEV_SM_CLOCK"] / fault.factor
                found["DCGM_FI_DEV_SM_CLOCK"] = max(round(clock), _IDLE_MEGAHERTZ)
    return found
