"""What is told of ranks whose steps are too long for the windows of the rules."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_exporter.ranks.long_steps import LongSteps
from argus_exporter.ranks.phases import PhaseKey

FORWARD = PhaseKey("forward", "compute", "dp:", "event")


@dataclasses.dataclass
class Rank:
    """Two spans of forward and 1,000 tokens a step."""

    steps: LongSteps = dataclasses.field(default_factory=LongSteps)
    now: float = 5_000.0
    made: int = 0
    spans: int = 0
    seconds: float = 0.0

    def step(self, seconds: float, forward: float) -> None:
        self.now += seconds
        self.made += 1
        self.spans += 2
        self.seconds += forward
        totals = {FORWARD: (self.spans, self.seconds)}
        self.steps.ended(self.now, self.made, seconds, lambda: totals, {"tokens": 1000.0 * self.made})

    def forward(self) -> float | None:
        """Seconds of one span."""
        return self.of(FORWARD)

    def of(self, phase: PhaseKey) -> float | None:
        mean = self.steps.means(self.now).get(phase)
        return None if mean is None else mean.seconds


def test_of_long_steps_the_mean_is_told() -> None:
    rank = Rank()
    for _ in range(8):
        rank.step(60.0, 20.0)
    assert rank.forward() == pytest.approx(10.0)
    assert rank.steps.means(rank.now)[FORWARD].spans_per_second == pytest.approx(2 / 60)
    assert rank.steps.work(rank.now) == {"tokens": pytest.approx(1000.0)}


def test_one_uneven_step_is_left_out() -> None:
    rank = Rank()
    for number in range(8):
        rank.step(60.0, 50.0 if number == 4 else 20.0)
    assert rank.forward() == pytest.approx(10.0)


def test_a_change_is_told_after_two_steps_and_whole_within_ten_minutes() -> None:
    rank = Rank()
    for _ in range(20):
        rank.step(60.0, 20.0)
    told: list[float] = []
    for _ in range(11):
        rank.step(60.0, 30.0)
        told.append(rank.forward() or 0.0)
    assert told[0] == pytest.approx(10.0)
    assert told == sorted(told)
    assert told[1] > 10.0
    assert told[-1] == pytest.approx(15.0)


@pytest.mark.parametrize("seconds", [0.1, 6.0, 19.0, 24.0])
def test_of_shorter_steps_nothing_is_told(seconds: float) -> None:
    rank = Rank()
    for _ in range(40):
        rank.step(seconds, 0.3 * seconds)
    assert rank.forward() is None
    assert rank.steps.work(rank.now) == {}


@pytest.mark.parametrize("every", [3, 20])
def test_nor_of_a_job_with_short_steps_that_makes_long_ones(every: int) -> None:
    rank = Rank()
    for number in range(60):
        rank.step(70.0 if number % every == 0 else 4.0, 1.0)
        assert rank.forward() is None


def test_where_steps_become_long_those_before_count_too() -> None:
    rank = Rank()
    for _ in range(100):
        rank.step(4.0, 2.0)
    rank.step(80.0, 78.0)
    assert rank.forward() is None
    rank.step(80.0, 78.0)
    mean = rank.forward()
    assert mean is not None
    assert 1.0 < mean < 2.0


def test_nor_once_it_steps_fast_again() -> None:
    rank = Rank()
    for _ in range(10):
        rank.step(60.0, 20.0)
    for _ in range(30):
        rank.step(5.0, 1.0)
    assert rank.forward() is None


def test_nor_of_two_steps_and_of_what_has_stood_for_ten_minutes() -> None:
    rank = Rank()
    rank.step(60.0, 20.0)
    rank.step(60.0, 20.0)
    assert rank.forward() is None  # what came before the first is not known
    rank.step(60.0, 20.0)
    assert rank.forward() == pytest.approx(10.0)
    rank.now += 600.0
    assert rank.forward() is None


def test_a_process_that_starts_again_is_not_compared_with_the_one_before() -> None:
    rank = Rank()
    for _ in range(5):
        rank.step(60.0, 20.0)
    rank.made = 0
    rank.step(60.0, 20.0)
    assert rank.forward() is None
    assert rank.steps.work(rank.now) == {}


def test_a_phase_that_is_new_has_two_steps_of_its_own_first() -> None:
    rank, loss = Rank(), PhaseKey("loss", "compute", "dp:", "event")
    for _ in range(6):
        rank.step(60.0, 20.0)
    for number in range(1, 4):
        assert rank.of(loss) is None
        rank.made += 1
        rank.now += 60.0
        totals = {FORWARD: (rank.spans, rank.seconds), loss: (number, 4.0 * number)}
        rank.steps.ended(rank.now, rank.made, 60.0, totals.copy, {})
    assert rank.of(loss) == pytest.approx(4.0)


@given(st.lists(st.tuples(st.floats(40.0, 200.0), st.floats(0.1, 40.0)), min_size=1, max_size=40))
def test_as_by_the_definition(steps: list[tuple[float, float]]) -> None:
    rank = Rank()
    ends = []
    for seconds, forward in steps:
        rank.step(seconds, forward)
        ends.append((rank.now, forward))
    recent = [forward for at, forward in ends if at > rank.now - 600.0][1:]
    if len(recent) < 2:
        assert rank.forward() is None
    else:
        expected = (sum(recent) - max(recent)) / (2 * (len(recent) - 1))
        assert rank.forward() == pytest.approx(expected, rel=1e-6)
