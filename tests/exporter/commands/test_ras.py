"""`argus-exporter ras` against a fake RAS server: what people read, what machines read, and how it fails."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from argus_exporter.cli import main
from argus_exporter.commands import ras
from argus_simulator.stack.ports import free_port
from exporter.ras.answers import HEALTHY_TEXT, OUTLIERS_TEXT, Absentee, Group, Job, Member, members
from exporter.ras.fake_ras import FakeRas
from exporter.ras.processes import running

HASH = 0x514E98CF4E44862B


def job(counts: dict[int, int], absent: Sequence[Absentee] = (), version: str = "2.30.7") -> str:
    """With this test as one of its processes: the rank 0."""
    mine = Member(0, os.getpid(), counts.pop(0))
    return Job([Group([mine, *members(counts)], absent, HASH)], version).json()


def asks(server: FakeRas, *options: str) -> int:
    return main(["ras", "--address", f"127.0.0.1:{server.port}", *options])


def own(*options: str) -> tuple[str, ...]:
    return ("--pid", str(os.getpid()), *options)


ABSENT = (
    Absentee(4, 4004, unresponsive=True, dead=True),
    Absentee(5, 4005, unresponsive=True),
    Absentee(6, 4006),
)


def test_it_says_who_is_absent_and_who_is_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([job({0: 8, 1: 8, 2: 7, 3: 8}, ABSENT)]) as server:
        assert asks(server, *own()) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "NCCL 2.30.7, 1 communicator; processes: 1 dead, 1 unresponsive, 1 missing; launches differ in 1 "
        "communicator (RAS needed 0.012 s)",
        "",
        "communicator 0x514e98cf4e44862b, 7 ranks",
        "  rank 4 dead (pid 4004 on 127.0.0.1, GPU 4)",
        "  rank 5 does not answer (pid 4005 on 127.0.0.1, GPU 5)",
        "  rank 6 missing: its process answers, but not of this communicator (pid 4006 on 127.0.0.1, GPU 6)",
        "  AllReduce: 7 launched by rank 2",
        "  AllReduce: 8 launched by ranks 0-1,3",
        "  behind in AllReduce: rank 2 (pid 4002 on 127.0.0.1, GPU 2)",
        "",
        "Counts of a running job differ for moments: --again tells whether they move.",
    ]
    assert err == ""


def test_a_healthy_job_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([job({0: 8, 1: 8})]) as server:
        assert asks(server, *own()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NCCL 2.30.7, 1 communicator; nobody is absent; all have launched the same (RAS needed 0.012 s)",
        "",
        "communicator 0x514e98cf4e44862b, 2 ranks: launched by all alike: AllReduce 8",
    ]


def test_errors_and_stages_of_ranks_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    group = Group([Member(0, 10, 1), Member(1, 11, 1, async_error=6), Member(2, 12, 1, abort=True)])
    with FakeRas([Job([group]).json()]) as server:
        assert asks(server, "--communicator", f"{HASH:#x}") == 0
    out = capsys.readouterr().out
    assert "  rank 1 has failed: remote process error (pid 11 on 127.0.0.1, GPU 1)\n" in out
    assert "  rank 2 is in abort (pid 12 on 127.0.0.1, GPU 2)\n" in out


def test_a_large_job_is_cut_for_people_and_whole_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    absent = [Absentee(rank, 4000 + rank, unresponsive=True) for rank in range(1, 1000)]
    with FakeRas([job({0: 8}, absent)]) as server:
        assert asks(server, *own()) == 0
        people = capsys.readouterr().out
        assert asks(server, *own("--json")) == 0
        machines = json.loads(capsys.readouterr().out)
    assert "  ... and 979 more like it (--json has all)\n" in people
    assert len(people.splitlines()) < 30
    assert len(machines["communicators"][0]["absent"]) == 999


def test_json_has_counts_by_rank_and_function(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([job({0: 8, 1: 7}, ABSENT[:1])]) as server:
        assert asks(server, *own("--json")) == 0
    (communicator,) = json.loads(capsys.readouterr().out)["communicators"]
    assert communicator["hash"] == "0x514e98cf4e44862b"
    assert communicator["launches"]["AllReduce"] == [
        {"count": 7, "size": 1, "ranks": [1]},
        {"count": 8, "size": 1, "ranks": [0]},
    ]
    assert communicator["behind"] == {"AllReduce": [1]}
    assert communicator["absent"] == [
        {"rank": 4, "place": {"host": "127.0.0.1", "pid": 4004, "gpu": 4}, "absence": "dead"}
    ]


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({0: 8, 1: 7}, "Nothing was launched for 0 s where ranks differ: 0x514e98cf4e44862b"),
        ({0: 9, 1: 8}, "they have launched since, or differ no more"),
        ({0: 8, 1: 8}, "they have launched since, or differ no more"),
    ],
)
def test_asked_again_it_tells_whether_counts_move(
    later: dict[int, int], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ras, "AGAIN_AFTER_S", 0.0)
    with FakeRas([job({0: 8, 1: 7}), job(dict(later))]) as server:
        assert asks(server, *own("--again")) == 0
        assert server.statuses == 2
    assert said in capsys.readouterr().out


def test_of_those_behind_it_names_who_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rank 1 hangs; the rank 0 waits for it in a group of both, and so is behind in its other group."""
    monkeypatch.setattr(ras, "AGAIN_AFTER_S", 0.0)
    here = os.getpid()
    together = Group([Member(0, here, 5), Member(1, 4001, 4)], hash=1)
    across = Group([Member(0, here, 2), Member(1, 4002, 3)], hash=2)
    with FakeRas([Job([together, across]).json()]) as server:
        assert asks(server, *own("--again")) == 0
        assert "  the others wait for pid 4001 on 127.0.0.1, GPU 1, which lacks 1 AllReduce" in (
            said := capsys.readouterr().out
        )
        assert said.count("the others wait for") == 1
        assert asks(server, *own("--again", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["waited_for"] == [
        {"host": "127.0.0.1", "pid": 4001, "gpu": 1, "lacks": {"AllReduce": 1}}
    ]


def test_the_address_is_that_of_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    """A process of the job has NCCL_RAS_ADDR from its launcher."""
    with FakeRas() as server, running(NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid:
        server.answers = [Job([Group([Member(0, pid, 3), Member(1, 4001, 3)])]).json()]
        assert main(["ras", "--pid", str(pid)]) == 0
    assert "AllReduce 3" in capsys.readouterr().out


def test_without_a_process_it_says_that_the_job_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([job({0: 8})]) as server:
        assert asks(server) == 0
    out, err = capsys.readouterr()
    assert "NCCL 2.30.7" in out
    assert err.endswith("is not known: name its process by --pid\n")


def test_another_jobs_answer_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([Job([Group(members({0: 1, 1: 1}, first_pid=2_000_000_000))]).json()]) as server:
        assert asks(server, *own()) == 1
    out, err = capsys.readouterr()
    assert out == "" and "another job" in err


def test_a_communicator_must_be_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([job({0: 8})]) as server:
        assert asks(server, "--communicator", "0x1") == 1
    assert "another job" in capsys.readouterr().err


def test_an_old_version_is_refused_and_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([OUTLIERS_TEXT], knows_json=False) as server:
        assert asks(server) == 2
        assert server.statuses == 0
    assert "older than 2.28.7" in capsys.readouterr().err


def test_who_insists_gets_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRas([OUTLIERS_TEXT], knows_json=False) as server:
        assert asks(server, *own("--unsafe")) == 0
    out, err = capsys.readouterr()
    assert out.startswith("NCCL 2.26.2, 2 communicators; processes: 1 dead, 2 unresponsive, 1 missing; ")
    assert "process dead: pid 3487985 on 172.16.64.213, GPU 6\n" in out
    assert "  AllReduce: 6650 launched by 26 ranks\n" in out
    assert "  behind in AllReduce: rank 3 (pid 3487970 on 172.16.64.211, GPU 3)\n" in out
    assert "it is text, which names outliers only" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (Job([Group(members({0: 8, 1: 8}))]).json(), "all have launched the same"),
        (OUTLIERS_TEXT, "launches differ in 1 communicator"),
        (HEALTHY_TEXT, "3 communicators without a remark; text names outliers only"),
    ],
)
def test_a_kept_answer_is_read(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").write_text(text)
    assert main(["ras", "--answer", str(tmp_path / "kept")]) == 0
    assert said in capsys.readouterr().out


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["ras", "--address", f"127.0.0.1:{port}"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"argus-exporter: nobody listens at 127.0.0.1:{port}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "28028"], "is no address"),
        (["--communicator", "mine"], "is no hash"),
        (["--answer", "/nowhere/kept"], "cannot be read"),
        (["--answer", "kept", "--pid", "1"], "--answer asks nobody"),
        (["--pid", "2000000000"], "there is no process 2000000000 here"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["ras", *options])
    except SystemExit as ended:
        status = int(str(ended.code))
    err = capsys.readouterr().err
    assert status == 2
    assert said in err and err.count("\n") == 1
