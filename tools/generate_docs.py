"""Reference pages from their single sources: metrics from the catalogue, settings from the config classes,
environment variables from the producer's table.

`python -m tools.generate_docs` writes them; `--check` exits 1 and names what is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from argus_core.catalogue import CATALOGUE, Family
from argus_core.settings import document
from argus_exporter.config import ExporterConfig
from argus_l3_worker.config import Config
from argus_training.settings import TABLE, Variable
from tools.generated import write_or_check

DOCS = Path(__file__).resolve().parent.parent / "docs"

_COMPONENTS = {
    "exporter": "Published by the exporter, for each rank",
    "exporter-self": "Published by the exporter, about itself",
    "worker": "Written by the L3 worker",
}


def metrics_page() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Generated from `exporter/argus_core/catalogue.py` by `make generate`; do not edit.",
        "Labels in brackets appear only where they exist. A summary is exposed as `_sum` and `_count`; "
        "one with quantiles also under its own name with the label `quantile`.",
        "",
    ]
    for component, title in _COMPONENTS.items():
        lines += [f"## {title}", "", "| family | type | labels | meaning |", "|---|---|---|---|"]
        lines += [_row(family) for family in CATALOGUE if family.component == component]
        lines.append("")
    return "\n".join(lines)


def _row(family: Family) -> str:
    labels = [f"`{label}`" for label in family.labels] + [f"[`{label}`]" for label in family.optional_labels]
    return f"| `{family.name}` | {family.type} | {' '.join(labels)} | {family.help} |"


def configuration_page() -> str:
    """docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "Generated from the configuration classes by `make generate`; do not edit.",
        "Each component reads one YAML file (`--config FILE`); flags override it. Unknown keys are refused. "
        "`--help-config` prints the list.",
    ]
    for title, cls in (("argus-exporter", ExporterConfig), ("argus-l3-worker", Config)):
        lines += ["", f"## {title}", "", "| key | allowed | default | meaning |", "|---|---|---|---|"]
        for key, allowed, default, help_ in document(cls):
            shown = "" if default in (None, "", {}, ()) else f"`{default}`"
            lines.append(f"| `{key}` | {allowed} | {shown} | {help_} |")
    return "\n".join(lines) + "\n"


def environment_page() -> str:
    """docs/environment.md."""
    lines = [
        "# Environment variables of the training process",
        "",
        "Generated from `exporter/argus_training/settings.py` by `make generate`; do not edit.",
        "What cannot be used is said once on stderr, and the default is used: nothing here stops a job.",
        "",
        "All but `ARGUS_SOCKET` and `ARGUS_PRODUCER_PID` can also stand in a "
        "[file beside the socket](training.md#settings-in-a-file); a variable wins.",
        "",
        "| variable | allowed | default | meaning |",
        "|---|---|---|---|",
    ]
    lines += [_variable(variable) for variable in TABLE]
    return "\n".join(lines) + "\n"


def _variable(variable: Variable) -> str:
    if variable.type is bool:
        allowed, default = "1 or 0", str(int(variable.default))
    elif variable.type is int:
        allowed, default = f"a whole number from {variable.minimum}", str(variable.default)
    elif variable.type is tuple:
        allowed, default = "a list of the names given", ",".join(variable.default)
    else:
        allowed, default = " or ".join(variable.allowed) or "text", variable.default
    shown = f"`{default}`" if default else ""
    return f"| `{variable.name}` | {allowed} | {shown} | {variable.help.replace('|', chr(92) + '|')} |"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    files = {
        DOCS / "metrics.md": metrics_page(),
        DOCS / "configuration.md": configuration_page(),
        DOCS / "environment.md": environment_page(),
    }
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
