"""Keys of traces: readable, sortable, safe in a URL, and reversible."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.store.keys import DumpKey, TraceKey, check_key, decode_part, encode_part, is_dump, of_one_step

BEGIN = 1_795_244_623_456_000_000  # 2026-11-21 07:03:43.456 UTC


def test_a_key_names_job_date_rank_steps_and_time() -> None:
    """The form that alerts and links carry."""
    key = TraceKey("llama-70b", 3, 128, 191, BEGIN)
    assert str(key) == (
        "llama-70b/2026-11-21/3/000000000128-000000000191-20261121T070343.456Z.perfetto-trace"
    )


def test_a_window_without_steps_says_so() -> None:
    """Kernels of a job without iteration marks."""
    key = TraceKey("j", 0, None, None, BEGIN)
    assert str(key) == "j/2026-11-21/0/nosteps-20261121T070343.456Z.perfetto-trace"
    assert TraceKey.parse(str(key)) == key


def test_keys_of_a_rank_sort_by_step_then_time() -> None:
    """As text, as stores list them."""
    keys = [TraceKey("j", 0, step, step + 9, BEGIN + late) for step in (2, 10, 100) for late in (0, 10**9)]
    assert sorted(map(str, keys)) == list(map(str, keys))


@given(
    job=st.text(min_size=1, max_size=40),
    rank=st.integers(0, 2**31),
    steps=st.none() | st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)),
    begin_ms=st.integers(0, 4_000_000_000_000),
)
def test_every_key_is_url_safe_and_read_back(job, rank, steps, begin_ms) -> None:
    """Whatever a user calls a job."""
    first, last = steps or (None, None)
    key = TraceKey(job, rank, first, last, begin_ms * 1_000_000)
    check_key(str(key))
    assert quote(str(key)) == str(key)
    assert TraceKey.parse(str(key)) == key


@pytest.mark.parametrize("job", [".", "..", "", "a/b", "~", ".hidden", "größe", "a b\n"])
def test_odd_job_names_stay_one_part(job: str) -> None:
    """No name climbs out of its folder."""
    part = encode_part(job)
    check_key(part)
    assert "/" not in part
    assert decode_part(part) == job


@pytest.mark.parametrize(
    "key",
    [
        "job/2026-11-21/0/window",
        "job/2026-11-21/x/nosteps-20261121T070343.456Z.perfetto-trace",
        "job/yesterday/0/nosteps-20261121T070343.456Z.perfetto-trace",
        "job/2026-11-21/0/1-2-20261121T070343.456Z.perfetto-trace",
        "job/2026-11-21/0/nosteps-20261121T070343.456Z.perfetto-trace/more",
    ],
)
def test_what_is_no_trace_key_is_refused(key: str) -> None:
    """With the form that is allowed."""
    with pytest.raises(ValueError, match="allowed: training_job/YYYY-MM-DD/rank"):
        TraceKey.parse(key)


def _window(rank: int, first: int | None, last: int | None, late_s: int = 0) -> TraceKey:
    return TraceKey("j", rank, first, last, BEGIN + late_s * 10**9)


def test_of_each_rank_the_window_of_the_newest_step_that_all_have_is_chosen() -> None:
    """Two alerts asked for windows at two times: rank 0 is newer than what it can be compared with."""
    old = [_window(rank, 100, 109) for rank in range(3)]
    newer = [_window(rank, 205 + rank, 214 + rank, 60) for rank in (0, 1)]
    newest = [_window(0, 300, 309, 120)]
    assert of_one_step([*newest, *newer, *old]) == old
    assert of_one_step([*newest, *newer]) == newer
    assert of_one_step(newest) == newest


def test_who_has_no_window_of_the_step_is_left_out() -> None:
    windows = [_window(0, 0, 9), _window(1, 5, 14), _window(2, 40, 49), _window(3, None, None)]
    assert of_one_step(windows) == windows[:2]
    assert of_one_step(windows, step=44) == [windows[2]]
    assert of_one_step(windows, step=99) == []


def test_a_step_that_was_repeated_is_that_of_the_newest_window() -> None:
    """A job that was begun anew from a checkpoint; and ranks whose windows overlap count once."""
    again = [_window(0, 0, 9, 60), _window(0, 5, 14, 70), _window(1, 0, 9, 60)]
    assert of_one_step([_window(0, 0, 9), *again, _window(1, 0, 9)]) == [again[1], again[2]]


def test_of_windows_without_steps_the_newest_is_chosen() -> None:
    assert of_one_step([_window(0, None, None, 60), _window(0, None, None)]) == [_window(0, None, None, 60)]


@given(
    job=st.text(min_size=1, max_size=40),
    rank=st.integers(0, 2**31),
    step=st.integers(0, 2**64 - 1),
    made_ms=st.integers(0, 4_000_000_000_000),
)
def test_the_key_of_a_dump_is_read_back_and_no_trace(job, rank, step, made_ms) -> None:
    key = DumpKey(job, rank, step, made_ms * 1_000_000, "nccl")
    check_key(str(key))
    assert DumpKey.parse(str(key)) == key
    assert is_dump(str(key))
    trace = TraceKey(job, rank, step, step, made_ms * 1_000_000)
    assert not is_dump(str(trace))
    with pytest.raises(ValueError, match="not the key of a trace"):
        TraceKey.parse(str(key))
    with pytest.raises(ValueError, match="not the key of a dump"):
        DumpKey.parse(str(trace))


def test_a_dump_lies_beside_the_traces_of_its_rank_and_step() -> None:
    dump, trace = str(DumpKey("j", 3, 128, BEGIN, "nccl")), str(TraceKey("j", 3, 128, 128, BEGIN))
    assert dump == "j/2026-11-21/3/000000000128-000000000128-20261121T070343.456Z.flight-nccl.json.gz"
    assert dump.split(".flight")[0] == trace.removesuffix(".perfetto-trace")
