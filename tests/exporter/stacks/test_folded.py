"""Folded stacks: what py-spy writes is read, and what anyone else may write harms nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_exporter.stacks.folded import (
    DEPTH_LIMIT,
    STACKS_LIMIT,
    TEXT_LIMIT,
    Stack,
    frame_label,
    parse,
    thread_name,
)

PY_SPY = """\
thread (17526): MainThread;<module> (train.py:13);Trainer.step (train.py:11);inner (torch/nn/linear.py:9) 29
thread (17528): pin_memory 3;Thread._bootstrap (threading.py:1002);helper_work (spin.py:3) 2
thread (17530);loop (x.py:1) 1
"""


def test_what_py_spy_writes_is_read() -> None:
    """Thread, frames from the outermost on, and the count."""
    parsed = parse(PY_SPY)
    assert parsed.folded[
        Stack(
            "MainThread",
            ("<module> (train.py:13)", "Trainer.step (train.py:11)", "inner (torch/nn/linear.py:9)"),
        )
    ] == 29  # fmt: skip
    assert {stack.thread for stack in parsed.folded} == {"MainThread", "pin_memory", "unnamed"}
    assert (parsed.samples, parsed.unread) == (32, 0)


def test_threads_of_one_name_are_one() -> None:
    """Samples of two threads of a pool that stand at the same place are added."""
    parsed = parse("thread (1): pool-0_1;f (a.py:1) 2\nthread (2): pool-0_2;f (a.py:1) 3\n")
    assert parsed.folded == {Stack("pool", ("f (a.py:1)",)): 5}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("MainThread", "MainThread"),
        ("ThreadPoolExecutor-0_3", "ThreadPoolExecutor"),
        ("Thread-17 (_pin_memory_loop)", "Thread (_pin_memory_loop)"),
        ("Dummy-4", "Dummy"),
        ("42", "unnamed"),
        ("", "unnamed"),
        ("a\x07b", "ab"),
    ],
)
def test_thread_names_carry_no_serial_numbers(name: str, label: str) -> None:
    """A number in a name would make a series a thread."""
    assert thread_name(name) == label


@pytest.mark.parametrize(
    ("frame", "label"),
    [
        ("inner (torch/nn/modules/linear.py:125)", "inner (torch.nn.modules.linear)"),
        ("relu (site-packages/torch/nn/functional.py:7)", "relu (torch.nn.functional)"),
        ("<module> (train.py:3)", "<module> (train)"),
        ("f (torch/__init__.py:3)", "f (torch)"),
        ("_find (<frozen importlib._bootstrap>:241)", "_find (<frozen importlib._bootstrap>)"),
        ("at::native::copy_ (libtorch_cpu.so)", "at::native::copy_ (libtorch_cpu.so)"),
        ("no parenthesis", "no parenthesis"),
    ],
)
def test_frames_are_named_without_lines(frame: str, label: str) -> None:
    """Function and module, whatever the line."""
    assert frame_label(frame) == label


@pytest.mark.parametrize(
    "line", ["x", "thread (1): a;f (b.py:1)", "thread (1): a;f (b.py:1) -3", "no frames 3", "a;b 99999999999"]
)
def test_what_is_no_folded_stack_is_counted(line: str) -> None:
    """Nothing is guessed."""
    parsed = parse(line)
    assert (parsed.folded, parsed.samples, parsed.unread) == ({}, 0, 1)


def test_depth_keeps_the_innermost_frames() -> None:
    """A deep recursion is cut at its outer end."""
    frames = ";".join(f"f{index} (a.py:1)" for index in range(1000))
    (stack,) = parse(f"thread (1): T;{frames} 1").folded
    assert len(stack.frames) == DEPTH_LIMIT
    assert stack.frames[-1] == "f999 (a.py:1)"


def test_number_of_stacks_is_bounded() -> None:
    """What is beyond is counted."""
    parsed = parse("\n".join(f"thread (1): T;f{index} (a.py:1) 1" for index in range(STACKS_LIMIT + 10)))
    assert len(parsed.folded) == STACKS_LIMIT
    assert parsed.unread == 10


@given(st.text())
def test_any_text_is_bounded(text: str) -> None:
    """Arbitrary text never raises, and what comes out fits a label."""
    for stack in parse(text).folded:
        for part in (stack.thread, *stack.frames):
            assert len(part) <= TEXT_LIMIT
            assert part == "" or part.isprintable()
