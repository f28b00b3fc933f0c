"""The stacks channel end to end: a real exporter, real py-spy, ranks that are processes of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from pathlib import Path

import pytest

from argus_core.stack_refusals import refusal_path
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.sampler import Refused, find_executable
from argus_exporter.stacks.folded import Folded

from ..exporter_process import Samples, config, exporter, scrape, value, wait_for
from .processes import children, victim

PATIENCE_S = 60.0


def has_py_spy() -> bool:
    with contextlib.suppress(Refused):
        find_executable(None)
        return True
    return False


needs_py_spy = pytest.mark.skipif(not has_py_spy(), reason="py-spy is not installed")


def settings(socket: Path, **stacks: object):  # type: ignore[no-untyped-def]
    return dataclasses.replace(
        config(socket),
        stacks=StacksConfig(window_seconds=1, **stacks),  # type: ignore[arg-type]
    )


def frames(samples: Samples, rank: int = 0) -> dict[tuple[str, str], float]:
    return {
        (dict(labels)["thread"], dict(labels)["frame"]): v
        for (name, labels), v in samples.items()
        if name == "argus_stack_samples_total" and dict(labels)["rank"] == str(rank)
    }


def up(samples: Samples, rank: int = 0) -> float | None:
    return value(samples, "argus_channel_up", channel="stacks", rank=str(rank))


def reason_of(samples: Samples, rank: int = 0) -> str | None:
    return next(
        (
            dict(labels)["reason"]
            for name, labels in samples
            if name == "argus_channel_info"
            and {"channel": "stacks", "rank": str(rank)}.items() <= dict(labels).items()
        ),
        None,
    )


@needs_py_spy
@pytest.mark.slow
def test_leaf_frames_of_two_ranks_become_series_and_whole_stacks_reach_the_sink(tmp_path: Path) -> None:
    """Functions are named with their module and no line; each rank has its own; the trace gets all frames."""
    windows: list[tuple[tuple[str, int], int, int, Folded]] = []
    with exporter(settings(tmp_path / "s")) as running:
        running.stacks.sinks.append(lambda *window: windows.append(window))
        with victim(running.socket, 0), victim(running.socket, 1):
            wanted = ("MainThread", "busy_leaf (victim)")
            wait_for(
                lambda: all(frames(scrape(running.url), rank).get(wanted, 0) >= 5 for rank in (0, 1)),
                "samples of both ranks",
                PATIENCE_S,
            )
            samples = scrape(running.url)
            assert up(samples) == 1.0
            assert reason_of(samples) is None
            assert {thread for thread, _ in frames(samples)} <= {"MainThread", "loader", "unnamed"}
            assert 0 < (value(samples, "argus_stack_sampling_hertz", rank="0") or 0) <= 10
            assert (value(samples, "argus_stack_sampler_cpu_seconds_total", rank="0") or 0) > 0
            key, begin_ns, end_ns, folded = windows[0]
    assert key[0] == "job"
    # py-spy draws the time between samples at random: ten take a second in the mean, at times half of it.
    assert 0.1e9 < end_ns - begin_ns < PATIENCE_S * 1e9
    main = next(stack for stack in folded if stack.thread == "MainThread")
    functions = [frame.partition(" ")[0] for frame in main.frames]
    assert functions[:2] == ["<module>", "main"]


@needs_py_spy
def test_no_py_spy_is_left_when_the_exporter_stops(tmp_path: Path) -> None:
    """Stopped in the middle of a window of a minute: the child is killed and reaped."""
    long = dataclasses.replace(config(tmp_path / "s"), stacks=StacksConfig(window_seconds=60))
    with exporter(long) as running, victim(running.socket, 0):
        wait_for(lambda: bool(children("py-spy")), "py-spy running", PATIENCE_S)
        running_children = children("py-spy")
    assert len(running_children) == 1
    assert children("py-spy") == set()


def test_missing_py_spy_is_a_reason(tmp_path: Path) -> None:
    """The channel is down, says why, and asks the rank to sample itself."""
    absent = settings(tmp_path / "s", executable=tmp_path / "py-spy")
    with exporter(absent) as running, victim(running.socket, 0) as rank:
        wait_for(lambda: up(scrape(running.url)) == 0.0, "channel down", PATIENCE_S)
        assert reason_of(scrape(running.url)) == "py_spy_missing"
        mark = refusal_path(running.socket, 0, rank.pid)
        assert mark.read_text() == "py_spy_missing\n"
    assert not mark.exists()


def test_refused_permission_is_a_reason(tmp_path: Path) -> None:
    """What py-spy 0.4.3 says and returns when the kernel refuses it."""
    fake = script(
        tmp_path / "py-spy",
        "echo 'Permission Denied: Try running again with elevated permissions by going' >&2; exit 1",
    )
    with exporter(settings(tmp_path / "s", executable=fake)) as running, victim(running.socket, 0):
        wait_for(lambda: up(scrape(running.url)) == 0.0, "channel down", PATIENCE_S)
        assert reason_of(scrape(running.url)) == "permission"
        assert value(scrape(running.url), "argus_stack_sampling_hertz") == 0.0


@needs_py_spy
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up its own capabilities")
def test_the_kernel_s_own_refusal_is_recognised(tmp_path: Path) -> None:
    """Real py-spy without CAP_SYS_PTRACE against a process that has more capabilities."""
    real = find_executable(None)
    fake = script(tmp_path / "py-spy", f'exec setpriv --bounding-set -sys_ptrace --inh-caps -all {real} "$@"')
    with exporter(settings(tmp_path / "s", executable=fake)) as running, victim(running.socket, 0):
        wait_for(lambda: reason_of(scrape(running.url)) is not None, "refusal", PATIENCE_S)
        assert reason_of(scrape(running.url)) == "permission"


@needs_py_spy
@pytest.mark.slow
def test_a_refusal_that_ends_is_noticed(tmp_path: Path) -> None:
    """Permission comes later: the channel goes up again and the mark is taken away."""
    real, allowed = find_executable(None), tmp_path / "allowed"
    fake = script(
        tmp_path / "py-spy", f"[ -e {allowed} ] && exec {real} \"$@\"; echo 'Permission denied' >&2; exit 1"
    )
    with exporter(settings(tmp_path / "s", executable=fake)) as running, victim(running.socket, 0) as rank:
        wait_for(lambda: up(scrape(running.url)) == 0.0, "channel down", PATIENCE_S)
        allowed.touch()
        wait_for(lambda: up(scrape(running.url)) == 1.0, "channel up", PATIENCE_S)
        assert reason_of(scrape(running.url)) is None
        assert not refusal_path(running.socket, 0, rank.pid).exists()


@needs_py_spy
def test_a_hello_of_another_process_is_not_traced(tmp_path: Path) -> None:
    """HELLO names a pid that is not the peer's: nothing is sampled, neither that process nor the peer."""
    with exporter(settings(tmp_path / "s")) as running, victim(running.socket, 0, "1"):
        wait_for(lambda: reason_of(scrape(running.url)) is not None, "refusal", PATIENCE_S)
        assert reason_of(scrape(running.url)) == "pid_mismatch"
        assert children("py-spy") == set()


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
