"""Reference pages from their single sources: metrics from the catalogue, settings from the config classes.

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
        "Each component reads one YAML file (`--config FILE`); flags override it. Unknown keys are refused.",
    ]
    for title, cls in (("argus-exporter", ExporterConfig), ("argus-l3-worker", Config)):
        lines += ["", f"## {title}", "", "| key | allowed | default | meaning |", "|---|---|---|---|"]
        for key, allowed, default, help_ in document(cls):
            shown = "" if default in (None, "", {}, ()) else f"`{default}`"
            lines.append(f"| `{key}` | {allowed} | {shown} | {help_} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    files = {DOCS / "metrics.md": metrics_page(), DOCS / "configuration.md": configuration_page()}
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
