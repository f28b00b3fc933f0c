"""Whether NCCL is asked about jobs that stand still, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.settings import constant, setting


@dataclass(frozen=True)
class RasConfig:
    enabled: bool = setting(
        False,
        "ask NCCL's RAS about a job that stands still, where its version is safe to ask (docs/ras.md); the "
        "exporter that has rank 0 asks, of one process. Off, as one real NCCL alone has been asked yet",
    )
    after_seconds: float = constant(
        30.0,
        "least time since a job's last step: half of what a stall takes, so that the alert finds answers",
    )
    period_seconds: float = constant(
        15.0, "between two questions: more often loads RAS's threads in all processes of the job"
    )
