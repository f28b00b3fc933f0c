"""RAS's text, from versions that have no JSON and from what people kept: it names outliers only."""

from __future__ import annotations

import pytest

from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.report import Absence, Level, Place, Stage
from argus_exporter.ras.text_answer import parse_text
from exporter.ras.answers import HEALTHY_TEXT, OUTLIERS_TEXT, TEXT_OF_2_24

BIG, SMALL = 0xCF264AF53EDBE986, 0x00A1B2C3D4E5F607


def test_a_healthy_job_has_counted_communicators_and_none_described() -> None:
    report = parse_text(HEALTHY_TEXT)
    assert report.nccl_version == "2.26.2"
    assert report.communicators_count == 3
    assert report.communicators == () and report.from_text


def test_dead_and_unresponsive_processes_are_named() -> None:
    report = parse_text(OUTLIERS_TEXT)
    assert report.dead == (Place("172.16.64.213", 3487985, 6),)
    assert report.unresponsive == (Place("172.16.64.213", 3487984, 5),)
    assert (report.timeouts, report.collected_s) == (2, 2.05)


def test_absent_ranks_have_the_reason_of_their_process() -> None:
    big = parse_text(OUTLIERS_TEXT).communicators[0]
    assert (big.hash, big.size) == (BIG, 32)
    assert {one.rank: one.absence for one in big.absent} == {
        21: Absence.UNRESPONSIVE,
        22: Absence.DEAD,
        23: Absence.UNRESPONSIVE,
        30: Absence.MISSING,
    }
    assert big.absent[2].place == Place()


def test_counts_are_of_groups_of_which_outliers_are_named() -> None:
    big = parse_text(OUTLIERS_TEXT).communicators[0]
    assert big.launches["AllReduce"] == (Level(0, 1, (3,)), Level(6649, 2, (8, 9)), Level(6650, 26, ()))
    assert big.behind() == {"AllReduce": (3,)}
    assert {one.rank: one.stage for one in big.present} == {3: None, 8: Stage.ABORT, 9: Stage.ABORT}


def test_errors_have_nccls_codes() -> None:
    small = parse_text(OUTLIERS_TEXT).communicators[1]
    assert (small.hash, small.size) == (SMALL, 8)
    assert {one.rank: (one.init_error, one.async_error) for one in small.present} == {
        4: (6, 0),
        1: (0, 1),
        2: (0, 1),
    }


def test_before_2_26_all_functions_are_counted_as_one() -> None:
    last = parse_text(TEXT_OF_2_24).communicators[2]
    assert last.behind() == {"collective": (0,)}
    assert last.launches["collective"] == (Level(65, 1, (0,)), Level(66, 3, ()))


def test_before_2_26_absent_ranks_have_numbers_only() -> None:
    """Where no process is missing that is not dead, a rank without data is dead."""
    first, second, third = parse_text(TEXT_OF_2_24).communicators
    assert {one.rank: one.absence for one in first.absent} == {21: Absence.DEAD, 22: Absence.DEAD}
    assert {one.absence for one in second.absent} == {Absence.MISSING}
    assert [one.rank for one in second.absent] == [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15]
    assert [(one.rank, one.absence) for one in third.absent] == [(2, Absence.MISSING)]
    assert second.present[0].stage is Stage.FINALIZE


def test_hosts_may_have_been_named_before_an_answer_was_kept() -> None:
    assert parse_text(TEXT_OF_2_24).dead == (Place("node4", 3487985, 6),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with NCCL's version"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "does not begin with NCCL's version"),
        ("NCCL version x.y\n", "no version of NCCL"),
        (OUTLIERS_TEXT[: OUTLIERS_TEXT.index("Warnings")], "ends early"),
        (OUTLIERS_TEXT.replace("172.16.64.213", "\x1b[2J"), "is no host"),
        (OUTLIERS_TEXT.replace("ABORT\n", "DREAMING\n"), "dreaming"),
    ],
)
def test_what_is_no_answer_of_ras_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(RasFailed, match=why):
        parse_text(text)
