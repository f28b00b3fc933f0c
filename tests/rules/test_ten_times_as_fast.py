"""rules/test are the shipped rules with every second a tenth as long, and nothing else (but `OTHERWISE`).

Both are read as trees. Ranges, offsets, intervals and `for` must be a tenth; a number must be the same, or
scaled as seconds, their squares or what is counted in a second are. Which of them it has to be, the other
side tells: what is added to it or compared with it has a unit by its name, and both must have the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from argus_simulator.stack import pace

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.name for path in (ROOT / "rules").glob("*.yaml"))

OTHERWISE = {
    "argus_rules_info": "says which of the two they are",
    "ArgusOverheadBudget": "steps are shorter, and what it costs to observe one is not",
}
"""Rules that differ in more than their seconds, and why."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?:(ms|s|m|h|d)\b)?")
_POWERS = (
    (r"argus_work:rate", None),
    (r"seconds_squared_total", 2),
    (r"_seconds(_sum|_total)?|:seconds|_seconds:(mean|median)", 1),
    (r":rate|_hertz", -1),
    (r"[:_]ratio|:(cv|zscore|count|number|bool|expected|current|active|collectives)", 0),
    (r"_(count|total|up|info|ranks|number|sequence|anomaly)", 0),
)
"""Endings of names of series, and the power of seconds in their unit; the first that fits. None: unknown."""
_TOTALS = {"seconds": 1, "timestamp": 1, "count": 0, "squares": 2, "work": 0}
_COUNTS = {"count_over_time", "present_over_time", "changes", "resets", "absent"}
_SAME = {"+", "-", "%", "atan2", "==", "!=", ">", "<", ">=", "<="}


@pytest.mark.parametrize("file", FILES)
def test_a_rule_differs_by_its_seconds_alone(file: str):
    """Each complaint names the rule."""
    shipped, played = (
        yaml.load((ROOT / folder / file).read_text(), yaml.CSafeLoader) for folder in ("rules", "rules/test")
    )
    complaints = _groups(shipped["groups"], played["groups"])
    assert [one for one in complaints if one.partition(" ")[0] not in OTHERWISE] == []


def test_the_same_rules_are_played():
    """No file is left out, and none is beside them."""
    assert sorted(path.name for path in (ROOT / "rules" / "test").glob("*.yaml")) == FILES


def test_a_scrape_is_as_long_as_the_rules_take_it_to_be():
    """The stack scrapes as often as what follows each scrape is evaluated."""
    groups = yaml.load((ROOT / "rules/test/argus.job.rules.yaml").read_text(), yaml.CSafeLoader)["groups"]
    assert _seconds(groups[0]["interval"]) == pytest.approx(pace.SCRAPE_S)


@pytest.mark.parametrize(
    ("shipped", "played"),
    [
        ("a_seconds > 60", "a_seconds > 60"),
        ("rate(a_total[5m]) > 3", "rate(a_total[30s]) > 3"),
        ("time() - a:timestamp_seconds > 4", "time() - a:timestamp_seconds > 4"),
        ("clamp_min(5 * a_seconds_sum / a_count, 60)", "clamp_min(5 * a_seconds_sum / a_count, 60)"),
        ("a:ratio > 0.5", "a:ratio > 0.05"),
        ("a offset 1m", "a offset 5s"),
        ('a{ago="1m"}', 'a{ago="1m"}'),
        ("a > 1", "b > 1"),
    ],
    ids=["seconds", "a rate", "an age", "at least", "a share", "an offset", "a label", "another series"],
)
def test_what_was_forgotten_is_noticed(shipped: str, played: str):
    """One of each kind."""
    assert list(_expressions("rule", shipped, played))


# -- the comparison -----------------------------------------------------------------------------------------


def _groups(shipped: list[Any], played: list[Any]) -> Iterator[str]:
    if [group["name"] for group in shipped] != [group["name"] for group in played]:
        yield "other groups"
    for one, other in zip(shipped, played, strict=False):
        name = one["name"]
        if not _tenth(_seconds(one["interval"]), _seconds(other["interval"])):
            yield f"{name}: interval {one['interval']} and {other['interval']}"
        if len(one["rules"]) != len(other["rules"]):
            yield f"{name}: other rules"
        for rule, same in zip(one["rules"], other["rules"], strict=False):
            yield from _rules(rule, same)


def _rules(rule: dict[str, Any], same: dict[str, Any]) -> Iterator[str]:
    name = rule.get("record") or rule.get("alert")
    where = f"{name} {rule.get('labels', '')}"
    if rule.keys() != same.keys() or name != (same.get("record") or same.get("alert")):
        yield f"{where}: another rule"
        return
    for key in {"for", "keep_firing_for"} & rule.keys():
        if not _tenth(_seconds(rule[key]), _seconds(same[key])):
            yield f"{where}: {key} {rule[key]} and {same[key]}"
    for key in ("labels", "annotations"):
        for text, other in zip(rule.get(key, {}).items(), same.get(key, {}).items(), strict=True):
            # What the worker prints, which knows no tenths.
            if text != other if text[0] == "card" else not _same_text(": ".join(text), ": ".join(other)):
                yield f"{where}: {key} {text} and {other}"
    yield from _expressions(where, rule["expr"], same["expr"])


def _expressions(where: str, shipped: str, played: str) -> Iterator[str]:
    try:
        _power(promql_parser.parse(shipped), promql_parser.parse(played))
    except _Differs as difference:
        yield f"{where}: {difference}"


class _Differs(Exception):
    """Something is neither the same nor a tenth."""


def _power(one: Any, other: Any) -> int | None:
    """Power of seconds in the unit of two expressions that differ by their pace alone; None: any, or unknown.

    Raises:
        _Differs: they are not.
    """
    if type(one) is not type(other):
        raise _Differs(f"{one.prettify()} and {other.prettify()}")
    match one:
        case promql_parser.NumberLiteral():
            return _power_of_number(one.val, other.val)
        case promql_parser.StringLiteral():
            _check(one.val == other.val, one, other)
            return None
        case promql_parser.VectorSelector():
            return _power_of_selector(one, other)
        case promql_parser.MatrixSelector():
            _check(_tenth(one.range.total_seconds(), other.range.total_seconds()), one, other)
            return _power(one.vector_selector, other.vector_selector)
        case promql_parser.AggregateExpr():
            _check(str(one.op) == str(other.op) and _labels(one) == _labels(other), one, other)
            if one.param is not None:
                _power(one.param, other.param)
            power = _power(one.expr, other.expr)
            return 0 if str(one.op) in ("count", "group") else power
        case promql_parser.Call():
            return _power_of_call(one, other)
        case promql_parser.BinaryExpr():
            return _power_of_binary(one, other)
        case _:
            return _power(one.expr, other.expr)


def _power_of_number(one: float, other: float) -> int | None:
    if one == other:
        return None if one == 0 or math.isinf(one) else 0
    for power in (1, -1, 2):
        if math.isclose(
            other, one * pace.SECOND_S**power, rel_tol=1e-3
        ):  # rates are written with four digits
            return power
    raise _Differs(f"{one} and {other}")


def _power_of_selector(one: Any, other: Any) -> int | None:
    matchers, others = (
        {(m.name, str(m.op)): m.value for m in node.matchers.matchers} for node in (one, other)
    )
    same = one.name == other.name and matchers.keys() == others.keys()
    _check(same and all(_same_text(matchers[key], others[key]) for key in matchers), one, other)
    _check(_tenth(_offset(one), _offset(other)), one, other)
    if one.name.endswith(":total"):
        return _TOTALS.get(next((m.value for m in one.matchers.matchers if m.name == "total"), ""))
    return next((power for ending, power in _POWERS if re.search(f"({ending})$", one.name)), None)


def _power_of_call(one: Any, other: Any) -> int | None:
    name = one.func.name
    _check(name == other.func.name and len(one.args) == len(other.args), one, other)
    powers = [_power(mine, theirs) for mine, theirs in zip(one.args, other.args, strict=True)]
    if name in ("time", "timestamp"):
        return 1
    if name in _COUNTS:
        return 0
    if name == "sqrt":
        return None if powers[0] is None or powers[0] % 2 else powers[0] // 2
    if name.startswith("clamp"):
        return _agreed(powers, one)
    if name == "rate":
        return None if powers[0] is None else powers[0] - 1
    return powers[-1] if name == "quantile_over_time" else powers[0]


def _power_of_binary(one: Any, other: Any) -> int | None:
    operator = str(one.op)
    _check(operator == str(other.op) and _matching(one) == _matching(other), one, other)
    left, right = _power(one.lhs, other.lhs), _power(one.rhs, other.rhs)
    if operator in _SAME:
        agreed = _agreed([left, right], one)
        return 0 if one.modifier is not None and one.modifier.return_bool else agreed
    if operator in ("and", "unless"):
        return left
    if operator == "or":
        return left if left == right else None
    if operator == "^":
        return None if left is None else left * int(one.rhs.val)
    if left is None or right is None:
        return None
    return left + right if operator == "*" else left - right


def _agreed(powers: list[int | None], node: Any) -> int | None:
    known = {power for power in powers if power is not None}
    if len(known) > 1:
        raise _Differs(f"units differ, or a number of seconds is not a tenth: {node.prettify()}")
    return next(iter(known), None)


def _check(same: bool, one: Any, other: Any) -> None:
    if not same:
        raise _Differs(f"{one.prettify()} and {other.prettify()}")


def _labels(node: Any) -> str:
    return "" if node.modifier is None else f"{node.modifier.type} {node.modifier.labels}"


def _matching(node: Any) -> str:
    modifier = node.modifier
    if modifier is None:
        return ""
    matching = modifier.matching
    on = "" if matching is None else f"{matching.type} {matching.labels}"
    return f"{modifier.card} {modifier.return_bool} {on} {modifier.group_labels}"


def _offset(node: Any) -> float:
    offset: timedelta | None = node.offset
    return 0.0 if offset is None else offset.total_seconds()


def _seconds(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in _NUMBER.findall(text))


def _tenth(one: float, other: float) -> bool:
    return math.isclose(other, one * pace.SECOND_S, abs_tol=1e-9)


def _same_text(one: str, other: str) -> bool:
    """Text in which durations are a tenth; a number without a unit may be the same, or a tenth."""
    if _NUMBER.sub("", one) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(
        _tenth(_seconds("".join(mine)), _seconds("".join(theirs)))
        if mine[1] or theirs[1]
        else float(theirs[0]) in (float(mine[0]), float(mine[0]) * pace.SECOND_S)
        for mine, theirs in pairs
    )
