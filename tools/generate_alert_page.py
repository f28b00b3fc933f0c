"""docs/alerts.md: every alert, from the generated rules and the runbooks.

`python -m tools.generate_alert_page` writes it; `--check` exits 1 when it is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rjsonnet

from tools.generate_rules import ROOT
from tools.generated import write_or_check
from tools.lint.graph import rules_of

_PAGE = ROOT / "docs" / "alerts.md"
_INTRODUCTION = """\
# Alerts

Generated from the rules, the table of causes (`jsonnet/causes.libsonnet`) and the runbooks by `make
generate`; do not edit. What the rules record is listed in [recorded-series.md](recorded-series.md).

What is found becomes an alert by what it costs (`decision` in `jsonnet/config.libsonnet`): `page` from 5 %
of the job's time on, `ticket` from 2 %, both once it has lasted; `info` at once for obvious stragglers, and
pages nobody. Of the findings of one job only the costliest page; a stall silences them all.
"""
_CAUSES = """
## Causes

The one table that decides between causes, from top to bottom. A cause is not told where what it costs is
explained by one that it yields to: of the same rank, or of another rank of the job. Both are series: what was
seen is `rank:argus_evidence:lost_ratio`, what explained it `rank:argus_exclusion:lost_ratio` (label `by`).

| evidence | says that a rank, set, group or job | cause | team | at most | yields to, of the rank | job |
|---|---|---|---|---|---|---|"""
Row = Mapping[str, Any]


def alert_page(root: Path = ROOT) -> str:
    """The whole page.

    Raises:
        ValueError: an alert has no runbook, or its runbook does not begin with a meaning.
    """
    causes: list[Row] = json.loads(rjsonnet.evaluate_file(str(root / "jsonnet" / "causes.libsonnet")))
    lines = [_INTRODUCTION, "| alert | means | severity | level | team |", "|---|---|---|---|---|"]
    alerts: dict[str, list[Mapping[str, Any]]] = {}
    for rule in rules_of(root=root):
        if rule.is_alert:
            alerts.setdefault(rule.name, []).append(rule.content)
    lines += [_alert(name, rules, causes, root) for name, rules in sorted(alerts.items())]
    lines += [_CAUSES, *(_cause(row) for row in causes)]
    return "\n".join(lines) + "\n"


def _alert(name: str, rules: Sequence[Mapping[str, Any]], causes: Sequence[Row], root: Path) -> str:
    told = {cause for rule in rules for cause in _told_causes(str(rule["expr"]))}
    rows = [row for row in causes if row.get("cause", row["id"]) in told and "most" in row]
    columns = (
        f"[`{name}`](runbooks/{name}.md)",
        _meaning(root / "docs" / "runbooks" / f"{name}.md"),
        _joined([f"at most {row['most']}" for row in rows], [_severity(rule) for rule in rules]),
        _joined([row["level"] for row in rows], [_label(rule, "level") for rule in rules]),
        _joined([row["team"] for row in rows], [_label(rule, "team") for rule in rules]),
    )
    return f"| {' | '.join(columns)} |"


def _told_causes(expr: str) -> Sequence[str]:
    """Causes whose decision an expression reads."""
    found = re.search(r'rank:argus_decision:lost_ratio\{cause=~"([^"]+)"', expr)
    return found.group(1).split("|") if found else ()


def _severity(rule: Mapping[str, Any]) -> str:
    # Where it depends on what is found, the expression sets it.
    found = re.findall(r'"severity", "(\w+)"', str(rule["expr"]))
    severity = _label(rule, "severity") or " or ".join(found)
    return f"{severity} ({rule.get('for', 'no wait')})" if severity else ""


def _label(rule: Mapping[str, Any], name: str) -> str:
    return str(rule.get("labels", {}).get(name, ""))


def _joined(*columns: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(value for column in columns for value in column if value))


def _cause(row: Row) -> str:
    """A row of the table of causes."""
    yields = {
        at: ", ".join(id for one in row.get("yields", ()) if one["at"] == at for id in one["to"])
        for at in ("rank", "job")
    }
    if row.get("info"):
        yields["job"] = "whatever is told"
    cause = row.get("cause", row["id"]) if "team" in row else "none, it only explains"
    most = row.get("most", "page" if row["as"] == "hang" else "")
    columns = row["id"], row["words"], cause, row.get("team", ""), most, yields["rank"], yields["job"]
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
