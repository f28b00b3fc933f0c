"""Windows of torch's profiler are seen, whichever way they are opened, and go on as if they were not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from argus_training.profiler_windows import around_profiler_windows

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def seen() -> Iterator[list[str]]:
    seen: list[str] = []
    undo = around_profiler_windows(torch, lambda: seen.append("begins"), lambda: seen.append("ended"))
    yield seen
    undo()


def test_a_window_begins_and_ends(seen: list[str]) -> None:
    """`with torch.profiler.profile()`, the usual way; its events are all there."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert seen == ["begins"]
        torch.ones(4).sum()
    assert seen == ["begins", "ended"]
    assert any(event.key == "aten::sum" for event in profile.key_averages())


def test_each_window_of_a_schedule_is_seen(seen: list[str]) -> None:
    """Two cycles of wait, warm-up and active steps in one profiler."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule
    ) as profile:
        for _ in range(8):
            torch.ones(4).sum()
            profile.step()
    assert seen == ["begins", "ended"] * 2


def test_the_older_interface_is_seen_too(seen: list[str]) -> None:
    """`torch.autograd.profiler.profile`; one that is disabled is no window."""
    with torch.autograd.profiler.profile():
        torch.ones(4).sum()
    with torch.autograd.profiler.profile(enabled=False):
        torch.ones(4).sum()
    assert seen == ["begins", "ended"]


def test_a_failure_of_ours_stays_ours() -> None:
    """The profiler works as before."""

    def broken() -> None:
        raise RuntimeError("ours")

    undo = around_profiler_windows(torch, broken, broken)
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            torch.ones(4).sum()
    finally:
        undo()


def test_taking_the_wrappers_out_restores_torch() -> None:
    """Nothing is left behind."""
    profile = torch.autograd.profiler.profile
    before = profile._prepare_trace, profile.__exit__
    around_profiler_windows(torch, lambda: None, lambda: None)()
    assert (profile._prepare_trace, profile.__exit__) == before
