"""What `python -m tools.lint --graph` says of the rules: figures and lists, as a table or a line of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tools.lint import graph as checks
from tools.lint.graph import Graph, PlacedRule
from tools.lint.readers import Readers, unread


def figures(graph: Graph, readers: dict[str, Readers]) -> dict[str, Any]:
    """Numbers, and lists of what is wrong, by the name of the check."""
    alerts = {rule.name for rule in graph.rules if rule.is_alert}
    depths = checks.depth_by_name(graph)
    others = checks.depth_by_name(checks.without_job_causes(graph))
    longest = checks.longest(graph)
    return {
        "names": len(graph.recorded),
        "depth": max((others[alert] for alert in alerts - checks.JOB_ALERTS), default=0),
        "depth_l1": max((depths[alert] for alert in alerts & checks.JOB_ALERTS), default=0),
        "depth_by_rule": checks.depth_by_rule(graph),
        "promql_kb": round(sum(len(rule.expr) for rule in graph.rules) / 1000, 1),
        "longest": {"name": longest.name, "characters": len(longest.expr)},
        "circles": list(checks.circles(graph)),
        "undeclared_memory": list(checks.undeclared_memory(graph)),
        "unread": list(unread(readers)),
        "without_about": list(checks.without_about(graph)),
        "groups_too_long": list(checks.groups_too_long(graph)),
        "twins": list(checks.twins(graph)),
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """The same to read: a line for a number, a line for each thing that is wrong."""
    for name, value in found.items():
        if isinstance(value, list):
            yield f"{name:18} {len(value)}"
            yield from (f"    {item}" for item in value)
        else:
            yield f"{name:18} {' '.join(map(str, value.values())) if isinstance(value, dict) else value}"


def too_much(rules: Sequence[PlacedRule]) -> Iterator[str]:
    """Where the rules are more than one can follow, and what of them has no reason."""
    default = Graph(rule for rule in rules if rule.where not in checks.OPTIONAL)
    found = figures(default, {}) | {"names_with_optional": len(Graph(rules).recorded)}
    for name, most in checks.MOST.items():
        if found[name] > most:
            yield f"rules: {name} is {found[name]}, at most {most} are allowed (python -m tools.lint --graph)"
    if found["promql_kb"] > checks.MOST_KB:
        yield f"rules: {found['promql_kb']} kB of PromQL, at most {checks.MOST_KB} are allowed"
    if (groups := len({(rule.where, rule.group) for rule in rules})) > checks.MOST_GROUPS:
        yield f"rules: {groups} groups, at most {checks.MOST_GROUPS} are allowed"
    for rule in rules:
        most = checks.MOST_CHARACTERS_L1 if rule.where == checks.L1_FILE else checks.MOST_CHARACTERS
        if len(rule.expr) > most:
            yield f"{rule.place}: {len(rule.expr)} characters, at most {most} are allowed"
    graph = Graph(rules)
    for what in (checks.circles, checks.undeclared_memory, checks.without_about, checks.groups_too_long):
        yield from (f"rules, {what.__name__}: {one}" for one in what(graph))
