"""Leaf frames as series: bounded, steady, and nothing lost."""

from __future__ import annotations

from collections import Counter

import pytest

from argus_exporter.stacks.folded import Stack
from argus_exporter.stacks.totals import OTHER, THREADS_LIMIT, Leaf, StackTotals


def window(**leaves: int) -> Counter[Stack]:
    return Counter(
        {Stack("T", ("main (m.py:1)", f"{name} (m.py:2)")): count for name, count in leaves.items()}
    )


def leaf(name: str) -> Leaf:
    return Leaf("T", f"{name} (m)")


def test_top_leaves_are_named_and_the_rest_is_other() -> None:
    """Three leaves, two places."""
    totals = StackTotals(2)
    totals.add(window(a=10, b=5, c=1))
    assert totals.counts == {leaf("a"): 10, leaf("b"): 5, Leaf("T", OTHER): 1}


def test_lines_of_one_function_are_one_series() -> None:
    """The line is in the trace only."""
    totals = StackTotals(2)
    totals.add({Stack("T", ("a (m.py:1)",)): 2, Stack("T", ("a (m.py:9)",)): 3})
    assert totals.counts == {leaf("a"): 5}


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (
            (
                "compile_wrapper (torch/_dynamo/eval_frame.py:963)",
                "_compile (torch/_dynamo/convert_frame.py:1700)",
                "compile_fx (torch/_inductor/compile_fx.py:2400)",
                "CppCSEVariable.__init__ (torch/_inductor/codegen/cpp_utils.py:5)",
            ),
            "_compile (torch._dynamo.convert_frame)",
        ),
        (
            (
                "compile_fx_inner (torch/_inductor/compile_fx.py:700)",
                "Popen.communicate (subprocess.py:1209)",
            ),
            "compile_fx_inner (torch._inductor.compile_fx)",
        ),
        (
            ("compile (triton/compiler/compiler.py:3)", "make_ir (triton/compiler/code.py:8)"),
            "compile (triton.compiler.compiler)",
        ),
        (
            ("Context.__call__.<locals>.compile_wrapper (torch/_dynamo/eval_frame.py:963)", "call (c.py:7)"),
            "call (c)",
        ),
        (
            ("_compile (re/__init__.py:294)", "compile (re/_compiler.py:745)", "parse (re/_parser.py:9)"),
            "parse (re._parser)",
        ),
        (
            ("findall (regex/_main.py:338)", "_compile (regex/_main.py:460)", "get (cache.py:3)"),
            "get (cache)",
        ),
    ],
)
def test_what_a_compiler_does_is_counted_as_its_entry(frames: tuple[str, ...], told: str) -> None:
    """Its leaves are thousands. Calling what is compiled is not compiling. Frames as py-spy has them."""
    totals = StackTotals(2)
    totals.add({Stack("T", frames): 3})
    assert totals.counts == {Leaf("T", told): 3}


def test_a_slightly_larger_leaf_does_not_take_the_place() -> None:
    """Two leaves that swap places by chance: the series stay."""
    totals = StackTotals(1)
    for _ in range(20):
        totals.add(window(a=10, b=9))
        totals.add(window(a=9, b=10))
    assert set(totals.counts) == {leaf("a"), Leaf("T", OTHER)}


def test_a_leaf_that_has_become_dominant_takes_the_place() -> None:
    """After some windows; from then on its samples are its own."""
    totals = StackTotals(1)
    for _ in range(5):
        totals.add(window(a=100))
    windows = 0
    while leaf("b") not in totals.counts:
        totals.add(window(b=100))
        windows += 1
    assert 1 < windows < 15
    assert leaf("a") not in totals.counts


def test_every_sample_is_counted_once() -> None:
    """While nothing is evicted the series add up to all samples."""
    totals = StackTotals(3)
    for _ in range(10):
        totals.add(window(a=10, b=5, c=3, d=2, e=1))
    assert totals.counts.total() == totals.samples == 210


def test_series_are_bounded_whatever_the_names() -> None:
    """A thousand threads with a thousand functions each window."""
    totals = StackTotals(10)
    for step in range(20):
        totals.add(
            Counter({Stack(f"t{index}", (f"f{step}x{index} (m.py:1)",)): index + 1 for index in range(1000)})
        )
    assert len(totals.counts) <= 10 + THREADS_LIMIT + 1
    assert len({leaf.thread for leaf in totals.counts}) <= THREADS_LIMIT + 1


def test_an_empty_window_changes_nothing() -> None:
    """An idle process has no samples: shares are not forgotten for it."""
    totals = StackTotals(1)
    totals.add(window(a=1))
    totals.add({})
    assert totals.counts == {leaf("a"): 1}
