"""Hostile files: every importer answers with data or one line. The short form of `python -m bench.fuzz`."""

from __future__ import annotations

import pytest
from bench.fuzz.mutate import Mutator
from bench.fuzz.targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

IMPORTERS = ("kineto", "event_log", "nsys")
SEEDS = {name: TARGETS[name].seeds() for name in IMPORTERS}


@pytest.mark.parametrize("name", IMPORTERS)
def test_seeds_of_the_fuzzer_are_data(name: str):
    """Else it would test the first check alone."""
    assert all(TARGETS[name].run(seed) for seed in SEEDS[name])


@pytest.mark.parametrize("name", IMPORTERS)
@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_overwritten_and_cut_files_raise_nothing_but_our_error(name: str, data: st.DataObject):
    """Bytes changed anywhere, and the end cut off."""
    content = bytearray(data.draw(st.sampled_from(SEEDS[name])))
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        content[place] = byte
    TARGETS[name].run(bytes(content[: data.draw(st.one_of(st.just(len(content)), places))]))


@pytest.mark.parametrize("name", IMPORTERS)
def test_mutants_of_the_format_raise_nothing_but_our_error(name: str):
    """Tokens, digits and lines changed, so that some get far: both answers are seen."""
    mutator = Mutator(SEEDS[name], seed=1, is_text=TARGETS[name].is_text)
    outcomes = {TARGETS[name].run(mutator.next()) for _ in range(300)}
    assert outcomes == {True, False}
