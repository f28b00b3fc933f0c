"""`argus-exporter`: the exporter of a GPU host, and how people try ARGUS on data they have."""

from __future__ import annotations

import sys

from argus_core.command_line import Program

PROGRAM = Program(
    "argus-exporter",
    "Watches the ranks of a training job on this host for Prometheus.",
    package="argus_exporter",
    commands={
        "serve": "run the exporter of this host until SIGTERM or Ctrl-C",
        "run": "run a training command with ARGUS attached",
        "install-hook": "have a Python environment attach ARGUS by itself, below any launcher",
        "replay": "read recorded traces: print a summary, or serve them as if they happened now",
        "trace": "turn files of other tools into traces for Perfetto; list and fetch stored traces",
        "ras": "ask NCCL which ranks of a job are dead, do not answer, or have launched less than others",
        "budget": "say how many series a fleet makes, and what Prometheus needs for them",
        "catalogue": "list every metric family, its type, labels and meaning",
    },
    config="argus_exporter.config:ExporterConfig",
    extra="exporter",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
