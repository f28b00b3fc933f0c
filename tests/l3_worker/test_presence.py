"""Jobs of which ranks are missing: who is waited for, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from argus_l3_worker.cycle import CycleReport, Worker
from l3_worker.backends import Backend, vector
from l3_worker.cycles import cycles

pytestmark = pytest.mark.servers

ALL = range(20)


@dataclass
class Answers:
    """A job without kernels: which ranks are there, which of them are lost, and how large they say it is."""

    ranks: Iterable[int] = ALL
    lost: Iterable[int] = ()
    size: int | None = None
    asked: list[str] = field(default_factory=list)

    def __call__(self, query: str) -> tuple[int, Any]:
        self.asked.append(query)
        if query.startswith("argus_rank_info"):
            return 200, vector(*map(_sample, self.ranks))
        if query.startswith("argus_rank_up"):
            return 200, vector(*(_sample(rank, "0") for rank in self.lost))
        if query.startswith("max(argus_job_world_size") and self.size is not None:
            return 200, vector({"metric": {}, "value": [0, str(self.size)]})
        if query.startswith("argus_kernel_window_steps"):
            return 200, vector(*(_sample(rank, "0") for rank in self.ranks))
        return 200, vector()


def _sample(rank: int, value: str = "1") -> dict[str, Any]:
    return {"metric": {"training_job": "llm", "rank": str(rank)}, "value": [0, value]}


def played(*stages: tuple[float, dict[str, Any]]) -> list[CycleReport]:
    """One cycle at each Unix time, with what is answered then."""
    answers = Answers()

    async def all_cycles(worker: Worker) -> list[CycleReport]:
        reports = []
        for at, changes in stages:
            for name, value in changes.items():
                setattr(answers, name, value)
            reports.append(await worker.cycle(at, at))
        return reports

    with Backend(answers) as backend:
        found: list[CycleReport] = cycles(backend.url, all_cycles)
    return found


def missing(report: CycleReport) -> list[str]:
    return [one.detail for one in report.abstentions if one.reason == "ranks-missing"]


@pytest.mark.parametrize("how", [{"ranks": range(10)}, {"lost": range(10, 20)}], ids=["unheard", "lost"])
def test_half_of_a_job_is_not_judged_for_half_an_hour_and_then_said(how: dict[str, Any]) -> None:
    """Dead store or dead processes: no window is looked at; after 30 minutes those are who are there."""
    whole, first, still, after = played((0.0, {}), (60.0, how), (1800.0, {}), (1860.0, {}))
    assert (missing(whole), whole.windows_judged > 0) == ([], True)
    for waiting in (first, still):
        assert missing(waiting) == [
            "10 of 20 ranks are missing, and none said that it leaves: does the store hear all exporters?"
        ]
        assert waiting.windows_judged == 0
    assert missing(after) == [
        "10 of 20 ranks are missing for more than 30 minutes: those who are there are judged"
    ]
    assert after.windows_judged > 0


def test_ranks_that_come_back_are_judged_at_once() -> None:
    """And the next time is waited for anew."""
    *_, back, again = played(
        (0.0, {}), (60.0, {"ranks": range(10)}), (120.0, {"ranks": ALL}), (3600.0, {"ranks": range(10)})
    )
    assert (missing(back), back.windows_judged > 0) == ([], True)
    assert missing(again) and again.windows_judged == 0


@pytest.mark.parametrize(("ranks", "said"), [(18, 0), (17, 1)])
def test_a_tenth_of_a_job_is_no_reason_to_wait(ranks: int, said: int) -> None:
    """Two of twenty are a tenth; three are more."""
    _, report = played((0.0, {}), (60.0, {"ranks": range(ranks)}))
    assert len(missing(report)) == said


def test_one_rank_is_no_reason_to_wait() -> None:
    """Though it is a quarter of the job."""
    _, report = played((0.0, {"ranks": range(4)}), (60.0, {"ranks": range(3)}))
    assert missing(report) == []


@pytest.mark.parametrize(("size", "said"), [(20, 1), (10, 0), (None, 1)])
def test_ranks_have_left_where_the_others_say_that_they_are_all(size: int | None, said: int) -> None:
    """A job that went on with half of its ranks, by the size that they say."""
    _, report = played((0.0, {"size": 20}), (60.0, {"ranks": range(10), "size": size}))
    assert len(missing(report)) == said


def test_a_worker_that_starts_in_an_outage_waits_for_ranks_it_never_saw() -> None:
    """Half of the job is there, and says how large it is; nothing says it where no rank tells."""
    half = {"ranks": range(10)}
    first, after = played((0.0, {**half, "size": 20}), (1800.0, {}))
    assert (len(missing(first)), first.windows_judged) == (1, 0)
    assert (len(missing(after)), after.windows_judged > 0) == (1, True)
    (untold,) = played((0.0, half))
    assert (missing(untold), untold.windows_judged > 0) == ([], True)


def test_a_job_is_asked_two_questions_more() -> None:
    """About the lost ones and its size."""
    answers = Answers()
    with Backend(answers) as backend:
        cycles(backend.url, lambda worker: worker.cycle(0.0, 0.0))
    for asked in ("argus_rank_up", "argus_job_world_size"):
        assert sum(asked in query for query in answers.asked) == 1
