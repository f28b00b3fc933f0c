"""Playing recordings: what they say arrives through the real wire, at the right time and step."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from argus_exporter.kernels.streams import label_streams
from argus_exporter.replay.player import Player, play, serve
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording
from argus_exporter.replay.resample import resample
from argus_exporter.server import RunningExporter
from exporter.exporter_process import Samples, config, exporter, scrape, value, wait_for
from exporter.replay.synthetic import dumps, log, training_trace


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "exporter.sock"


def fleet(ranks: int, **shape: int) -> list[RankRecording]:
    return [
        parse_bytes(dumps(training_trace(rank=r, **shape)), Path(f"rank{r}.json"))[0] for r in range(ranks)
    ]


@contextlib.contextmanager
def playing(player: Player) -> Iterator[threading.Thread]:
    """The player's thread; it is stopped at the end, also where the test failed."""
    thread = threading.Thread(target=player.run)
    thread.start()
    try:
        yield thread
    finally:
        player.stop()
        thread.join(timeout=10)


def test_recording_arrives_with_its_totals(running: RunningExporter):
    """Iterations, phases and identities of every rank; nothing is dropped."""
    player = Player([fleet(2)], running.socket, speed=0, stay=True)
    with playing(player) as thread:
        wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step", rank="1") == 8, "step 8")
        samples = scrape(running.url)
        for rank in ("0", "1"):
            assert value(samples, "argus_iteration_duration_seconds_count", rank=rank) == 4
            total = value(samples, "argus_iteration_duration_seconds_sum", rank=rank)
            assert total == pytest.approx(4 * 990e-6)
            forward = value(
                samples, "argus_phase_duration_seconds_sum", rank=rank, phase="forward", source="host"
            )
            assert forward == pytest.approx(4 * 400e-6)
            assert value(samples, "argus_group_expected_ranks", rank=rank, group="dp") == 4
            assert value(samples, "argus_activity", rank=rank, activity="train") == 1
            ended = value(samples, "argus_iteration_last_timestamp_seconds", rank=rank)
            assert ended == pytest.approx(time.time(), abs=5)
        player.stop()
        thread.join(timeout=10)
        assert player.progress.dropped == 0
        assert player.progress.kernels == 2 * 40
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") is None, "goodbye of rank 0")


def test_loop_continues_steps_totals_and_time(running: RunningExporter):
    """The second pass follows the first: steps 9 to 12, totals of both."""
    player = Player([fleet(1), fleet(1)], running.socket, speed=1, stay=True)
    with playing(player):
        wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step", rank="0") == 12, "step 12")
        samples = scrape(running.url)
        assert value(samples, "argus_iteration_duration_seconds_count", rank="0") == 8


def long_log(seconds: float) -> list[RankRecording]:
    """Steps of 50 ms with one gemm each."""
    lines = [
        line
        for step in range(round(seconds / 0.05))
        for line in (
            {"rank": 0, "step": step, "iteration": True, "start": 0.05 * step, "duration": 0.05},
            {"rank": 0, "step": step, "kernel": "gemm", "stream": 7, "start": 0.05 * step, "duration": 1e-4},
        )
    ]
    return parse_bytes(log(*lines), Path("e.jsonl"))


@pytest.mark.parametrize(("speed", "expected_s"), [(1.0, 1.0), (4.0, 0.25)])
def test_speed_scales_when_not_how_long(running: RunningExporter, speed: float, expected_s: float):
    """One recorded second takes 1/speed; durations stay as recorded."""
    player = Player([long_log(1.0)], running.socket, speed=speed, stay=True)
    began = time.monotonic()
    with playing(player):
        wait_for(lambda: player.finished, "the end")
        assert time.monotonic() - began == pytest.approx(expected_s, abs=0.3)
        wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step", rank="0") == 19, "step 19")
        total = value(scrape(running.url), "argus_iteration_duration_seconds_sum", rank="0")
        assert total == pytest.approx(1.0)


def test_stop_ends_an_endless_loop_at_once(running: RunningExporter):
    """Ctrl-C does not wait for the end of a pass, and the ranks say goodbye."""
    player = Player(repeat(long_log(60.0)), running.socket, speed=1)
    with playing(player) as thread:
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")
        began = time.monotonic()
        player.stop()
        thread.join(timeout=10)
        assert time.monotonic() - began < 1
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") is None, "goodbye")


def test_cancelling_serve_says_goodbye(running: RunningExporter):
    """A cancelled task leaves no thread and no lost rank."""

    async def cancelled(url: str) -> None:
        task = asyncio.create_task(serve(long_log(60.0), running.socket, speed=1, loop=True))
        is_up = lambda: value(scrape(url), "argus_rank_up", rank="0") == 1  # noqa: E731
        await asyncio.to_thread(wait_for, is_up, "rank 0")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled(running.url))
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") is None, "goodbye")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio")]


def test_without_an_exporter_records_are_counted_as_dropped(tmp_path: Path):
    """Nothing raises, nothing hangs."""
    progress = asyncio.run(play(Player([fleet(1)], tmp_path / "absent.sock", speed=0)))
    assert progress.dropped > 0


def modes_p50(samples: Samples, rank: str, kernel: str) -> list[float]:
    name = "argus_kernel_mode_p50_seconds"
    return sorted(
        v
        for (n, labels), v in samples.items()
        if n == name and {("rank", rank), ("kernel", kernel)} <= labels
    )


def test_stretched_rank_shows_in_the_modes_of_its_window(running: RunningExporter):
    """Through wire, windows and clustering: every rank publishes the same window, one 1.2x slower."""
    source = parse_bytes(dumps(training_trace(rank=0, kernels=1)), Path("rank0.json"))
    made = resample(source, ranks=3, steps=3000, seed=1, stretch={2: 1.2})
    player = Player([made], running.socket, speed=0, stay=True)
    with playing(player):
        wait_for(lambda: len(modes_p50(scrape(running.url), "2", "gemm")) > 0, "a window of rank 2", 30)
        wait_for(lambda: len(modes_p50(scrape(running.url), "0", "gemm")) > 0, "a window of rank 0", 30)
        samples = scrape(running.url)
        assert modes_p50(samples, "0", "gemm") == pytest.approx([10e-6], rel=0.01)
        assert modes_p50(samples, "2", "gemm") == pytest.approx([12e-6], rel=0.01)
        lasts = {value(samples, "argus_kernel_window_last_step", rank=str(rank)) for rank in range(3)}
        assert all(last and last % 1024 == 0 for last in lasts)


@pytest.mark.traces
def test_real_trace_is_published_as_the_summary_says(socket: Path, traces: Path):
    """A looped resnet50 rank: streams named as in the summary, launches and time a window as in the trace."""
    (recording,) = read_files([sorted((traces / "resnet50_kineto").glob("*.gz"))[0]])
    with exporter(config(socket, seconds=3.0)) as running:
        player = Player([[recording]] * 8, socket, speed=0.0, stay=True)
        with playing(player) as thread:
            wait_for(
                lambda: value(scrape(running.url), "argus_kernel_window_steps", rank="0") == 16,
                "a window",
                30,
            )
            samples = scrape(running.url)
            streams = {
                dict(labels)["stream"]
                for (name, labels) in samples
                if name == "argus_kernel_mode_p50_seconds"
            }
            assert (
                streams
                == set(label_streams(recording.kernels, dict(enumerate(recording.texts))).values())
                == {"compute0"}
            )
            coverage = value(samples, "argus_kernel_coverage_ratio", rank="0")
            assert coverage is not None
            assert 0.7 < coverage < 1
            names = {dict(labels)["name"] for (name, labels) in samples if name == "argus_kernel_info"}
            assert names <= set(recording.texts)
            player.stop()
            thread.join(timeout=10)
            assert player.progress.dropped == 0
            assert np.all(recording.kernels["start_ns"] > 0)


def test_compute_of_an_event_log_waits_for_nobody_by_its_word(socket: Path):
    """Of its other phases, and of those of an imported trace, nobody knows."""
    span = {"rank": 0, "step": 1, "duration": 0.1}
    lines = log(
        span | {"phase": "forward", "kind": "compute", "start": 0},
        span | {"phase": "all_reduce", "kind": "comm", "start": 1},
    )
    for recordings, forward in (
        (parse_bytes(lines, Path("events.jsonl")), "none"),
        (fleet(1), "unknown"),
    ):
        with exporter(config(socket)) as running:
            player = Player([recordings], socket, speed=0, stay=True)
            with playing(player):

                def waits(url: str = running.url) -> dict[str, str]:
                    found = [dict(labels) for name, labels in scrape(url) if name == "argus_phase_info"]
                    return {labels["phase"]: labels["waits"] for labels in found}

                wait_for(lambda: "forward" in waits(), "a phase")
                told = waits()
                assert told.pop("forward") == forward
                assert set(told.values()) <= {"unknown"}
