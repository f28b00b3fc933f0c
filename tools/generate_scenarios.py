"""docs/scenarios.md: the keys of scenario files from their classes, and the scenarios that are shipped."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from argus_core.settings import document
from argus_simulator.engine.faults import KEYS, MEANING, Fault
from argus_simulator.lab.scenario import Scenario, shipped
from argus_simulator.lab.selection import GRAMMAR
from argus_simulator.lab.truth import FindingSettings, TruthSettings
from tools.generated import write_or_check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scenarios.md"
_APART = ("faults", "truth_settings")


def scenarios_page() -> str:
    """The whole page."""
    lines = [
        "# Scenario files",
        "",
        "Generated from the classes of `simulator/argus_simulator/` by `make generate`; do not edit.",
        "The fault lab: [fault-lab.md](fault-lab.md). `argus-simulator run --check FILE` says whether "
        "a file is usable.",
        "",
        "## The job",
        "",
        "| key | allowed | default | meaning |",
        "|---|---|---|---|",
    ]
    for key, allowed, default, help_ in document(Scenario):
        if not key.startswith(_APART):
            lines.append(f"| `{key}` | {allowed} | {_shown(default)} | {help_} |")
    lines += [
        "| `magnitudes.low`, `.mid`, `.high` | settings | | replace those of the file; one is played |",
        "| `topologies.NAME` | settings | | the same |",
        "",
        "## `faults.NAME`",
        "",
        *_fields(Fault),
        "",
        f"`where` is one of: {_cell(GRAMMAR)}. Faults with the same words hit the same ranks; what follows "
        "a `#` tells them apart.",
        "",
        "| mechanism | what happens | keys of its own |",
        "|---|---|---|",
    ]
    for mechanism, meaning in MEANING.items():
        keys = ", ".join(f"`{key}`" for key in sorted(KEYS[mechanism]))
        lines.append(f"| `{mechanism}` | {meaning} | {keys} |")
    lines += ["", "## `truth`", "", *_fields(TruthSettings), "", "### `truth.findings[]`", ""]
    lines += [*_fields(FindingSettings), "", "## Shipped", "", "| scenario | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(_comment(name))} |" for name in shipped()]
    return "\n".join(lines) + "\n"


def _fields(cls: Any) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for field in dataclasses.fields(cls):
        yield f"| `{field.name}` | {_shown(field.default)} | {_cell(field.metadata['help'])} |"


def _shown(default: Any) -> str:
    return "" if default in (None, "", {}, ()) else f"`{default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _comment(name: str) -> str:
    """The comment with which a scenario begins."""
    text = (resources.files("argus_simulator") / "scenarios" / f"{name}.yaml").read_text()
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    return write_or_check({PAGE: scenarios_page()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
