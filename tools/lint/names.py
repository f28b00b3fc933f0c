"""Names of rules, of the series they read, and of labels.

A misspelt name is an empty result for ever: Prometheus, promtool and Grafana are content with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from argus_core import causes
from argus_core.catalogue import CATALOGUE, SAMPLE_NAMES
from tools.lint.sources import ROOT, Rule, code_of, dashboard_queries, pages

TEAMS = frozenset(causes.TEAMS.values())
SEVERITIES = frozenset({"page", "ticket", "info"})
LEVELS = frozenset({"L1", "L2", "L3"})
SCRAPE_LABELS = frozenset({"job", "instance", "pod"})
"""A rank that moves to another pod must not break a join, so no rule keeps these."""

_SERIES = re.compile(
    r"(?<![\w:./-])(?:(?:rank|group|job):)?argus_[a-z0-9_]+(?::[a-z0-9_]+)*(?![\w*(/.]|-[a-z])"
)
_RECORD = re.compile(
    r"(rank|group|job):argus_[a-z0-9]+(_[a-z0-9]+)*:[a-z0-9]+(_[a-z0-9]+)*|argus_rules(_[a-z0-9]+)+"
)
"""Of jobs; or of the rules themselves, as programs have metrics of theirs."""
_PACKAGES = frozenset(
    {
        *("argus_core", "argus_training", "argus_exporter", "argus_traces", "argus_l3_worker"),
        "argus_for_prometheus",
        *("argus_simulator", "argus_dashboards", "argus_cupti"),
    }
)
_FIELDS = frozenset({"argus_version"})
"""Of trace files."""
_REPLACED = re.compile(r'"(\w+)",\s*"[^"]*",\s*"\w*",\s*"[^"]*"\s*\)')
"""The target of label_replace."""
_COUNTED = re.compile(r'\bcount_values (?:by \([^()]*\) )?\("(\w+)"')
"""The label that count_values adds."""
_KEPT = re.compile(r"\bby\s*\(([^()]*)\)")
_GROUPED = re.compile(r"\b(?:by|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")


def series_in(text: str) -> set[str]:
    """Names in a query that look like series of ours."""
    return set(_SERIES.findall(text)) - _PACKAGES - _FIELDS


def recorded(rules: Sequence[Rule]) -> set[str]:
    return {rule.name for rule in rules if not rule.is_alert}


def unknown_series(rules: Sequence[Rule]) -> Iterator[str]:
    """Rules that read what nobody writes."""
    known = SAMPLE_NAMES | recorded(rules)
    for rule in rules:
        for name in sorted(series_in(rule.expr) - known):
            yield f"{rule.where}: {rule.name} reads {name}, which is neither in the catalogue nor recorded"


def unknown_in_pages(rules: Sequence[Rule], root: Path = ROOT) -> Iterator[str]:
    """Dashboards and pages that name what nobody writes. Pages may name a family without its suffix."""
    known = SAMPLE_NAMES | recorded(rules)
    for where, query in dashboard_queries(root):
        for name in sorted(series_in(query) - known):
            yield f"{where}: {name} is neither in the catalogue nor recorded"
    families = known | {family.name for family in CATALOGUE}
    for page in pages(root):
        for code in code_of(page):
            for name in sorted(series_in(code)):
                # `argus_phase_*` and `argus_l3_` name a prefix.
                if name not in families and not (
                    name.endswith("_") and any(f.startswith(name) for f in families)
                ):
                    yield f"{page.relative_to(root)}: {name} is neither in the catalogue nor recorded"


def misnamed(rules: Sequence[Rule]) -> Iterator[str]:
    """Records that are neither level:metric:operations nor of the rules themselves; odd names of alerts."""
    for rule in rules:
        if rule.is_alert:
            if not re.fullmatch(r"Argus([A-Z][a-z0-9]*)+", rule.name):
                yield f"{rule.where}: alert {rule.name} is not ArgusCamelCase"
        elif not _RECORD.fullmatch(rule.name):
            yield f"{rule.where}: {rule.name} is not level:metric:operations with level rank, group or job"


def known_labels(rules: Sequence[Rule]) -> set[str]:
    """Labels that some family has, some rule adds, or Prometheus itself knows."""
    of_families = {label for family in CATALOGUE for label in (*family.labels, *family.optional_labels)}
    added = {label for rule in rules for label in rule.labels}
    replaced = {
        label for rule in rules for made in (_REPLACED, _COUNTED) for label in made.findall(rule.expr)
    }
    return of_families | added | replaced | {"alertname", "alertstate", "quantile", "le", "__name__"}


def mislabelled(rules: Sequence[Rule], foreign: frozenset[str] = frozenset()) -> Iterator[str]:
    """Labels that no series has, and alerts that cannot be routed.

    Args:
        rules: of one flavour.
        foreign: labels of series that are not ours, such as dcgm-exporter's.
    """
    known = known_labels(rules) | foreign
    for rule in rules:
        used = {label.strip() for labels in _GROUPED.findall(rule.expr) for label in labels.split(",")}
        used |= {label for inside in _MATCHERS.findall(rule.expr) for label in _LABEL.findall(inside)}
        for label in sorted(used - known - SCRAPE_LABELS - {""}):
            yield f"{rule.where}: {rule.name} uses label {label}, which no series has"
        kept = {label.strip() for labels in _KEPT.findall(rule.expr) for label in labels.split(",")}
        for label in sorted(kept & SCRAPE_LABELS):
            yield f"{rule.where}: {rule.name} keeps the scrape label {label}"
        if rule.is_alert:
            yield from _unroutable(rule)


def _unroutable(rule: Rule) -> Iterator[str]:
    # Decisions carry all three, verdict series team and level, and an aggregation may keep them.
    decided = "rank:argus_decision:lost_ratio{" in rule.expr
    severity = rule.labels.get("severity")
    replaced = severity is None and "severity" in _REPLACED.findall(rule.expr)
    if severity not in SEVERITIES and not (decided or replaced):
        yield f"{rule.where}: alert {rule.name} has severity {severity!r}; allowed: {sorted(SEVERITIES)}"
    kept = {label.strip() for labels in _KEPT.findall(rule.expr) for label in labels.split(",")}
    for label, allowed in (("team", TEAMS), ("level", LEVELS)):
        value = rule.labels.get(label)
        carried = decided or "verdict" in rule.expr or label in kept
        if value not in allowed and not (value is None and carried):
            yield f"{rule.where}: alert {rule.name} has {label} {value!r}; allowed: {sorted(allowed)}"
