"""The graph of the rules, on rule sets small enough to see what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.lint import graph as checks
from tools.lint.graph import Graph, placed, selectors
from tools.lint.graph_report import figures, table
from tools.lint.readers import Readers, readers, unread


def record(name: str, expr: str, *, memory: bool = False, about: str = "", **labels: str) -> dict[str, Any]:
    return {"record": name, "expr": expr, "labels": labels, "memory": memory, "about": about}


def alert(name: str, expr: str, **annotations: str) -> dict[str, Any]:
    return {"alert": name, "expr": expr, "annotations": annotations}


def graph(**groups: list[dict[str, Any]]) -> Graph:
    """Of one file with these groups."""
    return Graph(placed("a.yaml", [{"name": name, "rules": rules} for name, rules in groups.items()]))


@pytest.mark.parametrize(
    "query",
    [
        "a:b:c",
        "sum by (x) (rate(a:b:c[5m]))",
        "topk(scalar(a:b:c), up)",
        "-(a:b:c offset 5m) > bool 1",
        "max_over_time((a:b:c unless on (x) up)[10m:30s])",
        '{__name__="a:b:c"}',
        'label_replace(a:b:c, "x", "$1", "y", "(.+)")',
        "up and on (x) (0 * a:b:c @ end())",
    ],
)
def test_a_name_is_found_wherever_a_query_reads_it(query: str) -> None:
    """In functions, aggregations and their parameters, subqueries, signs, and as a matcher."""
    assert "a:b:c" in {selector.name for selector in selectors(query)}


@pytest.mark.parametrize(
    ("matcher", "reads"),
    [
        ('x="1"', True),
        ('x="2"', False),
        ('x!="1"', False),
        ('x=~"1|2"', True),
        ('x=~"11?1"', False),
        ('x!~"1.*"', False),
        ('x=""', False),
        ('of_run_time="7"', True),
        ('x="2" or y="3"', True),
        ('x="2" or x="3"', False),
    ],
)
def test_a_matcher_that_a_static_label_cannot_meet_is_no_edge(matcher: str, reads: bool) -> None:
    """The rule sets x=1 and nothing else; what comes at run time may be anything."""
    of = graph(a=[record("a:b:c", "up", x="1"), record("a:b:d", f"a:b:c{{{matcher}}}")])
    assert bool(of.reads[1]) == reads


def test_depth_counts_rules_and_names() -> None:
    """Two rules of one name on one way are two rules and one name; an alert is one more."""
    of = graph(
        a=[
            record("a:b:c", "up", x="1"),
            record("a:b:c", 'a:b:c{x="1"}', x="2"),
            record("a:b:d", 'a:b:c{x="2"}'),
            alert("ArgusA", "a:b:d > 1"),
            alert("ArgusB", "up == 0"),
        ]
    )
    assert checks.depth_by_rule(of) == 4
    assert checks.depth_by_name(of) == {"a:b:c": 1, "a:b:d": 2, "ArgusA": 3, "ArgusB": 1}


TRAP = [
    record("a:sets:now", "count by (set) (a:left:now)"),
    record("a:left:now", "a:evidence:now unless on (set) a:sets:now"),
]
"""Court design 2.4: sets are formed of what is left, which excludes what was a set at the last evaluation."""


def test_the_rule_that_reads_what_is_left_after_itself_is_named() -> None:
    """Set and single ranks alternated at each evaluation, so that nothing ever paged."""
    assert list(checks.undeclared_memory(graph(court=TRAP))) == [
        "court[0] a:sets:now reads a:left:now of the last evaluation"
    ]
    assert list(checks.circles(graph(court=TRAP))) == ["2 rules of a:left:now, a:sets:now"]


def test_the_same_trap_over_two_groups_is_a_circle() -> None:
    """No rule of its group is later, yet each reads what the other recorded from it."""
    of = graph(one=TRAP[:1], other=TRAP[1:])
    assert list(checks.undeclared_memory(of)) == []
    assert list(checks.circles(of)) == ["2 rules of a:left:now, a:sets:now"]


@pytest.mark.parametrize("groups", [{"court": (0, 1)}, {"one": (0,), "other": (1,)}])
def test_declared_memory_is_neither_named_nor_deep(groups: dict[str, tuple[int, ...]]) -> None:
    """What it remembers is no edge: the sets stand on nothing, what is left stands on them."""
    rules = [TRAP[0] | {"memory": True}, TRAP[1]]
    of = graph(**{name: [rules[number] for number in numbers] for name, numbers in groups.items()})
    assert list(checks.undeclared_memory(of)) == []
    assert list(checks.circles(of)) == []
    assert checks.depth_by_rule(of) == 2


def test_a_rule_that_reads_itself_needs_memory() -> None:
    """By a matcher that may meet its own label, or by none; not where its label excludes it."""
    of = graph(
        a=[
            record("a:b:c", "a:b:c offset 1m or up"),
            record("a:b:d", 'a:b:d{x="1"}', x="2"),
            record("a:b:e", "a:b:e", memory=True),
        ]
    )
    assert list(checks.undeclared_memory(of)) == ["a[0] a:b:c reads a:b:c of the last evaluation"]
    assert list(checks.circles(of)) == ["1 rules of a:b:c"]


def test_memory_excuses_no_edge_to_what_comes_before() -> None:
    """A rule with memory still stands on what it reads of this evaluation."""
    of = graph(a=[record("a:b:c", "up"), record("a:b:d", "a:b:c or a:b:d", memory=True)])
    assert checks.depth_by_rule(of) == 2


def test_names_in_a_circle_all_count() -> None:
    """None of them is the first."""
    of = graph(court=[*TRAP, alert("ArgusA", "a:left:now > 0")])
    assert checks.depth_by_name(of) == {"a:left:now": 2, "a:sets:now": 2, "ArgusA": 3}


@pytest.mark.parametrize(
    ("labels", "alike"),
    [
        ([{}, {}], True),
        ([{"x": "1"}, {}], True),
        ([{"x": "1"}, {"y": "1"}], True),
        ([{"x": "1"}, {"x": "1", "y": "2"}], True),
        ([{"x": "1"}, {"x": "2"}], False),
        ([{"x": "1", "y": "1"}, {"x": "1", "y": "2"}], False),
    ],
)
def test_twins_have_no_label_in_common_that_differs(labels: list[dict[str, str]], alike: bool) -> None:
    """They may write one series, and Prometheus refuses one of them, or the later one wins."""
    of = graph(a=[record("a:b:c", "up", **labels[0])], b=[record("a:b:c", "up", **labels[1])])
    assert list(checks.twins(of)) == (["a:b:c: a[0] and b[0]"] if alike else [])


def test_rules_without_a_sentence_are_named_once() -> None:
    """By name, also where only one of its rules has none. Alerts have a runbook instead."""
    of = graph(
        a=[
            record("a:b:c", "up", about="Said.", x="1"),
            record("a:b:c", "up", x="2"),
            record("a:b:d", "up", about="Said."),
            alert("ArgusA", "up"),
        ]
    )
    assert list(checks.without_about(of)) == ["a:b:c"]


def test_groups_of_more_than_twenty_rules_are_named() -> None:
    """Twenty are allowed."""
    of = graph(long=[record("a:b:c", "up")] * 21, short=[record("a:b:c", "up")] * 20)
    assert list(checks.groups_too_long(of)) == ["long: 21"]


def test_the_longest_expression_is_told() -> None:
    """In characters, as people see it."""
    assert checks.longest(graph(a=[record("a:b:c", "up"), record("a:b:d", "up + up")])).name == "a:b:d"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One of each reader, each of another name."""
    for file, text in {
        "README.md": "",
        "docs/runbooks/README.md": "Ask `rank:argus_of:page`.",
        "docs/recorded-series.md": "`rank:argus_of:nobody`",
        "docs/alerts.md": "`rank:argus_of:nobody`",
        "dashboards/generated/argus-job.json": json.dumps({"expr": "max(rank:argus_of:dashboard)"}),
        "l3_worker/argus_l3_worker/cycle.py": '"rank:argus_of:worker{rank=\\"1\\"}"',
        "simulator/argus_simulator/demo/summary.py": '"rank:argus_of:simulator"',
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    return tmp_path


def test_readers_are_rules_alerts_dashboards_programs_and_pages(repository: Path) -> None:
    """The query in an alert's text counts; the name in a generated list does not."""
    words = ("rule", "alert", "text", "dashboard", "worker", "simulator", "page", "nobody")
    of = graph(
        a=[
            *(record(f"rank:argus_of:{word}", "up") for word in words),
            record("rank:argus_of:worker", "rank:argus_of:rule or rank:argus_of:worker", x="1"),
            alert("ArgusA", "rank:argus_of:alert", description='{{ query "rank:argus_of:text{}" }}'),
        ]
    )
    found = readers(of, repository)
    assert found["rank:argus_of:rule"] == Readers(rules={"rank:argus_of:worker"})
    assert found["rank:argus_of:alert"] == found["rank:argus_of:text"] == Readers(alerts={"ArgusA"})
    assert found["rank:argus_of:dashboard"] == Readers(dashboards={"argus-job"})
    assert found["rank:argus_of:worker"] == Readers(programs={"worker"})
    assert found["rank:argus_of:simulator"] == Readers(programs={"simulator"})
    assert found["rank:argus_of:page"] == Readers(pages={"docs/runbooks/README.md"})
    assert list(unread(found)) == ["rank:argus_of:nobody"]


CHECKS: list[Callable[[Graph], Iterator[str]]] = [
    checks.undeclared_memory,
    checks.circles,
    checks.twins,
    checks.groups_too_long,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_plain_rules_are_left_alone(check: Callable[[Graph], Iterator[str]]) -> None:
    """A chain of three, told apart by labels."""
    of = graph(
        a=[record("a:b:c", "up", x="1"), record("a:b:c", "up", x="2")],
        b=[record("a:b:d", "a:b:c"), alert("ArgusA", "a:b:d > 1")],
    )
    assert list(check(of)) == []


def test_the_report_has_every_figure_as_data_and_as_text() -> None:
    """L1's own alerts have a depth of their own; thousand characters are a kB."""
    of = graph(
        a=[
            record("a:b:c", "up"),
            alert("ArgusIterationJitter", "a:b:c > 1"),
            alert("ArgusA", "up == 0" + " " * 500),
        ]
    )
    found = figures(of, {"a:b:c": Readers()})
    assert found["names"] == 1
    assert (found["depth"], found["depth_l1"], found["depth_by_rule"]) == (1, 2, 2)
    assert found["promql_kb"] == 0.5
    assert found["longest"] == {"name": "ArgusA", "characters": 507}
    assert found["unread"] == found["without_about"] == ["a:b:c"]
    assert json.loads(json.dumps(found)) == found
    assert {line.split()[0] for line in table(found) if not line.startswith(" ")} == set(found)


def test_what_is_committed_says_what_it_is_about_in_a_sentence() -> None:
    """Of one line, with a full stop, and short enough to read above a rule."""
    for rule in checks.rules_of():
        if rule.about:
            assert rule.about.endswith(".") and "\n" not in rule.about, rule.place
            assert len(rule.about) <= 300, rule.place
