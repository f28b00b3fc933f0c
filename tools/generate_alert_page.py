"""docs/alerts.md: every alert, from the generated rules and the runbooks.

`python -m tools.generate_alert_page` writes it; `--check` exits 1 when it is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.generate_rules import ROOT
from tools.generated import write_or_check
from tools.lint.graph import rules_of

_PAGE = ROOT / "docs" / "alerts.md"
_INTRODUCTION = """\
# Alerts

Generated from the rules and the runbooks by `make generate`; do not edit. What the rules record is listed in
[recorded-series.md](recorded-series.md).

`info` tells at once and pages nobody. Of the findings of one job only the costliest pages, the others are
tickets; a stall suppresses them all. The waits are those of the default configuration
(`jsonnet/config.libsonnet`), on top of what the expression itself needs. Where no team is given it comes from
the cause.
"""


def alert_page(root: Path = ROOT) -> str:
    """The whole page.

    Raises:
        ValueError: an alert has no runbook, or its runbook does not begin with a meaning.
    """
    lines = [_INTRODUCTION, "| alert | means | severity (after) | level | team |", "|---|---|---|---|---|"]
    alerts: dict[str, list[Mapping[str, Any]]] = {}
    for rule in rules_of(root=root):
        if rule.is_alert:
            alerts.setdefault(rule.name, []).append(rule.content)
    lines += [_alert(name, rules, root) for name, rules in sorted(alerts.items())]
    return "\n".join(lines) + "\n"


def _alert(name: str, rules: Sequence[Mapping[str, Any]], root: Path) -> str:
    ways = dict.fromkeys(f"{rule['labels']['severity']} ({rule.get('for', 'no wait')})" for rule in rules)
    levels = dict.fromkeys(rule["labels"].get("level", "") for rule in rules)
    teams = dict.fromkeys(rule["labels"].get("team", "by cause") for rule in rules)
    columns = (
        f"[`{name}`](runbooks/{name}.md)",
        _meaning(root / "docs" / "runbooks" / f"{name}.md"),
        ", ".join(ways),
        ", ".join(level for level in levels if level) or "L1, L2",
        ", ".join(teams),
    )
    return f"| {' | '.join(columns)} |"


def _meaning(runbook: Path) -> str:
    """First sentence of the runbook's meaning."""
    if not runbook.exists():
        raise ValueError(f"{runbook.name}: an alert of this name has no runbook")
    meaning = re.search(r"^## Meaning\n+(.+?\.)(?=\s)", runbook.read_text(), re.M | re.S)
    if meaning is None:
        raise ValueError(f"{runbook.name}: has no sentence below `## Meaning`")
    return " ".join(meaning.group(1).split()).replace("|", "\\|")


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    return write_or_check({_PAGE: alert_page()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
