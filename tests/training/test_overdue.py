"""When an iteration is overdue, and when the flight recorder is looked at for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import DUMP_BYTES, STEP_WORD, Dump, OpenSpan, Page, PageReader, PageWriter
from argus_training.flight_recorder import LastCollective, Status
from argus_training.identity import Layout, Place, hello
from argus_training.overdue import OverdueIteration
from argus_training.recorder import Recorder
from argus_training.spans import now

STATUS = {("gloo", 0): Status(8, -1, 7)}


class Flight:
    """A flight recorder that says what a test has it say, and takes its time to list entries."""

    def __init__(self) -> None:
        self.says = dict(STATUS)
        self.now = 0.0
        self.listed: list[float] = []
        self.dumped: list[float] = []
        self.recorded = {"nccl": b"all of it"}

    def status(self, _backends: Collection[str]) -> dict[tuple[str, int], Status]:
        return self.says

    def list_entries(self, _backends: Collection[str]) -> None:
        self.listed.append(self.now)
        self.now += 0.1

    def dump(self, _backends: Collection[str]) -> dict[str, bytes]:
        self.dumped.append(self.now)
        return self.recorded

    def last(self, *_: object) -> dict[str, LastCollective]:
        return {"world": LastCollective("all_reduce", None, 1)}


class Watched:
    """A rank in its 5th iteration, whose iterations take `usual_s`; time goes on with `look`."""

    def __init__(self, path: Path, usual_s: float, iterations: int = 4) -> None:
        self.page = PageWriter()
        self._reader = PageReader(os.dup(self.page.fd))
        place = hello(Place("test", rank=0, local_rank=0, world_size=2), "job", Layout())
        self.recorder = Recorder(Link(path, lambda: place), page=self.page)
        self.flight = Flight()
        self.gpu: tuple[int, int] | None = None
        self._began = now() / 1e9
        self.overdue = OverdueIteration(
            self.recorder,
            self.flight,  # type: ignore[arg-type]
            lambda: self.gpu,
            lambda: self._began + self.flight.now,
        )
        # The machine may have started less than an iteration ago: time begins late enough for all of them.
        last = max(now(), round(iterations * usual_s * 1e9))
        for number in range(iterations, 0, -1):
            end = last - round((number - 1) * usual_s * 1e9)
            self.recorder.iteration(end - round(usual_s * 1e9), end)
        self.recorder.outbox.flush()
        self._began = self.recorder.words[STEP_WORD + 1] / 1e9
        self.recorder.counted("world", 8)

    def look(self, at_s: float) -> str:
        """The operation that the page has once the iteration has run so long."""
        self.flight.now = max(at_s, self.flight.now)
        self.overdue.turn({"0": "world"}, {"gloo"})
        (world,) = self.read().collectives
        return world.operation

    def read(self) -> Page:
        return self._reader.read()

    def dump(self) -> Dump | None:
        return self._reader.dump(0)

    def close(self) -> None:
        self._reader.close()
        self.page.close()


@pytest.fixture
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    rank = Watched(tmp_path / "nobody", *getattr(request, "param", (1.0,)))
    yield rank
    rank.close()


@pytest.mark.parametrize(
    ("watched", "limit_s"),
    [((1.0,), 3.0), ((0.01,), 3.0), ((40.0,), 100.0), ((3600.0,), 900.0), ((1.0, 2), 900.0)],
    indirect=["watched"],
)
def test_an_iteration_is_overdue_far_beyond_the_usual(watched: Watched, limit_s: float) -> None:
    """Three seconds at least, 15 minutes at most, or where fewer than three iterations say what is usual."""
    assert [watched.look(at) for at in (limit_s - 2.0, limit_s - 1.0)] == ["", ""]
    assert [watched.look(limit_s + at) for at in (1.0, 2.0)] == ["", "all_reduce"], "two looks that agree"


def test_a_checkpoint_may_take_long(watched: Watched) -> None:
    """Outside training nothing says what is usual."""
    watched.recorder.enter(wire.Activity.CHECKPOINT)
    assert [watched.look(at) for at in (800.0, 801.0, 901.0, 902.0)] == ["", "", "", "all_reduce"]


def test_a_rank_that_goes_on_is_in_nothing(watched: Watched) -> None:
    """Late as the iteration is: what it is in would be another collective by the next scrape."""
    for second in range(10, 20):
        watched.flight.says = {("gloo", 0): Status(second, -1, second - 1)}
        assert watched.look(second) == ""
    assert watched.flight.listed == []


def test_once_the_iteration_ends_the_page_says_nothing(watched: Watched) -> None:
    for second in (10.0, 11.0):
        watched.look(second)
    assert watched.look(12.0) == "all_reduce"
    watched.recorder.iteration(now() - 10**9, now() + 12 * 10**9)
    assert watched.look(13.0) == ""


def test_where_the_gpu_is_goes_to_the_page_once_two_looks_agree(watched: Watched) -> None:
    """And is gone with the iteration."""
    slot = watched.page.phase("forward", wire.Kind.COMPUTE)
    assert slot is not None
    seen = []
    for at, gpu in ((10.0, (slot, 5)), (11.0, (slot, 7)), (12.0, (slot, 7)), (13.0, None)):
        watched.gpu = gpu
        watched.look(at)
        seen.append(watched.read().gpu)
    assert seen == [None, None, OpenSpan("forward", wire.Kind.COMPUTE, 7), None]
    for at in (14.0, 15.0):
        watched.gpu = slot, 7
        watched.look(at)
    assert watched.read().gpu is not None
    watched.recorder.iteration(now() - 10**9, now() + 15 * 10**9)
    watched.look(16.0)
    assert watched.read().gpu is None


def test_a_gpu_that_answers_with_an_error_is_asked_no_more(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    """What torch's recorder knows is told as ever: it is wanted most then."""
    asked: list[float] = []

    def broken() -> None:
        asked.append(watched.flight.now)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    watched.overdue._gpu_is_in = broken
    assert [watched.look(at) for at in (10.0, 11.0, 12.0, 13.0)][-1] == "all_reduce"
    assert len(asked) == 1
    assert watched.read().gpu is None
    assert capsys.readouterr().err.count("where the GPU is, is not asked any more") == 1


def test_entries_are_listed_once_a_hang_and_rarely_otherwise(watched: Watched) -> None:
    """A list of 0.1 s is followed by 30 s without: a late iteration is not made later by more than 0.3 %."""
    for tenth in range(100, 10_000):
        if tenth % 50 == 0:  # it enters another collective every 5 s
            watched.flight.says = {("gloo", 0): Status(tenth, -1, tenth - 1)}
        watched.look(tenth / 10)
    assert 25 <= len(watched.flight.listed) <= 33
    stuck = len(watched.flight.listed) + 1
    watched.flight.says = dict(STATUS)
    for second in range(1010, 5000):
        watched.look(float(second))
    assert len(watched.flight.listed) == stuck


@pytest.mark.parametrize(
    ("watched", "limit_s"),
    [((1.0,), 60), ((40.0,), 200), ((3600.0,), 1800), ((1.0, 2), 1800)],
    indirect=["watched"],
)
def test_all_that_is_recorded_is_kept_once_a_hang_is_certain(watched: Watched, limit_s: int) -> None:
    """When the rules call a job stalled; once of an iteration, however long it hangs."""
    for second in range(limit_s + 1):
        watched.look(float(second))
    assert watched.flight.dumped == []
    assert watched.dump() is None
    for second in range(limit_s + 1, limit_s + 4000):
        watched.look(float(second))
    (at,) = watched.flight.dumped
    assert limit_s < at <= limit_s + 2.1
    dump = watched.dump()
    assert dump is not None
    assert (dump.step, dump.recorders) == (watched.recorder.step, {"nccl": b"all of it"})


def test_a_hang_that_ends_before_it_is_certain_leaves_nothing(watched: Watched) -> None:
    for second in range(10, 60):
        watched.look(float(second))
    watched.recorder.iteration(now() - 10**9, now() + 60 * 10**9)
    for second in range(60, 70):
        watched.look(float(second))
    assert watched.flight.dumped == []


def test_a_late_iteration_in_which_collectives_end_is_no_hang(watched: Watched) -> None:
    """One each 20 s."""
    for second in range(10, 600):
        watched.flight.says = {("gloo", 0): Status(second // 20, -1, second // 20 - 1)}
        watched.look(float(second))
    assert watched.flight.dumped == []


def test_the_next_hang_is_kept_five_minutes_later_at_the_soonest(watched: Watched) -> None:
    for second in range(10, 100):
        watched.look(float(second))
    watched.recorder.iteration(now() - 10**9, now() + 100 * 10**9)
    for second in range(100, 500):
        watched.look(float(second))
    first, second_at = watched.flight.dumped
    assert 300 <= second_at - first <= 302
    dump = watched.dump()
    assert dump is not None and dump.step == watched.recorder.step


@pytest.mark.parametrize(
    ("recorded", "said"),
    [({}, "has nothing: see TORCH_FR_BUFFER_SIZE"), ({"nccl": bytes(DUMP_BYTES)}, "too much for a dump")],
)
def test_where_there_is_nothing_to_keep_that_is_said_once(
    watched: Watched, capsys: pytest.CaptureFixture[str], recorded: dict[str, bytes], said: str
) -> None:
    """Switched off, or more than there is room for."""
    watched.flight.recorded = recorded
    for second in range(10, 100):
        watched.look(float(second))
    assert watched.dump() is None
    assert capsys.readouterr().err.count(said) == 1


def test_where_the_system_has_no_memory_the_page_is_kept_up(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    watched.recorder.keep_dump = full
    assert [watched.look(float(second)) for second in range(10, 100)][-1] == "all_reduce"
    assert capsys.readouterr().err.count("is not kept: [Errno 28]") == 1
