"""L3 worker: reads kernel modes from Prometheus, finds the rank whose kernels changed, writes verdicts back.

`read`, `judge` and `write` are the stages of a `cycle`; `read` and `judge` meet in `triples` only. `reports`
shows what was found; `serve` and `cli` touch the process, files and clocks.
"""

from __future__ import annotations

from typing import Final

PROGRAM: Final = "argus-l3-worker"
"""Our name in a server's logs."""
