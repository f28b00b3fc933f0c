"""`argus-simulator`: play a simulated training job, alone or in front of the whole stack."""

from __future__ import annotations

import sys

from argus_core.command_line import Program

PROGRAM = Program(
    "argus-simulator",
    "Plays simulated training jobs with faults against ARGUS.",
    package="argus_simulator",
    commands={
        "run": "play one scenario to an exporter in real time",
        "demo": "a slow rank found, routed and explained, in front of the whole stack",
        "fleet": "1,000 to 100,000 ranks as series, by remote write or as OpenMetrics for backfill",
        "score": "play the fault catalogue to the shipped rules in virtual time, or live, and judge it",
    },
    extra="simulator",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
