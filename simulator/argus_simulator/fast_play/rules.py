"""Rule files as a schedule and an order: what is evaluated when, and what must be there before it.

A rule whose inputs do not depend on it can be evaluated over an hour at once, when they have been; rules that
read one another in a circle (their own last value, an alert that reads ALERTS) must go on together, one
evaluation after the other. The order is worked out here, from the names and labels that the expressions read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

import numpy as np
import promql_parser
import yaml
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from argus_simulator.errors import ArgusSimulatorError

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EVERYTHING: Final = ".*"
_OFFSET: Final = re.compile(r"\boffset ((?:\d+(?:ms|[smhdw]))+)")
EVALUATION_INTERVAL: Final = "15s"
"""Of groups and subqueries that name none."""


class UnplayableRules(ArgusSimulatorError):
    """A rule says what the player does not know."""


@dataclass(frozen=True)
class Selector:
    """One selector of an expression.

    Attributes:
        matchers: (label, operator, value), the name's among them.
        ahead: it looks at times after the evaluation, as far as there are any: `offset -15s`.
    """

    matchers: tuple[tuple[str, str, str], ...]
    ahead: bool

    def may_read(self, labels: Mapping[str, str]) -> bool:
        """Whether it may select a series that has these labels, and others that are not known."""
        return all(
            matches(labels[label], operator, value)
            for label, operator, value in self.matchers
            if label in labels
        )


@dataclass(frozen=True, eq=False)
class Rule:
    """A recording rule (`alert` is empty) or an alert; times in ms."""

    group: Group
    record: str
    alert: str
    expr: str
    labels: Mapping[str, str]
    for_ms: int
    keep_ms: int
    selectors: tuple[Selector, ...]
    instant: bool
    """It asks for the ends of a query (`@ end()`), which only an instant query has at the evaluation."""

    @property
    def name(self) -> str:
        return self.record or self.alert

    @cached_property
    def expr_just_before(self) -> str:
        """The expression for who asks a millisecond early, and what it reads at an offset where it lay."""
        return _OFFSET.sub(lambda found: f"offset {milliseconds(found[1]) - 1}ms", self.expr)

    def writes(self) -> Iterator[dict[str, str]]:
        """What is known of the labels of its series."""
        if self.record:
            yield {"__name__": self.record, **self.labels}
            return
        of_alert = {**self.labels, "alertname": self.alert}
        yield {"__name__": "ALERTS", **of_alert}
        yield {"__name__": "ALERTS_FOR_STATE", **of_alert}


@dataclass(frozen=True, eq=False)
class Group:
    """Rules that are evaluated one after the other, every `interval_ms`, `offset_ms` after its multiples."""

    file: Path
    name: str
    interval_ms: int
    offset_ms: int

    def evaluations(self, begin_ms: int, end_ms: int) -> range:
        """Times of [begin, end) at which it is evaluated."""
        first = begin_ms + (self.offset_ms - begin_ms) % self.interval_ms
        return range(first, end_ms, self.interval_ms)


@dataclass(frozen=True)
class Stage:
    """Rules, in the order of their files, that are played together before those of later stages.

    Attributes:
        together: they read one another, or an instant: evaluation by evaluation. Else it is one rule.
    """

    rules: tuple[Rule, ...]
    together: bool


def read_rules(
    files: Iterable[Path],
    *,
    offset_ms: Callable[[Path, str, int], int] | None = None,
) -> list[Rule]:
    """All rules, in the order of files and groups.

    Args:
        offset_ms: when a group (file, name, interval in ms) is evaluated within its interval; default: by its
            name, so that groups are evaluated at different times, as those of Prometheus are.

    Raises:
        UnplayableRules: a label of an alert is a template, or an expression cannot be read.
    """
    found: list[Rule] = []
    for file in sorted(files):
        for content in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]:
            strange = content.keys() - {"name", "interval", "rules"}
            if strange:
                raise UnplayableRules(f"{file.name}: {content['name']} has {', '.join(sorted(strange))}")
            interval = milliseconds(content.get("interval", EVALUATION_INTERVAL))
            offset = (offset_ms or _by_name)(file, content["name"], interval)
            group = Group(file, content["name"], interval, offset % interval)
            found += [_rule(group, one) for one in content["rules"]]
    return found


def aligned(_file: Path, _name: str, _interval_ms: int) -> int:
    """All groups at the multiples of their intervals, as vmalert evaluates them."""
    return 0


def stages(rules: Sequence[Rule]) -> list[Stage]:
    """In which order the rules can be played.

    Raises:
        UnplayableRules: a rule looks ahead in scraped series, which are all there when it is evaluated.
    """
    writers: dict[str, list[int]] = {}
    for number, rule in enumerate(rules):
        for labels in rule.writes():
            writers.setdefault(labels["__name__"], []).append(number)
    reads: list[set[int]] = [set() for _ in rules]
    for number, rule in enumerate(rules):
        for selector in rule.selectors:
            sources = {
                source
                for name, numbers in writers.items()
                if selector.may_read({"__name__": name})
                for source in numbers
                if any(selector.may_read(labels) for labels in rules[source].writes())
            }
            reads[number] |= sources
            for source in sources:
                later = source >= number and rules[source].group is rule.group
                if selector.ahead or later:  # nor may it find what a later evaluation has written
                    reads[source].add(number)
            if selector.ahead and not sources:
                raise UnplayableRules(f"{rule.name} looks ahead in scraped series: let it read recorded ones")
    return [
        Stage(
            tuple(rules[number] for number in sorted(members)),
            len(members) > 1 or any(rules[one].instant or one in reads[one] for one in members),
        )
        for members in components(reads)
    ]


def _by_name(file: Path, name: str, interval_ms: int) -> int:
    return zlib.crc32(f"{file.name};{name}".encode()) % interval_ms


def _rule(group: Group, content: dict[str, Any]) -> Rule:
    where = f"{group.file.name}: {content.get('record') or content.get('alert')}"
    labels = {name: str(value) for name, value in (content.get("labels") or {}).items()}
    if any("{{" in value for value in labels.values()):
        raise UnplayableRules(f"{where}: a label is a template, which only Prometheus itself can fill in")
    try:
        tree = promql_parser.parse(content["expr"])
    except ValueError as error:
        raise UnplayableRules(f"{where}: {error}") from error
    found = list(_selectors(tree))
    ends = any(at for _, at in found) or "@ end()" in content["expr"] or "@ start()" in content["expr"]
    return Rule(
        group,
        content.get("record", ""),
        content.get("alert", ""),
        content["expr"],
        labels,
        milliseconds(content.get("for", "0s")),
        milliseconds(content.get("keep_firing_for", "0s")),
        tuple(selector for selector, _ in found),
        ends,
    )


def _selectors(node: Any) -> Iterator[tuple[Selector, bool]]:
    """Each selector, and whether it is pinned to a time (`@`)."""
    match node:
        case promql_parser.VectorSelector():
            yield _selector(node), node.at is not None
        case promql_parser.SubqueryExpr():
            later = _is_ahead(node)
            for selector, at in _selectors(node.expr):
                yield Selector(selector.matchers, selector.ahead or later), at or node.at is not None
        case _:
            for child in inner(node):
                yield from _selectors(child)


def inner(node: Any) -> list[Any]:
    """The expressions that a node of promql_parser is made of; of a vector selector or a literal none."""
    match node:
        case promql_parser.VectorSelector() | promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return []
        case promql_parser.MatrixSelector():
            return [node.vector_selector]
        case promql_parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql_parser.Call():
            return list(node.args)
        case promql_parser.AggregateExpr():
            return [node.expr] if node.param is None else [node.expr, node.param]
        case _:  # parentheses, a sign, a subquery
            return [node.expr]


def _selector(node: Any) -> Selector:
    groups = [node.matchers.matchers, *node.matchers.or_matchers]
    if len([one for one in groups if one]) > 1 or node.matchers.or_matchers:
        return Selector((("__name__", "=~", _EVERYTHING),), _is_ahead(node))
    matchers = [(one.name, _OPERATORS[str(one.op).rpartition(".")[2]], str(one.value)) for one in groups[0]]
    if node.name:
        matchers.append(("__name__", "=", node.name))
    return Selector(tuple(matchers), _is_ahead(node))


_OPERATORS: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


def _is_ahead(node: Any) -> bool:
    """Whether it looks ahead of where it stands; `@` with a time of its own, which nothing here uses, may."""
    offset = node.offset
    fixed = node.at is not None and str(node.at) not in ("@ end()", "@ start()")
    return fixed or (offset is not None and offset.total_seconds() < 0)


def matches(value: str, operator: str, wanted: str) -> bool:
    """What a matcher of a label (`=`, `!=`, `=~`, `!~`) says of a value."""
    match operator:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case "=~":
            return re.fullmatch(wanted, value) is not None
        case _:
            return re.fullmatch(wanted, value) is None


def components(edges: Sequence[Set[int]]) -> list[set[int]]:
    """Strongly connected components of a graph, each after all that it leads to."""
    rows = [node for node, targets in enumerate(edges) for _ in targets]
    columns = [target for targets in edges for target in targets]
    graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(edges), len(edges)))
    count, of = connected_components(graph, connection="strong")
    found: list[set[int]] = [set() for _ in range(count)]
    below: dict[int, set[int]] = {number: set() for number in range(count)}
    for node, number in enumerate(of.tolist()):
        found[number].add(node)
        below[number] |= {int(of[target]) for target in edges[node]} - {number}
    return [found[number] for number in TopologicalSorter(below).static_order()]


def milliseconds(duration: str) -> int:
    """Of a duration as Prometheus writes it.

    Raises:
        UnplayableRules: it is none.
    """
    parts = re.findall(r"(\d+)(ms|[smhdw])", duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        raise UnplayableRules(f"{duration!r} is no duration")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
