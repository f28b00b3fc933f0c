"""A runbook for each alert: complete, its links alive, every cause explained where the reader lands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.lint.sources import ROOT, Rule

HEADINGS = (
    "Meaning",
    "Impact",
    "What to look at, in order",
    "Likely causes",
    "What fixed it",
    "When it is wrong",
    "How to silence",
)
WORKER_CAUSES = ("gpu-compute", "gpu-transfer", "gpu-memory", "workload", "collective-late")
"""What `argus_l3_anomaly` accuses a rank of; a test compares all of these with the worker's."""
GROUP_CAUSES = ("gpu-compute", "gpu-transfer", "link-slow", "workload")
"""What `argus_l3_group_shift` says of ranks that share a coordinate."""
VICTIM_CAUSES = ("collective-wait",)
"""What it excuses a rank with: never alerted on."""

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.M)


def causes_of(rules: Sequence[Rule]) -> dict[str, set[str]]:
    """Causes that an alert may carry, by alert: those its expression selects, or that verdicts give it."""
    hang = {
        rule.labels["cause"]
        for rule in rules
        if rule.labels.get("verdict") == "culprit" and rule.labels.get("cause", "").startswith("hang-")
    }
    history = {rule.labels.get("cause", "") for rule in rules if rule.name == "job:argus_history:lost_ratio"}
    found: dict[str, set[str]] = {
        "ArgusKernelDegraded": set(WORKER_CAUSES),
        "ArgusKernelGroupShift": set(GROUP_CAUSES),
        "ArgusTrainingStalled": hang,
        "ArgusIterationRegression": history - {""},
    }
    for rule in rules:
        if rule.is_alert:
            for selected in re.findall(r'cause=~?"([a-z|-]+)"', rule.expr):
                found.setdefault(rule.name, set()).update(selected.split("|"))
    return found


def orphans(rules: Sequence[Rule], root: Path = ROOT) -> Iterator[str]:
    """Alerts without a page, pages without an alert, and links from an alert to another's page."""
    alerts = {rule.name for rule in rules if rule.is_alert}
    written = {page.stem for page in (root / "docs/runbooks").glob("Argus*.md")}
    for name in sorted(alerts - written):
        yield f"alert {name} has no docs/runbooks/{name}.md"
    for name in sorted(written - alerts):
        yield f"docs/runbooks/{name}.md explains an alert that does not exist"
    for rule in rules:
        if rule.is_alert and not rule.content["annotations"]["runbook_url"].endswith(
            f"/docs/runbooks/{rule.name}.md"
        ):
            yield f"{rule.where}: runbook_url of {rule.name} leads to another page"


def incomplete(causes: Mapping[str, set[str]], root: Path = ROOT) -> Iterator[str]:
    """Pages that do not answer the questions of a runbook, or leave a cause unexplained."""
    for page in sorted((root / "docs/runbooks").glob("Argus*.md")):
        where, text = page.relative_to(root), page.read_text(encoding="utf-8")
        headings = tuple(re.findall(r"^## (.+)$", text, re.M))
        if headings != HEADINGS:
            yield f"{where}: headings are {', '.join(headings)}; expected: {', '.join(HEADINGS)}"
        for cause in sorted(causes.get(page.stem, set())):
            if f"`{cause}`" not in text:
                yield f"{where}: cause {cause} is not explained"
        if f"amtool silence add alertname={page.stem}" not in text:
            yield f"{where}: no command that silences {page.stem}"


def dead_links(root: Path = ROOT) -> Iterator[str]:
    """Links of runbooks that lead nowhere in the repository."""
    for page in sorted((root / "docs/runbooks").glob("*.md")):
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists():
                yield f"{page.relative_to(root)}: {link}: no such file"
            elif anchor and anchor not in _anchors(target):
                yield f"{page.relative_to(root)}: {link}: no such heading"


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub writes them behind `#`."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[`*]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}
