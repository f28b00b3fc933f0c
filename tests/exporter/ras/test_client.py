"""The RAS client against servers on ports of their own: good ones, old ones, other jobs', and broken ones."""

from __future__ import annotations

import time

import pytest

from argus_exporter.ras.client import TRIES, Address, Patience, RasClient
from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.report import Report
from exporter.ras.answers import Absentee, Group, Job, members
from exporter.ras.fake_ras import FakeRas

OURS = Job([Group(members({0: 7, 1: 6}), [Absentee(2, 4002, unresponsive=True, dead=True)])]).json()
OTHERS = Job([Group(members({0: 1, 1: 1}, first_pid=9000), hash=0xBEEBEA5449E0A7E7)]).json()
QUICK = Patience(connect_s=0.2, reply_s=0.2, collect_s=0, spare_s=0.3)


def is_ours(report: Report) -> bool:
    return any(place.pid == 4001 for place in report.places())


def client(server: FakeRas, unsafe: bool = False, patience: Patience = QUICK) -> RasClient:
    return RasClient(Address("127.0.0.1", server.port), unsafe, patience)


def test_it_says_what_nccl_understands_and_no_more() -> None:
    with FakeRas([OURS]) as server:
        answer = client(server, patience=Patience()).ask(is_ours)
    assert server.asked == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"]
    assert answer.is_own
    assert answer.report.communicators[0].behind() == {"AllReduce": (1,)}


def test_the_broken_json_of_2_28_9_is_an_answer() -> None:
    broken = OURS.replace("2.30.7", "2.28.9").replace('"nvml_dev": 2,', '"nvml_dev": 2')
    with FakeRas([broken]) as server:
        report = client(server).ask(is_ours).report
    assert (report.nccl_version, report.communicators[0].absent[0].rank) == ("2.28.9", 2)


def test_an_answer_may_come_in_pieces() -> None:
    with FakeRas([OURS], piece=1) as server:
        assert client(server, patience=Patience()).ask(is_ours).report.nccl_version == "2.30.7"


def test_a_large_job_is_read() -> None:
    """An answer of 16 MB: 8,192 ranks in four communicators."""
    counts = dict.fromkeys(range(8192), 3)
    text = Job([Group(members(counts), hash=number + 1) for number in range(4)]).json()
    assert len(text) > 16_000_000
    with FakeRas([text]) as server:
        report = client(server, patience=Patience()).ask(is_ours).report
    assert [len(one.present) for one in report.communicators] == [8192] * 4


def test_another_jobs_answer_is_thrown_away_and_the_own_is_found() -> None:
    """The kernel picks who answers at each connection."""
    with FakeRas([OTHERS, OTHERS, OURS]) as server:
        answer = client(server).ask(is_ours)
        assert server.statuses == 3
    assert [one.size for one in answer.report.communicators] == [3]


def test_where_only_another_job_answers_nothing_is_told() -> None:
    with FakeRas([OTHERS]) as server:
        with pytest.raises(RasFailed, match="another job"):
            client(server).ask(is_ours)
        assert server.statuses == TRIES


@pytest.mark.parametrize("command", ["CLIENT PROTOCOL", "TIMEOUT", "SET FORMAT", "STATUS"])
def test_a_server_that_hangs_is_left_in_time(command: str) -> None:
    with FakeRas([OURS], silent_after=command) as server:
        started = time.monotonic()
        with pytest.raises(RasFailed, match=f"did not answer in time .{command}"):
            client(server).ask(is_ours)
        assert time.monotonic() - started < 5


def test_an_answer_that_stops_half_way_is_left_in_time() -> None:
    with (
        FakeRas([OURS], stops_at=200) as server,
        pytest.raises(RasFailed, match=r"in time \(STATUS"),
    ):
        client(server).ask(is_ours)


def test_an_answer_that_drips_has_no_more_time_than_one_that_waits() -> None:
    """The limit is of the whole answer, not of each piece."""
    with FakeRas([" " * 10_000_000], piece=1) as server, pytest.raises(RasFailed, match="did not answer in"):
        client(server).ask(is_ours)


@pytest.mark.parametrize("command", ["CLIENT PROTOCOL", "TIMEOUT", "SET FORMAT", "STATUS"])
def test_a_connection_that_is_closed_is_no_answer(command: str) -> None:
    """Nor is it taken for an old version."""
    with FakeRas([OURS], closes_after=command) as server, pytest.raises(RasFailed, match="closed the conn"):
        client(server).ask(is_ours)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "without an answer"),
        ("ERROR: out of memory\n", "refused: 'ERROR: out of memory'"),
        (OURS[:500], "no JSON"),
        ("\x00\xff" * 500, "no JSON"),
        ("{}", "none of NCCL's RAS"),
        (" " * ((64 << 20) + 1), "larger than 64 MiB"),
    ],
)
def test_garbage_is_no_answer(answer: str, why: str) -> None:
    with FakeRas([answer]) as server, pytest.raises(RasFailed, match=why):
        client(server, patience=Patience()).ask(is_ours)


@pytest.mark.parametrize("hello", ["SSH-2.0-OpenSSH_9.2p1", "220 smtp.example.org", "x" * 5000])
def test_what_is_no_ras_is_not_asked(hello: str) -> None:
    with FakeRas([OURS], hello=hello) as server:
        with pytest.raises(RasFailed, match="is no RAS of NCCL"):
            client(server).ask(is_ours)
        assert server.statuses == 0


def test_localhost_is_tried_in_both_families() -> None:
    """A job may listen on 127.0.0.1 or on ::1; the name has both on many hosts."""
    with FakeRas([OURS]) as server:
        assert RasClient(Address("localhost", server.port), patience=QUICK).ask(is_ours).is_own


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:28028", Address()),
        ("10.0.0.7:4000", Address("10.0.0.7", 4000)),
        ("[::1]:28028", Address("::1", 28028)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "28028", ":28028", "host", "host:", "host:x", "::1:28028", "h:0", "h:65536"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed are 1 to 65535|write HOST:PORT"):
        Address.parse(text)
