"""What two answers tell together: where nothing moves, and whom the others wait for."""

from __future__ import annotations

from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.report import Report, stuck, waited_for
from argus_exporter.ras.text_answer import parse_text
from exporter.ras.answers import OUTLIERS_TEXT, Group, Job, Member


def report(*groups: dict[int, int]) -> Report:
    """Communicators by the launches of their members' processes; the rank is the place in the group."""
    return parse_json(
        Job(
            [
                Group(
                    [
                        Member(rank, pid, count, gpu=pid % 8)
                        for rank, (pid, count) in enumerate(group.items())
                    ],
                    hash=1 + at,
                )
                for at, group in enumerate(groups)
            ]
        ).json()
    )


def hung(*groups: dict[int, int]) -> dict[int | None, dict[str, int]]:
    """By pid: whom the others wait for where this is what two answers say."""
    answer = report(*groups)
    return {place.pid: lacks for place, lacks in waited_for(answer, answer).items()}


def test_stuck_is_where_ranks_differ_and_nobody_has_launched_anything() -> None:
    before = report({10: 5, 11: 4}, {12: 5, 13: 4}, {14: 5, 15: 5})
    after = report({10: 5, 11: 4}, {12: 6, 13: 4}, {14: 5, 15: 5})
    assert [one.hash for one in stuck(before, after)] == [1]


def test_a_communicator_that_is_new_is_not_stuck() -> None:
    assert stuck(report(), report({10: 5, 11: 4})) == ()


def test_who_has_launched_least_is_waited_for() -> None:
    assert hung({10: 5, 11: 5, 12: 3}) == {12: {"AllReduce": 2}}


def test_who_is_behind_the_first_waits_for_the_last() -> None:
    """What 11 has launched last cannot end without 12."""
    assert hung({10: 5, 11: 4, 12: 3}) == {12: {"AllReduce": 2}}


def test_who_waits_elsewhere_is_not_waited_for() -> None:
    """10 waits for 11, so it is late for 20."""
    assert hung({10: 5, 11: 4}, {10: 2, 20: 3}) == {11: {"AllReduce": 1}}


def test_two_that_wait_for_each_other_are_both_told_of_nobody() -> None:
    """A deadlock by order: each has launched what the other has not."""
    assert hung({10: 5, 11: 4}, {10: 2, 11: 3}) == {}


def test_who_has_launched_something_elsewhere_does_not_hang() -> None:
    """A communicator that is no longer used may have been left with unequal counts."""
    before = report({10: 5, 11: 4}, {11: 8, 30: 8})
    after = report({10: 5, 11: 4}, {11: 9, 30: 8})
    assert [one.hash for one in stuck(before, after)] == [1]
    assert waited_for(before, after) == {}


def test_text_names_nobody_as_it_does_not_say_who_else_waits() -> None:
    answer = parse_text(OUTLIERS_TEXT)
    assert [one.size for one in stuck(answer, answer)] == [32]
    assert waited_for(answer, answer) == {}
