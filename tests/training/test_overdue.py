"""When an iteration is overdue, and when the flight recorder is looked at for it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import STEP_WORD, OpenSpan, Page, PageReader, PageWriter
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

    def status(self, _backends: Collection[str]) -> dict[tuple[str, int], Status]:
        return self.says

    def list_entries(self, _backends: Collection[str]) -> None:
        self.listed.append(self.now)
        self.now += 0.1

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
