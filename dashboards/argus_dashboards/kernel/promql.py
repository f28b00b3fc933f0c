"""PromQL that the sections of the kernel dashboard share."""

from __future__ import annotations

from typing import Final

from argus_dashboards.promql import JOB

KERNEL: Final = f'{JOB}, kernel="$kernel"'
OF_ROLE: Final = f'and on (rank) argus_rank_info{{{JOB}, role=~"$role"}}'
P50: Final = f"(argus_kernel_mode_p50_seconds{{{KERNEL}}} {OF_ROLE})"
P99: Final = f"(argus_kernel_mode_p99_seconds{{{KERNEL}}} {OF_ROLE})"
POINTS: Final = 60
"""Each reads the kernel on all ranks: at 10,000 ranks 240 would take seconds."""
