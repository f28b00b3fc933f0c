"""The process that is asked: its address, its NCCL and its pid, from /proc, real and made up."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from argus_exporter.ras.client import Address
from argus_exporter.ras.errors import RasRefused
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.process import JobProcess, process_of
from argus_exporter.ras.versions import Version
from exporter.ras.answers import Absentee, Group, Job, members
from exporter.ras.processes import running

WHEEL = "/venv/lib/python3.12/site-packages"


def made_up(
    proc: Path,
    maps: str = "",
    environment: Mapping[str, str] | None = None,
    nspid: str = "77",
    network: str = "net:[1]",
) -> Path:
    """A /proc with the process 77."""
    for name, net in (("77", network), ("self", "net:[1]")):
        (proc / name / "ns").mkdir(parents=True)
        (proc / name / "ns" / "net").symlink_to(net)
    entries = (f"{name}={value}" for name, value in (environment or {}).items())
    (proc / "77" / "environ").write_text("\0".join(entries))
    (proc / "77" / "status").write_text(f"Name:\tpython\nNSpid:\t{nspid}\n")
    (proc / "77" / "maps").write_text(maps)
    return proc


def mapped(path: str) -> str:
    return (
        "7f00-7f01 r-xp 00000000 00:00 0 \n"
        f"7f12-7f34 r-xp 00000000 08:01 42                         {path}\n"
        f"7f34-7f56 rw-p 00000000 08:01 42                         {path}\n"
    )


def test_address_and_pid_of_a_real_process() -> None:
    with running(NCCL_RAS_ADDR="127.0.0.1:4711") as pid:
        found = process_of(pid)
    assert found == JobProcess(pid, pid, Address("127.0.0.1", 4711), version=None, shares_network=True)


def test_without_a_variable_it_is_nccls_default() -> None:
    with running() as pid:
        assert process_of(pid).address == Address("localhost", 28028)


def test_a_process_whose_ras_is_off_is_refused() -> None:
    with running(NCCL_RAS_ENABLE="0") as pid, pytest.raises(RasRefused, match="NCCL_RAS_ENABLE=0"):
        process_of(pid)


def test_an_address_that_is_none_is_refused() -> None:
    with running(NCCL_RAS_ADDR="28028") as pid, pytest.raises(RasRefused, match="'28028' is no address"):
        process_of(pid)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", socket.gethostname()])
def test_an_address_of_this_host_is_reachable(host: str) -> None:
    with running(NCCL_RAS_ADDR=f"{host}:4711") as pid:
        assert process_of(pid).reachable() == Address(host, 4711)


@pytest.mark.parametrize("host", ["192.0.2.7", "169.254.169.254.example.org", "example.org"])
def test_a_job_cannot_send_us_elsewhere(host: str) -> None:
    """A process of anybody says where its RAS is; it is always on its own host."""
    with running(NCCL_RAS_ADDR=f"{host}:80") as pid, pytest.raises(RasRefused, match="no address of this"):
        process_of(pid).reachable()


def test_an_address_in_another_network_is_not_ours(tmp_path: Path) -> None:
    process = process_of(77, made_up(tmp_path, network="net:[2]"))
    with pytest.raises(RasRefused, match="nsenter --net --target 77"):
        process.reachable()


def test_no_process() -> None:
    with running() as pid:
        pass
    with pytest.raises(RasRefused, match=f"no process {pid} here"):
        process_of(pid)


def test_in_a_container_it_is_known_by_its_inner_pid(tmp_path: Path) -> None:
    """NCCL writes what getpid() says."""
    found = process_of(77, made_up(tmp_path, nspid="77\t5\t3", network="net:[2]"))
    assert (found.known_as, found.shares_network) == (3, False)


@pytest.mark.parametrize(
    ("library", "packages", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2.30.7", (), Version(2, 30, 7)),
        (f"{WHEEL}/nvidia/nccl/lib/libnccl.so.2", ("nvidia_nccl_cu13-2.28.9.dist-info",), Version(2, 28, 9)),
        (f"{WHEEL}/nvidia/nccl/lib/libnccl.so.2", (), None),
        (
            f"{WHEEL}/nvidia/nccl/lib/libnccl.so.2",
            ("nvidia_nccl_cu12-2.27.5.dist-info", "nvidia_nccl_cu13-2.28.9.dist-info"),
            None,
        ),
        ("/usr/lib/libnccl-net.so.2.30.7", (), None),
        ("/usr/lib/libtorch_cuda.so", (), None),
    ],
)
def test_version_of_the_loaded_library(
    tmp_path: Path, library: str, packages: tuple[str, ...], version: Version | None
) -> None:
    """By its file name or by its wheel, as the process sees its files; two wheels tell nothing."""
    proc = made_up(tmp_path, mapped(library))
    for name in packages:
        (proc / "77" / "root" / WHEEL.lstrip("/") / name).mkdir(parents=True)
    assert process_of(77, proc).version == version


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.23.4", "has no RAS"),
        ("2.24.3", "issues 1669, 1718"),
        ("2.27.2", "issues 1669, 1718"),
        ("2.27.3", "issue 1762"),
        ("2.27.7", "issue 1996"),
        ("2.28.3", "issue 2346"),
        ("2.28.6", "issue 2346"),
    ],
)
def test_unsafe_versions_are_refused_by_name(tmp_path: Path, version: str, why: str) -> None:
    process = process_of(77, made_up(tmp_path, mapped(f"/lib/libnccl.so.{version}")))
    with pytest.raises(RasRefused, match=rf"NCCL {version} .*{why}"):
        process.refuse_unsafe(insists=False)


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.29.2", "2.30.7", "3.0.0"])
def test_the_others_are_asked(tmp_path: Path, version: str) -> None:
    process_of(77, made_up(tmp_path, mapped(f"/lib/libnccl.so.{version}"))).refuse_unsafe(insists=False)


def test_insisting_helps_where_there_is_ras(tmp_path: Path) -> None:
    process_of(77, made_up(tmp_path / "a", mapped("/lib/libnccl.so.2.27.7"))).refuse_unsafe(insists=True)
    with pytest.raises(RasRefused, match=r"2\.23\.4 has no RAS"):
        process_of(77, made_up(tmp_path / "b", mapped("/lib/libnccl.so.2.23.4"))).refuse_unsafe(insists=True)


OURS = JobProcess(77, 4001, Address(), None, shares_network=True)


def test_it_is_named_by_its_pid_on_this_host() -> None:
    """Present or absent."""
    assert OURS.is_named_by(parse_json(Job([Group(members({0: 1, 1: 1}))]).json()))
    assert OURS.is_named_by(parse_json(Job([Group(members({0: 1}), [Absentee(1, 4001, dead=True)])]).json()))


def test_another_jobs_answer_does_not_name_it() -> None:
    """Not even where another host has the same pid."""
    assert not OURS.is_named_by(parse_json(Job([Group(members({0: 1, 1: 1}, first_pid=9000))]).json()))
    elsewhere = Job([Group([], [Absentee(1, 4001, host="192.0.2.7")], size=2)]).json()
    assert not OURS.is_named_by(parse_json(elsewhere))
