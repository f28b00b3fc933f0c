"""The table of causes, for programs: who can mend what, and what people read of it.

Generated from jsonnet/causes.libsonnet by `make generate`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEAMS: Final[Mapping[str, str]] = {
    "hang-host": "operations",
    "hang-data": "algorithm",
    "hang-comm": "operations",
    "host-gc": "algorithm",
    "host-jit": "infrastructure",
    "host-cpu": "operations",
    "host-alloc": "algorithm",
    "data-input": "algorithm",
    "kernel": "operations",
    "gpu-transfer": "operations",
    "gpu-compute": "operations",
    "workload": "algorithm",
    "kernel-work": "algorithm",
    "suspect-set": "operations",
    "link-slow": "operations",
    "collective-late": "operations",
    "fabric": "operations",
    "regression": "infrastructure",
    "work-uneven": "algorithm",
    "jitter": "infrastructure",
    "history-colocation": "infrastructure",
    "history-kernel-shape": "infrastructure",
    "history-kernel-inefficient": "infrastructure",
    "history-host-alloc": "infrastructure",
    "history-data-input": "algorithm",
    "history-host-sync": "algorithm",
    "history-host-code": "algorithm",
    "history-fabric-config": "operations",
    "history-overlap-config": "infrastructure",
    "history-unexplained": "infrastructure",
    "gpu-memory": "operations",
    "undetermined": "infrastructure",
}
"""Who can mend it, by the cause of the evidence; a hang by what hangs."""

WORDS: Final[Mapping[str, str]] = {
    "hang-host": "hangs",
    "hang-data": "hangs while it fetches data",
    "hang-comm": "waits for a collective that does not end",
    "own-excess": "loses time in phases of its own, suspicious or not",
    "more-work": "needs longer because it has more to do",
    "suspect-many": "is one of so many ranks, which wait for one another within this phase, that naming them helps nobody",  # noqa: E501
    "kept-waiting": "waits in other collectives",
    "host-gc": "pauses to collect garbage",
    "host-jit": "pauses to compile",
    "host-cpu": "has a slow host",
    "host-alloc": "is held up by its own code, which allocates or pins memory, now on one rank and now on another",  # noqa: E501
    "data-input": "waits for its input data",
    "kernel": "computes slowly on its GPU",
    "gpu-transfer": "needs longer for copies of memory than the ranks that do the same work",
    "gpu-compute": "computes slowly",
    "workload": "has more to do than the others",
    "kernel-work": "has more to do than the others",
    "suspect-set": "computes slowly; its ranks wait for one another within this phase, and nothing tells which of them it is",  # noqa: E501
    "link-slow": "has a slow link",
    "collective-late": "comes late to collectives, and none of its own phases says why",
    "fabric": "has slower collectives than before in most of its groups",
    "regression": "is slower than before, on all ranks alike",
    "work-uneven": "has work that is spread unevenly over its ranks",
    "jitter": "has iterations that take far longer than the others, again and again",
    "history-colocation": "computes slower than earlier runs of its model, whatever it computes: something else runs on its GPUs, or their clocks are lower",  # noqa: E501
    "history-kernel-shape": "has kernels that take longer than in earlier runs of its model: another shape or backend",  # noqa: E501
    "history-kernel-inefficient": "runs kernels that earlier runs of its model did not have, or had less often",  # noqa: E501
    "history-host-alloc": "allocates or pins memory more often than earlier runs of its model",
    "history-data-input": "waits longer for its input data than earlier runs of its model",
    "history-host-sync": "waits for its GPUs where earlier runs of its model did not: somebody synchronises",
    "history-host-code": "spends more time in Python code than earlier runs of its model: its GPUs wait for launches",  # noqa: E501
    "history-fabric-config": "waits longer for its collectives than earlier runs of its model: they are slower, or less of them is hidden behind computation",  # noqa: E501
    "history-overlap-config": "no longer hides its communication behind computation, as earlier runs of its model did",  # noqa: E501
    "history-unexplained": "is slower than earlier runs of its model, and nothing says why",
    "gpu-memory": "has kernels that take far longer now and then, as memory errors leave them",
    "undetermined": "waits, and its trace does not show for what",
}
"""What it is, in a sentence about a rank, a set, a group or the job."""

HANGS: Final = ("hang-host", "hang-data", "hang-comm")
"""Causes of whoever holds up a job that stands still."""

CONTEXT: Final = ("own-excess", "more-work", "suspect-many", "kept-waiting")
"""What is never named: it only excuses."""
