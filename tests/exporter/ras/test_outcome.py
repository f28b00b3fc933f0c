"""What an answer tells of a job: in the job's own ranks, as far as they are known, and within limits."""

from __future__ import annotations

from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.outcome import MOST_RANKS, Outcome, outcome_of
from argus_exporter.ras.report import Absence
from exporter.ras.answers import IN_PROGRESS, Absentee, Group, Job, Member, members

FAR = "192.0.2.7"
HERE = {4000: 0, 4001: 1}
"""Pids and ranks on this host; members() gives rank r the pid 4000 + r."""


def outcome(
    groups: list[Group], world_size: int = 4, known: dict[int, int] = HERE, *, again: bool = True
) -> Outcome:
    report = parse_json(Job(groups).json())
    return outcome_of(report, report if again else None, 1e9, world_size, known)


def world(last: Member | Absentee) -> Group:
    """The communicator of all four ranks; the last two run on another host."""
    three = [*members({0: 7, 1: 7}), Member(2, 5002, 7, host=FAR)]
    return Group([*three, last]) if isinstance(last, Member) else Group(three, [last])


def test_a_rank_of_another_host_has_its_number_from_the_communicator_of_all() -> None:
    found = outcome([world(Absentee(3, 5003, unresponsive=True, dead=True, host=FAR))])
    assert found.absent_ranks == {3: Absence.DEAD}
    assert found.absent == {Absence.DEAD: 1, Absence.UNRESPONSIVE: 0, Absence.MISSING: 0}


def test_of_a_group_the_members_are_known_by_host_and_pid() -> None:
    """Rank 1 of a group of three is rank 3 of the job."""
    group = Group([Member(0, 4001, 9), Member(1, 5003, 8, host=FAR), Member(2, 5002, 9, host=FAR)], hash=2)
    assert outcome([group, world(Member(3, 5003, 7, host=FAR))]).lacks == {(3, "AllReduce"): 1}


def test_without_a_communicator_of_all_only_this_host_is_known() -> None:
    """The others are counted and not named."""
    absent = [Absentee(1, 4001, dead=True), Absentee(2, 5003, dead=True, host=FAR)]
    found = outcome([Group([Member(0, 4000, 9)], absent)])
    assert found.absent_ranks == {1: Absence.DEAD}
    assert found.absent[Absence.DEAD] == 2


def test_a_communicator_that_numbers_this_hosts_ranks_otherwise_is_not_believed() -> None:
    found = outcome([world(Absentee(3, 5003, dead=True, host=FAR))], known={4000: 1, 4001: 0})
    assert found.absent_ranks == {}
    assert found.absent[Absence.DEAD] == 1


def test_the_same_pid_on_another_host_is_another_process() -> None:
    found = outcome([Group([Member(0, 4000, 9)], [Absentee(1, 4001, dead=True, host=FAR)])])
    assert found.absent_ranks == {}


def test_of_two_hosts_with_link_local_addresses_neither_is_taken_for_this_one() -> None:
    """Without its scope such an address is nobody's, and containers have the same pids."""
    here, there = "fe80::1", "fe80::2"
    one = Member(0, 4000, 9, host=here)
    alone = outcome([Group([one], [Absentee(1, 4001, dead=True, host=here)])])
    assert alone.absent_ranks == {1: Absence.DEAD}
    both = outcome([Group([one], [Absentee(1, 4001, dead=True, host=there)])])
    assert both.absent_ranks == {}


def test_of_several_communicators_the_worst_is_told() -> None:
    """Dead in one, missing in the next, in either order."""
    dead = Group([Member(0, 4000, 1)], [Absentee(1, 4001, unresponsive=True, dead=True)], hash=1)
    missing = Group([Member(0, 4000, 1)], [Absentee(1, 4001)], hash=2)
    for groups in ([dead, missing], [missing, dead]):
        assert outcome(groups).absent_ranks == {1: Absence.DEAD}


def test_the_first_answer_says_nothing_of_who_is_behind() -> None:
    """Counts of a running job differ for moments."""
    group = [Group(members({0: 7, 1: 6, 2: 7}))]
    assert outcome(group, again=False).lacks == {}
    assert outcome(group).lacks == {(1, "AllReduce"): 1}


def test_most_or_half_of_a_communicator_lack_nothing_that_one_alone_has_launched() -> None:
    """They may have called what NCCL does not count, such as an all-to-all, and that one something else."""
    assert outcome([Group(members({0: 7, 1: 6}))]).lacks == {}
    assert (
        outcome([Group(members({0: 7, 1: 6, 2: 6, 3: 6}))], known={4000 + n: n for n in range(4)}).lacks == {}
    )


def test_who_has_met_an_error_is_told_with_it() -> None:
    """In whichever communicator; one that NCCL has added since has no name."""
    failed = Group([Member(0, 4000, 1, async_error=6), Member(1, 4001, 1)], hash=1)
    unknown = Group([Member(0, 4000, 1), Member(1, 4001, 1, async_error=99)], hash=2)
    in_progress = Group([Member(0, 4000, 1, async_error=IN_PROGRESS)], hash=3)
    assert outcome([failed, unknown, in_progress]).errors == {0: "remote process error", 1: "unknown"}
    many = [Member(rank, 4000 + rank, 1, async_error=2) for rank in range(100)]
    found = outcome([Group(many)], world_size=100)
    assert list(found.errors) == list(range(MOST_RANKS))


def test_names_are_few_and_counts_are_whole() -> None:
    absent = [Absentee(rank, 4000 + rank, unresponsive=True) for rank in range(1, 100)]
    found = outcome([Group(members({0: 7}), absent)], world_size=100)
    assert list(found.absent_ranks) == list(range(1, 1 + MOST_RANKS))
    assert found.absent[Absence.UNRESPONSIVE] == 99
