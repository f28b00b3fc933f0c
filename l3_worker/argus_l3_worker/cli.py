"""`argus-l3-worker`: from kernel modes in Prometheus to verdicts, and reports for people."""

from __future__ import annotations

import sys

from argus_core.command_line import Program

PROGRAM = Program(
    "argus-l3-worker",
    "Compares the kernel durations of all ranks, names the one that changed, and writes it back.",
    package="argus_l3_worker",
    commands={
        "serve": "judge on a grid until stopped; /metrics and /healthz",
        "once": "judge the last windows once and print what was found",
        "doctor": "check all that the worker needs, with a remedy for what is missing",
        "explain": "one card on a job: who holds it up, since when, what it costs, why, and what to do",
        "diagnose": "report what happened to a job, why, and what to do about it",
        "matrix": "draw how far the ranks' durations of one kernel lie from one another",
        "trace": "say from the traces of several ranks where the time went, and who is to blame",
    },
    config="argus_l3_worker.config:Config",
    extra="l3",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
