"""Configuration of the stacks channel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from argus_core.settings import constant, setting


@dataclass(frozen=True)
class StacksConfig:
    GONE: ClassVar = {
        "idle": "threads that wait are never sampled; `py-spy dump` shows them",
        "native": "C and C++ frames are never sampled; `py-spy dump --native` shows them",
    }

    enabled: bool = setting(
        True,
        "sample the stacks of local ranks with py-spy; where it is missing or refused, the channel is down",
    )
    rate: int = constant(
        10, "samples a second to begin with: some 100 a window; lowered while py-spy exceeds cpu_budget"
    )
    window_seconds: int = setting(
        10, "length of a sampling window; each starts py-spy anew (about 25 ms of CPU)"
    )
    cpu_budget: float = setting(0.01, "share of a core that watching one rank may take")
    top_frames: int = setting(10, "(thread, frame) pairs published a rank; the rest counts as other")
    executable: Path | None = setting(
        None, "py-spy to run; default: the one beside this Python, then the one on PATH"
    )

    def __post_init__(self) -> None:
        if not 1 <= self.window_seconds <= 300:
            raise ValueError(f"window_seconds is {self.window_seconds!r}; allowed: 1 to 300")
        if not 0 < self.cpu_budget <= 1:
            raise ValueError(f"cpu_budget is {self.cpu_budget!r}; allowed: above 0, at most 1")
        if not 1 <= self.top_frames <= 100:
            raise ValueError(f"top_frames is {self.top_frames!r}; allowed: 1 to 100")
