"""Windows of kernel records, and how much is published of them."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.settings import constant, require_positive, setting


@dataclass(frozen=True)
class WindowsConfig:
    seconds: float = setting(60.0, "length that a kernel window aims at; it ends at a power-of-two step")
    steps: int | None = constant(
        None, "windows end at the same step on every rank because all derive it from windows.seconds"
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
    communication: tuple[str, ...] = setting(
        (),
        "patterns of full kernel names that communicate, beside NCCL, RCCL, DeepEP, NVSHMEM and custom "
        "all-reduces: their time is exposed communication where nothing hides it, as in [my_all_reduce_*]",
    )

    def __post_init__(self) -> None:
        require_positive(self, "top_pairs")
