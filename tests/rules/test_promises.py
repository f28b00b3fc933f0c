"""What the rules promise: who is named, of whom nothing is said, and when; shipped files, virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from argus_simulator.fast_play.evaluate import Late
from rules.jobs import ALL_REDUCE, Job, paused, several, slower, uneven
from rules.played import RULES, Told, of, played

pytestmark = pytest.mark.servers
ONSET_S = 840.0
"""A job's own spread is known after ten minutes."""
ALL = slice(None)

JOBS = [
    Job("twin", cluster="x", slow=slower(2, 1.5, ONSET_S)),
    Job("twin", cluster="y", stops_s=ONSET_S),
    Job("small-first", slow=several(slower(1, 1.04, 600), slower(ALL, 1.5, ONSET_S))),
    Job("large-first", slow=several(slower(ALL, 1.5, ONSET_S), slower(1, 1.04, ONSET_S + 300))),
    Job(
        "shrunk",
        ranks=8,
        slow=slower(1, 2.0, ONSET_S),
        until_s=dict.fromkeys((6, 7), 600.0),
    ),
    Job("four", slow=slower(3, 1.15, ONSET_S)),
    Job("pairs", ranks=8, groups=4, slow=slower(5, 1.3, ONSET_S)),
    Job("one-missing", expected=4, ranks=3, slow=slower(0, 2.5, ONSET_S)),
    Job("unknown", waits="unknown", slow=slower(2, 1.5, ONSET_S, np.inf, "forward", "backward")),
    Job(
        "set",
        ranks=16,
        waits="tp",
        sets={rank: f"tp:dp{rank // 4}" for rank in range(16)},
        slow=slower(slice(4, 8), 1.5, ONSET_S, np.inf, "forward", "backward"),
    ),
    Job(
        "large-set",
        ranks=16,
        waits="tp",
        sets=dict.fromkeys(range(16), "tp:all"),
        slow=slower(slice(4, 8), 1.5, ONSET_S, np.inf, "forward", "backward"),
    ),
    Job("uneven-step", slow=paused(1, 7.0, ONSET_S)),
    Job("first-step", slow=paused(2, 60.0, 0)),
    Job("checkpoint", slow=paused(ALL, 30.0, ONSET_S, "optimizer")),
    Job("left", ranks=8, until_s=dict.fromkeys((6, 7), 600.0)),
    Job("constant", slow=slower(0, 1.2, ONSET_S), lasting_s=3600),
    Job(
        "bursts",
        slow=several(*(slower(0, 1.8, ONSET_S + at, ONSET_S + at + 60) for at in range(0, 900, 240))),
    ),
    Job("scraped-twice", slow=slower(2, 1.5, ONSET_S), instances=("host:9877", "host-b:9877")),
    Job("half-a-minute", slow=slower(2, 1.5, ONSET_S), scrape_s=30),
    *(Job(f"at-{at}", slow=slower(2, 1.6, ONSET_S), first_s=at + 0.5, lasting_s=1260) for at in range(15)),
    *(Job(f"pause-{at}", slow=paused(2, 5.0, ONSET_S), first_s=at + 0.5, lasting_s=1260) for at in range(15)),
    Job("crawls", slow=slower(2, 64.0, ONSET_S, np.inf, "forward"), step_s=4, lasting_s=2400),
    Job("long-steps", slow=slower(2, 1.5, ONSET_S), step_s=80, lasting_s=2400),
    *(
        Job(f"{step_s}-by-{scrape_s}", slow=slower(2, 1.5, ONSET_S), step_s=step_s, scrape_s=scrape_s)
        for step_s in (24, 32)
        for scrape_s in (15, 30, 60)
    ),
    Job("long-pause", slow=paused(2, 75.0, ONSET_S), step_s=80, lasting_s=2400),
    Job("long-step", slow=slower(2, 2.0, ONSET_S, ONSET_S + 80), step_s=80, spans=8, lasting_s=2400),
    Job("uneven", slow=uneven(0.4), step_s=4),
    Job("less-uneven", ranks=8, slow=uneven(0.2), step_s=4),
    Job("uneven-many", ranks=32, slow=uneven(0.5)),
    Job("lengths", ranks=32, slow=uneven(0.7), step_s=4, lasting_s=2400),
    Job("uneven-slow", ranks=16, slow=several(uneven(0.3), slower(2, 1.8, ONSET_S)), step_s=4),
    Job("slower-network", slow=slower(ALL, 1.4, ONSET_S, np.inf, ALL_REDUCE), lasting_s=2280),
    Job(
        "network",
        slow=several(
            *(slower(ALL, 2.0, ONSET_S + at, ONSET_S + at + 120, ALL_REDUCE) for at in range(0, 1440, 240))
        ),
        lasting_s=2280,
    ),
]


def play(jobs: Sequence[Job], rules: Sequence[Path], late: Late = "none") -> list[Told]:
    series = [replace(job, seed=number).series() for number, job in enumerate(jobs)]
    return played(series, max(job.lasting_s for job in jobs), ONSET_S, rules, late)


@pytest.fixture(scope="module")
def told() -> list[Told]:
    return play(JOBS, RULES)


def test_two_clusters_with_one_name_are_two_jobs(told: list[Told]) -> None:
    """In one a rank is slow, the other stands still."""
    found = {(one.alertname, one.cluster, one.rank) for one in of(told, "twin")}
    assert found == {("ArgusStragglerRank", "x", "2"), ("ArgusTrainingStalled", "y", "")}


@pytest.mark.parametrize("job", ["small-first", "large-first"])
def test_a_small_culprit_hides_no_large_regression(job: str, told: list[Told]) -> None:
    pages = {one.alertname for one in of(told, job) if one.severity == "page"}
    assert pages == {"ArgusIterationRegression"}


@pytest.mark.parametrize(
    ("job", "rank"),
    [("shrunk", "1"), ("four", "3"), ("pairs", "5"), ("one-missing", "0"), ("scraped-twice", "2")],
)
def test_the_slow_rank_is_named_within_five_minutes_and_nobody_else(
    job: str, rank: str, told: list[Told]
) -> None:
    """Also where the group is small, or smaller than it should be; and never to another team."""
    found = of(told, job)
    assert {(one.alertname, one.rank, one.team) for one in found} == {
        ("ArgusStragglerRank", rank, "operations")
    }
    assert 0 < min(one.begin_s for one in found) <= 300


def test_phases_of_unknown_waits_accuse_nobody(told: list[Told]) -> None:
    assert {one.rank + one.set for one in of(told, "unknown")} <= {""}


def test_ranks_that_wait_for_one_another_are_named_together(told: list[Told]) -> None:
    """Without a rank, by the set's name; all of its ranks lost time alike."""
    found = of(told, "set")
    assert {(one.alertname, one.set, one.rank) for one in found} == {("ArgusStragglerRank", "tp:dp1", "")}
    assert "page" in {one.severity for one in found}


def test_a_set_of_too_many_names_nobody(told: list[Told]) -> None:
    assert {one.rank + one.set for one in of(told, "large-set")} <= {""}


@pytest.mark.parametrize(
    "job",
    [
        *("uneven-step", "first-step", "checkpoint", "left", "long-step"),
        *(f"pause-{at}" for at in range(15)),
    ],
)
def test_what_happens_once_names_nobody(job: str, told: list[Told]) -> None:
    assert of(told, job) == []


def test_a_pause_among_long_steps_names_nobody(told: list[Told]) -> None:
    assert {one.rank for one in of(told, "long-pause")} <= {""}


@pytest.mark.parametrize(("job", "within_s"), [("crawls", 400), ("long-steps", 570)])
def test_a_rank_is_named_though_its_steps_are_long(job: str, within_s: float, told: list[Told]) -> None:
    """Within five steps of 79 s where steps of 4 s were usual, and within six of 93 s; until the end."""
    (found,) = [one for one in of(told, job) if one.alertname != "ArgusTrainingStalled"]
    assert (found.alertname, found.severity, found.rank) == ("ArgusStragglerRank", "page", "2")
    assert found.begin_s <= within_s
    assert found.end_s == pytest.approx(2400 - ONSET_S, abs=30)


@pytest.mark.parametrize("scrape_s", [15, 30, 60])
@pytest.mark.parametrize("step_s", [24, 32])
def test_a_rank_is_named_where_two_minutes_hold_three_steps_at_times(
    step_s: int, scrape_s: int, told: list[Told]
) -> None:
    """Found now and then by the last two minutes, it would be told of by nobody."""
    (found,) = of(told, f"{step_s}-by-{scrape_s}")
    assert (found.alertname, found.severity, found.rank) == ("ArgusStragglerRank", "page", "2")
    assert found.begin_s <= 420
    assert found.end_s == pytest.approx(1800 - ONSET_S + scrape_s, abs=scrape_s + 15)


def test_a_fault_that_lasts_is_one_message(told: list[Told]) -> None:
    (page,) = [one for one in of(told, "constant") if one.severity == "page"]
    assert page.end_s == pytest.approx(3600 - ONSET_S, abs=30)


def test_bursts_are_one_message(told: list[Told]) -> None:
    """A minute of every four."""
    found = [one for one in of(told, "bursts") if one.severity != "info"]
    assert len({(one.severity, one.rank) for one in found}) == len(found)


def test_a_network_that_is_slow_every_other_two_minutes_is_told_throughout(told: list[Told]) -> None:
    """From the second burst on. What explains a regression hides it, so it must be told itself."""
    found = of(told, "network")
    assert {(one.alertname, one.cause) for one in found} == {("ArgusIterationRegression", "fabric")}
    held = [(one.begin_s, one.end_s) for one in found]
    assert all(any(begin <= at <= end + 5 for begin, end in held) for at in range(500, 1440, 5)), held


def test_a_network_slower_by_more_than_chance_is_told_as_such(told: list[Told]) -> None:
    found = of(told, "slower-network")
    assert {(one.alertname, one.severity, one.cause) for one in found} == {
        ("ArgusIterationRegression", "ticket", "fabric")
    }


@pytest.mark.parametrize("job", ["uneven", "less-uneven", "uneven-many", "lengths"])
def test_uneven_work_that_nobody_counts_is_no_slow_network_nor_anybody_slow(
    job: str, told: list[Told]
) -> None:
    """Now one rank comes last and now another, so what they all wait at least wanders by half and more.

    From the first minute on; in `lengths` as much as the lengths of texts differ.
    """
    assert {one.alertname for one in of(told, job)} <= {"ArgusIterationJitter"}


def test_a_rank_is_named_though_the_work_is_uneven(told: list[Told]) -> None:
    found = [one for one in of(told, "uneven-slow") if one.alertname != "ArgusIterationJitter"]
    assert {(one.alertname, one.rank) for one in found} == {("ArgusStragglerRank", "2")}
    assert "page" in {one.severity for one in found}


def test_a_rank_slower_by_half_is_told_within_a_minute_or_so(told: list[Told]) -> None:
    first = min(of(told, "scraped-twice") + of(told, "twin"), key=lambda one: one.begin_s)
    assert first.severity == "info"
    assert first.begin_s <= 75


@pytest.mark.parametrize("at", range(15))
def test_whenever_a_target_is_scraped_its_slow_rank_is_info_and_then_a_page(
    at: int, told: list[Told]
) -> None:
    """Also just before the rules are evaluated, when that scrape is not stored yet."""
    found = sorted(of(told, f"at-{at}"), key=lambda one: one.begin_s)
    assert [(one.severity, one.rank) for one in found] == [("info", "2"), ("page", "2")]
    assert found[0].begin_s <= 60
    assert found[1].begin_s <= 225


SOME = [job for job in JOBS if job.name in ("twin", "set", "small-first", "pairs", "constant")]


def said(told: Sequence[Told], job: str) -> set[tuple[str, ...]]:
    """Of whom, by tickets and pages: an `info` of a few seconds depends on when a group is evaluated."""
    return {
        (one.alertname, one.cluster, one.rank, one.set) for one in of(told, job) if one.severity != "info"
    }


def test_a_foreign_label_on_all_that_is_recorded_changes_nothing(told: list[Told], tmp_path: Path) -> None:
    """Stores of several tenants add one to what they record, others the type to what they scrape."""
    jobs = [replace(job, typed=True) for job in SOME]
    foreign = play(jobs, list(_with_a_foreign_label(tmp_path)))
    for job in {job.name for job in SOME}:
        assert said(foreign, job) == said(told, job)


@pytest.mark.parametrize("late", ["all", "random"])
def test_engines_that_see_records_late_tell_the_same_later(late: Late, told: list[Told]) -> None:
    """vmalert and a stateless Thanos ruler see what was recorded an evaluation ago; no page is withdrawn."""
    found = play(SOME, RULES, late)
    for job in {job.name for job in SOME}:
        assert said(found, job) == said(told, job)
    for page in (one for one in found if one.severity == "page" and one.cluster != "y"):
        assert (
            page.end_s >= min(job.lasting_s for job in SOME if job.name == page.training_job) - ONSET_S - 60
        )


def _with_a_foreign_label(folder: Path) -> Iterator[Path]:
    for file in RULES:
        content: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
        for rule in (rule for group in content["groups"] for rule in group["rules"]):
            if "record" in rule:
                rule["labels"] = rule.get("labels", {}) | {"tenant_id": "a"}
        copy = folder / file.name
        copy.write_text(yaml.safe_dump(content), encoding="utf-8")
        yield copy
