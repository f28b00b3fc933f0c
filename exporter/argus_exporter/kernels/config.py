"""Windows of kernel records, and how much is published of them."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.settings import require_positive, setting


@dataclass(frozen=True)
class WindowsConfig:
    seconds: float = setting(60.0, "length that a kernel window aims at; it ends at a power-of-two step")
    steps: int | None = setting(
        None, "fixed window length in steps, the same on every rank; default: derived from windows.seconds"
    )
    settle_seconds: float = setting(2.0, "how long a closed window waits for late kernel records")
    extremes_seconds: float = setting(
        60.0, "trailing window of the min and max gauges; at least two scrape intervals"
    )

    def __post_init__(self) -> None:
        require_positive(self, "seconds", "extremes_seconds", "steps")
        if self.settle_seconds < 0:
            raise ValueError(f"settle_seconds is {self.settle_seconds!r}; allowed: 0 or more")


@dataclass(frozen=True)
class KernelsConfig:
    top_pairs: int = setting(20, "(kernel, stream) pairs published a rank, by time share")

    def __post_init__(self) -> None:
        require_positive(self, "top_pairs")
