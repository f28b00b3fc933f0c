"""Configuration of the stacks channel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus_core.settings import setting


@dataclass(frozen=True)
class StacksConfig:
    enabled: bool = setting(
        True,
        "sample the stacks of local ranks with py-spy; where it is missing or refused, the channel is down",
    )
    rate: int = setting(10, "samples a second to begin with; lowered while py-spy costs more than cpu_budget")
    window_seconds: int = setting(
        10, "length of a sampling window; each starts py-spy anew (about 25 ms of CPU)"
    )
    cpu_budget: float = setting(0.01, "share of a core that watching one rank may take")
    top_frames: int = setting(10, "(thread, frame) pairs published a rank; the rest counts as other")
    idle: bool = setting(False, "also sample threads that wait")
    native: bool = setting(
        False, "also sample C and C++ frames: pauses the process at each sample and costs ten times as much"
    )
    executable: Path | None = setting(
        None, "py-spy to run; default: the one beside this Python, then the one on PATH"
    )

    def __post_init__(self) -> None:
        if not 1 <= self.rate <= 100:
            raise ValueError(f"rate is {self.rate!r}; allowed: 1 to 100")
        if not 1 <= self.window_seconds <= 300:
            raise ValueError(f"window_seconds is {self.window_seconds!r}; allowed: 1 to 300")
        if not 0 < self.cpu_budget <= 1:
            raise ValueError(f"cpu_budget is {self.cpu_budget!r}; allowed: above 0, at most 1")
        if not 1 <= self.top_frames <= 100:
            raise ValueError(f"top_frames is {self.top_frames!r}; allowed: 1 to 100")
