"""Vector matches that a label of the store's own empties.

Prometheus' `type-and-unit-labels` gives every scraped series `__type__` and `__unit__`. A selector keeps
them. What is computed or recorded has none, so a match of the two on all labels is empty, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import promql_parser

from tools.lint.sources import Rule

_SETS = frozenset({"and", "or", "unless"})
_COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
_KEEPING = frozenset({"last_over_time", "first_over_time", "sort", "sort_desc"})
"""Functions that hand on the series that they are given."""


def half_typed(rules: Iterable[Rule]) -> Iterator[str]:
    """Rules that match, on all labels, series that have a type with series that have none."""
    for rule in rules:
        yield from (f"{rule.where}: {rule.name} {complaint}" for complaint in complaints(rule.expr))


def complaints(query: str) -> Iterator[str]:
    """What is wrong with the matches of one query.

    Raises:
        ValueError: it is no PromQL.
    """
    for match in _matches(promql_parser.parse(query)):
        sides = [_typed(match.lhs), _typed(match.rhs)]
        if {True, False} <= set(sides) and (match.modifier is None or match.modifier.matching is None):
            yield f"matches what has a type with what has none: {match.prettify()}"


def _matches(node: Any) -> Iterator[Any]:
    if isinstance(node, promql_parser.BinaryExpr):
        yield node
    for child in _children(node):
        yield from _matches(child)


def _children(node: Any) -> list[Any]:
    if isinstance(node, promql_parser.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql_parser.Call):
        return list(node.args)
    expression = getattr(node, "expr", None)
    return [] if expression is None else [expression]


def _typed(node: Any) -> bool | None:
    """Whether its series have a type; None of what has no series, or both kinds."""
    match node:
        case promql_parser.VectorSelector():
            return ":" not in (node.name or "") and node.name not in ("ALERTS", "ALERTS_FOR_STATE")
        case promql_parser.MatrixSelector():
            return _typed(node.vector_selector)
        case promql_parser.Call():
            return node.func.name in _KEEPING and _typed(node.args[0])
        case promql_parser.AggregateExpr():
            return str(node.op) in ("topk", "bottomk") and _typed(node.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return None
        case promql_parser.BinaryExpr():
            return _of_binary(node)
        case promql_parser.UnaryExpr():
            return False
        case _:
            return _typed(node.expr)


def _of_binary(node: Any) -> bool | None:
    operator, left = str(node.op), _typed(node.lhs)
    if operator == "or" and left != _typed(node.rhs):
        return None
    if operator in _SETS:
        return left
    if operator in _COMPARISONS and not (node.modifier and node.modifier.return_bool):
        return left
    return None if left is None and _typed(node.rhs) is None else False
