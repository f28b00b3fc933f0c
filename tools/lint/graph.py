"""The graph of the rules: which rule reads what which other records, how deep that goes, what is wrong.

A matcher that cannot meet a label which a rule sets statically is no edge. A label that a rule gets at run
time may be anything. A rule that reads its own past, or that of what stands on it, says so (`memory`): then
that is no edge for the depth, and no circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import promql_parser

from argus_simulator.fast_play.rules import components, inner
from tools.generate_rules import annotated
from tools.lint.sources import ROOT, Rule

OPTIONAL: Final = frozenset(
    {"argus.history.rules.yaml", "argus.hardware.rules.yaml", "argus.nccl.rules.yaml"}
)
"""Files that a site may leave out: their names count apart."""
MOST: Final = {"names": 60, "names_with_optional": 72, "depth": 12, "depth_l1": 15, "depth_by_rule": 20}
"""What one can still follow; `promql_kb`, `groups` and `characters` likewise."""
MOST_KB: Final = 80
MOST_GROUPS: Final = 60
MOST_CHARACTERS: Final = 1500
MOST_CHARACTERS_L1: Final = 6000
L1_FILE: Final = "argus.regression.rules.yaml"
LONGEST_GROUP: Final = 20
"""Rules; more of them do not fit into one's head, and run one after another."""
JOB_ALERTS: Final = frozenset({"ArgusIterationRegression", "ArgusIterationJitter"})
"""Of L1, whose arithmetic on the job's own time is a column of many steps: their depth is told apart."""
JOB_CAUSES: Final = re.compile("regression|history-.*")
"""Whose evidence those alone stand on, as no other cause yields to it."""


@dataclass(frozen=True)
class PlacedRule(Rule):
    """A rule of a file (`where`), its place there, and what it says of itself."""

    group: str
    index: int

    @property
    def about(self) -> str:
        return str(self.content.get("about", ""))

    @property
    def has_memory(self) -> bool:
        return bool(self.content.get("memory"))

    @property
    def place(self) -> str:
        return f"{self.group}[{self.index}] {self.name}"


@dataclass(frozen=True)
class Selector:
    """What a query selects: the series of a name that meet one of several lists of matchers."""

    name: str
    alternatives: Sequence[Sequence[tuple[str, str, str]]]
    """Of (label, operator, value)."""

    def may_meet(self, rule: Rule) -> bool:
        """Whether it may select what the rule records."""
        labels = rule.labels
        return rule.name == self.name and any(
            all(
                _agrees(labels[label], operator, value)
                for label, operator, value in matchers
                if label in labels
            )
            for matchers in self.alternatives
        )


def selectors(query: str) -> Iterator[Selector]:
    """All that a query selects by name.

    Raises:
        ValueError: it is no PromQL.
    """
    yield from _selectors(promql_parser.parse(query))


def _selectors(node: Any) -> Iterator[Selector]:
    match node:
        case promql_parser.VectorSelector():
            lists = node.matchers.or_matchers or [node.matchers.matchers]
            alternatives = [
                [(m.name, _OPERATORS[str(m.op)], m.value) for m in matchers] for matchers in lists
            ]
            named = [
                v
                for matchers in alternatives
                for label, op, v in matchers
                if (label, op) == ("__name__", "=")
            ]
            for name in [node.name] if node.name else named:
                yield Selector(name, alternatives)
        case _:
            for child in inner(node):
                yield from _selectors(child)


_OPERATORS: Final = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def _agrees(label: str, operator: str, value: str) -> bool:
    equal = label == value if operator in ("=", "!=") else re.fullmatch(value, label) is not None
    return equal == (operator in ("=", "=~"))


class Graph:
    """Rules, and who reads whom. They are known by their number in `rules`."""

    def __init__(self, rules: Iterable[PlacedRule]) -> None:
        self.rules: Final = tuple(rules)
        self.selected: Final = [tuple(selectors(rule.expr)) for rule in self.rules]
        writers: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            if not rule.is_alert:
                writers.setdefault(rule.name, []).append(number)
        self.recorded: Final[Set[str]] = writers.keys()
        self.reads: Final = [
            {
                writer
                for selector in selected
                for writer in writers.get(selector.name, ())
                if selector.may_meet(self.rules[writer])
            }
            for selected in self.selected
        ]

    def late(self, number: int) -> set[int]:
        """What a rule reads of itself or of a later rule of its group: the value of the last evaluation."""
        rule = self.rules[number]
        return {
            other
            for other in self.reads[number]
            if (self.rules[other].where, self.rules[other].group) == (rule.where, rule.group)
            and self.rules[other].index >= rule.index
        }

    @cached_property
    def stands_on(self) -> list[set[int]]:
        """What each rule reads of this evaluation: without what it remembers, where it says that it does."""
        stands_on = []
        for number, rule in enumerate(self.rules):
            remembered = self.late(number) | self._readers_of(number) if rule.has_memory else set()
            stands_on.append(self.reads[number] - remembered)
        return stands_on

    def _readers_of(self, number: int) -> set[int]:
        """All that directly or through others read what a rule records."""
        found: set[int] = set()
        news = {number}
        while news:
            news = {reader for reader, read in enumerate(self.reads) if read & news} - found
            found |= news
        return found

    @cached_property
    def by_name(self) -> dict[str, set[str]]:
        """The names that each name stands on; not itself, which it may read in another of its rules."""
        by_name: dict[str, set[str]] = {}
        for number, rule in enumerate(self.rules):
            names = by_name.setdefault(rule.name, set())
            names |= {self.rules[other].name for other in self.stands_on[number]} - {rule.name}
        return by_name


def undeclared_memory(graph: Graph) -> Iterator[str]:
    """Rules that read what themselves or a later rule of their group record, and do not say so."""
    for number, rule in enumerate(graph.rules):
        late = graph.late(number)
        if late and not rule.has_memory:
            names = sorted({graph.rules[other].name for other in late})
            yield f"{rule.place} reads {', '.join(names)} of the last evaluation"


def circles(graph: Graph) -> Iterator[str]:
    """Rules that stand on each other, and none of which says that it remembers."""
    for members in components(graph.stands_on):
        if len(members) > 1 or members & graph.stands_on[min(members)]:
            names = {graph.rules[member].name for member in members}
            yield f"{len(members)} rules of {', '.join(sorted(names))}"


def depth_by_rule(graph: Graph) -> int:
    """Rules on the longest way from what is scraped to an alert, both ends of it being rules."""
    return max(depths(graph.stands_on), default=0)


def without_job_causes(graph: Graph) -> Graph:
    """The same without L1's evidence, and so without all that stands behind it alone."""
    return Graph(rule for rule in graph.rules if not JOB_CAUSES.fullmatch(rule.labels.get("cause", "")))


def depth_by_name(graph: Graph) -> dict[str, int]:
    """Of each alert and recorded name: names on the longest way to it, its own included; of a circle, all."""
    names = sorted(graph.by_name)
    place = {name: number for number, name in enumerate(names)}
    found = depths([{place[read] for read in graph.by_name[name]} for name in names])
    return dict(zip(names, found, strict=True))


def twins(graph: Graph) -> Iterator[str]:
    """Rules of one name that no static label tells apart: they may write one series."""
    by_name: dict[str, list[PlacedRule]] = {}
    for rule in graph.rules:
        if not rule.is_alert:
            by_name.setdefault(rule.name, []).append(rule)
    for name, rules in sorted(by_name.items()):
        alike = [pair for pair in combinations(rules, 2) if not _told_apart(*pair)]
        if alike:
            one, other = alike[0]
            more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
            yield f"{name}: {one.group}[{one.index}] and {other.group}[{other.index}]{more}"


def _told_apart(one: PlacedRule, other: PlacedRule) -> bool:
    return any(one.labels[label] != other.labels[label] for label in one.labels.keys() & other.labels.keys())


def without_about(graph: Graph) -> Iterator[str]:
    """Recorded names of which a rule does not say what it is about."""
    yield from sorted({rule.name for rule in graph.rules if not rule.is_alert and not rule.about})


def groups_too_long(graph: Graph) -> Iterator[str]:
    """Groups of more rules than `LONGEST_GROUP`."""
    lengths: dict[str, int] = {}
    for rule in graph.rules:
        lengths[rule.group] = lengths.get(rule.group, 0) + 1
    yield from (f"{group}: {length}" for group, length in lengths.items() if length > LONGEST_GROUP)


def longest(graph: Graph) -> PlacedRule:
    """The rule with the longest expression."""
    return max(graph.rules, key=lambda rule: len(rule.expr))


def placed(file: str, groups: Iterable[Mapping[str, Any]]) -> Iterator[PlacedRule]:
    """The rules of a file's groups."""
    for group in groups:
        for index, content in enumerate(group["rules"]):
            yield PlacedRule(file, content, group["name"], index)


def rules_of(flavour: str = "rules", root: Path = ROOT) -> Iterator[PlacedRule]:
    """The rules of a flavour, with what they say of themselves."""
    for file, groups in annotated(Path(flavour), root):
        yield from placed(file.name, groups)


def depths(edges: Sequence[Set[int]]) -> list[int]:
    """The longest way down from each node, itself included. Of a circle all count: none is first."""
    depths = [0] * len(edges)
    for members in components(edges):  # those that others stand on come first
        below = (depths[other] for member in members for other in edges[member] - members)
        depth = len(members) + max(below, default=0)
        for member in members:
            depths[member] = depth
    return depths
