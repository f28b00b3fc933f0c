"""RAS's JSON: who is absent and why, who is behind, and what is no answer at all."""

from __future__ import annotations

import json

import pytest

from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.report import Absence, Level, Place, Stage
from exporter.ras.answers import HOST, IN_PROGRESS, Absentee, Group, Job, Member, members

ABSENT = (
    Absentee(2, 4002, unresponsive=True),
    Absentee(3, 4003, unresponsive=True, dead=True),
    Absentee(4, 4004),
)


def test_ranks_without_data_are_dead_unresponsive_or_missing() -> None:
    """A dead process is unresponsive too, and told as dead; one that answers without the communicator is
    missing."""
    report = parse_json(Job([Group(members({0: 7, 1: 7}), ABSENT)]).json())
    (communicator,) = report.communicators
    assert [(one.rank, one.absence) for one in communicator.absent] == [
        (2, Absence.UNRESPONSIVE),
        (3, Absence.DEAD),
        (4, Absence.MISSING),
    ]
    assert communicator.absent[1].place == Place(HOST, 4003, gpu=3)
    assert communicator.size == 5


@pytest.mark.parametrize("version", ["2.28.7", "2.28.8", "2.28.9"])
def test_the_comma_that_older_versions_leave_out_is_put_in(version: str) -> None:
    """2.28.7 to 2.28.9 write broken JSON as soon as a rank is absent, and it says the same."""
    text = Job([Group(members({0: 7, 1: 7}), ABSENT)], version).json()
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    fixed = Job([Group(members({0: 7, 1: 7}), ABSENT)], "2.29.2").json()
    assert parse_json(text).communicators == parse_json(fixed).communicators
    assert parse_json(text).nccl_version == version


def test_counts_say_who_is_behind() -> None:
    report = parse_json(Job([Group(members({0: 8, 1: 8, 2: 7, 3: 8}))]).json())
    (communicator,) = report.communicators
    assert communicator.behind() == {"AllReduce": (2,)}
    assert communicator.launches["AllReduce"] == (Level(7, 1, (2,)), Level(8, 3, (0, 1, 3)))
    assert communicator.count_of(2, "AllReduce") == 7
    assert communicator.count_of(2, "AllGather") == 0
    assert communicator.count_of(9, "AllReduce") is None


def test_nobody_is_behind_where_all_launched_the_same() -> None:
    """Also where all of them hang: RAS counts launches, not ends."""
    (communicator,) = parse_json(Job([Group(members({0: 8, 1: 8}))]).json()).communicators
    assert communicator.behind() == {}


def test_stage_and_errors_of_a_rank() -> None:
    """An abort sets the flag of destroying too; work in progress is no error."""
    group = Group(
        [
            Member(0, 10),
            Member(1, 11, init_state=IN_PROGRESS, async_error=IN_PROGRESS),
            Member(2, 12, destroy=True),
            Member(3, 13, finalize=True),
            Member(4, 14, destroy=True, abort=True),
            Member(5, 15, init_state=2),
            Member(6, 16, async_error=6),
        ]
    )
    (communicator,) = parse_json(Job([group]).json()).communicators
    assert [(one.stage, one.init_error, one.async_error) for one in communicator.present] == [
        (Stage.RUNNING, 0, 0),
        (Stage.INIT, 0, 0),
        (Stage.FINALIZE, 0, 0),
        (Stage.FINALIZE, 0, 0),
        (Stage.ABORT, 0, 0),
        (Stage.INIT, 2, 0),
        (Stage.RUNNING, 0, 6),
    ]


def test_a_communicator_that_is_just_being_made_is_left_out() -> None:
    """RAS gives it the size 0 (issue 2346)."""
    report = parse_json(Job([Group([], size=0), Group(members({0: 1, 1: 1}))]).json())
    assert [one.size for one in report.communicators] == [2]


def test_what_ras_does_not_know_of_a_process_is_unknown() -> None:
    """It writes the host "unknown" and the pid -1."""
    group = Group([Member(0, -1, host="unknown")], [Absentee(1, -1, host="", dead=True)])
    (communicator,) = parse_json(Job([group]).json()).communicators
    assert communicator.present[0].place == Place("", None, 0)
    assert communicator.absent[0].place == Place("", None, 1)


def test_a_job_without_communicators_is_an_answer() -> None:
    report = parse_json(Job(timeouts=2).json())
    assert report.communicators == () and report.communicators_count == 0
    assert (report.timeouts, report.collected_s) == (2, 0.012)


GOOD = Job([Group(members({0: 7}), ABSENT)]).json()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("SSH-2.0-OpenSSH_9.2p1\r\n", "no JSON"),
        (GOOD[: len(GOOD) // 2], "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "a list"),
        ("{}", "communicators"),
        ('{"communicators": [], "nccl_version": 2, "communicators_count": 0}', "2 is no text"),
        (GOOD.replace('"AllReduce": 7', '"AllReduce": -7'), "-7 is no count"),
        (GOOD.replace('"AllReduce"', '"\\u001b[2J"'), "is no function"),
        (GOOD.replace('"rank": 0', '"rank": true'), "True is no count"),
        (GOOD.replace('"pid": 4000', '"pid": "4000"'), "are no numbers"),
        (GOOD.replace(HOST, "evil\\u001b[2J"), "is no host"),
        (GOOD.replace("2.30.7", "two"), "no version of NCCL"),
        (GOOD.replace('"0x514e98cf4e44862b"', '"hash"'), "invalid literal"),
        (GOOD.replace('"collective_counts"', '"counts"'), "collective_counts"),
    ],
)
def test_what_is_no_answer_of_ras_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(RasFailed, match=why):
        parse_json(text)
