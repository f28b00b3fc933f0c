"""Answers with anything changed: a report or one line of an error, and what people and machines then get."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable

import pytest
from bench.fuzz.mutate import Mutator
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.report import Report
from argus_exporter.ras.shown import MOST_LINES, shown
from argus_exporter.ras.text_answer import parse_text
from exporter.ras.answers import (
    HEALTHY_TEXT,
    OUTLIERS_TEXT,
    TEXT_OF_2_24,
    Absentee,
    Group,
    Job,
    Member,
    members,
)

ABSENT = [Absentee(2, 4002, unresponsive=True), Absentee(3, 4003, dead=True)]
JSON = [
    Job(
        [Group(members({0: 7, 1: 6}), ABSENT), Group([Member(0, 9, 1, async_error=6)], hash=5)], version
    ).json()
    for version in ("2.28.9", "2.30.7")
]
FORMS = {
    "json": (parse_json, [one.encode() for one in JSON]),
    "text": (parse_text, [OUTLIERS_TEXT.encode(), HEALTHY_TEXT.encode(), TEXT_OF_2_24.encode()]),
}


def is_answer(parse: Callable[[str], Report], content: bytes) -> bool:
    try:
        report = parse(content.decode(errors="replace"))
    except RasFailed as error:
        assert str(error)
        return False
    lines = list(shown(report))
    assert len(lines) <= 10 + 10 * MOST_LINES * (1 + len(report.communicators))
    assert all(line.isprintable() for line in lines)
    json.dumps(dataclasses.asdict(report), allow_nan=False)
    return True


@pytest.mark.parametrize("form", FORMS)
def test_mutants_of_an_answer_raise_nothing_but_our_error(form: str) -> None:
    """Tokens, digits and lines changed, so that some get far: both outcomes are seen."""
    parse, seeds = FORMS[form]
    mutator = Mutator(seeds, seed=1, is_text=True)
    assert {is_answer(parse, mutator.next()) for _ in range(400)} == {True, False}


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_overwritten_and_cut_answers_raise_nothing_but_our_error(form: str, data: st.DataObject) -> None:
    parse, seeds = FORMS[form]
    content = bytearray(data.draw(st.sampled_from(seeds)))
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        content[place] = byte
    is_answer(parse, bytes(content[: data.draw(st.one_of(st.just(len(content)), places))]))


@pytest.mark.parametrize("value", ["1" * 400, "1e999", "NaN", "-1", '"x"', "null", "[]", "{}"])
@pytest.mark.parametrize("key", ["collection_time_sec", "timeouts_count", "rank", "init_state", "cuda_dev"])
def test_numbers_that_are_none_raise_nothing_but_our_error(key: str, value: str) -> None:
    text = JSON[1]
    start = text.index(f'"{key}": ') + len(key) + 4
    end = start + len(re.match(r"[\d.]+", text[start:])[0])  # type: ignore[index]
    is_answer(parse_json, (text[:start] + value + text[end:]).encode())
