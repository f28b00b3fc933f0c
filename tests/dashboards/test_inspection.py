"""Reading queries back out of dashboards."""

from __future__ import annotations

import pytest
import tools.generate_dashboards  # noqa: F401  # puts dashboards/ on the path

from argus_dashboards.inspection import interpolate, metric_names, variable_expr


def test_names_are_found_and_labels_are_not() -> None:
    """Functions, label lists, matchers, ranges, strings, numbers and keywords are no series."""
    expr = """
      topk by (rank) (3, sum by (rank, phase) (rate(a_total{job="b_total", x=~"c}d"}[5m])))
      / on (rank) group_left (node) (job:d:e > 0) unless ignoring (f) g offset 1h or vector(1e6) ^ bool h
    """
    assert metric_names(expr) == {"a_total", "job:d:e", "g", "h"}


def test_each_spelling_of_a_variable_is_replaced() -> None:
    """$name, ${name} and ${name:format}."""
    assert interpolate('a{b="$x", c="${x}", d="${x:regex}"}', {"x": "1"}) == 'a{b="1", c="1", d="1"}'


def test_an_unknown_variable_is_refused() -> None:
    """A query that names a variable nobody defined would return nothing in Grafana."""
    with pytest.raises(KeyError, match="nobody"):
        interpolate("a[$nobody]", {})


@pytest.mark.parametrize(
    ("query", "expr"),
    [
        ("label_values(a, b)", "a"),
        ('label_values(a{x="1", y="2"}, b)', 'a{x="1", y="2"}'),
        ("query_result(topk(3, max by (b) (a)))", "topk(3, max by (b) (a))"),
    ],
)
def test_promql_is_found_inside_variable_queries(query: str, expr: str) -> None:
    """label_values takes a selector, query_result an expression."""
    assert variable_expr(query) == expr
