"""Ranks that ARGUS is not attached to, as /proc shows them: real processes, and trees on a made one."""

from __future__ import annotations

import ctypes.util
import logging
import mmap
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.shared_page import PageWriter
from argus_exporter.intake import unattached as subject
from argus_exporter.intake.unattached import UnattachedProcesses
from argus_training.identity import LAUNCHERS
from exporter.exporter_process import config, exporter, scrape, value, wait_for

HZ = os.sysconf("SC_CLK_TCK")
TORCH = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 /opt/torch/lib/libtorch_cpu.so\n"
PAGE = "7f0000002000-7f0000003000 rw-s 00000000 00:01 43 /memfd:argus-page (deleted)\n"


class Host:
    """A /proc of our own; the host is up for an hour."""

    def __init__(self, folder: Path, *, ours: bool = True) -> None:
        self.folder = folder
        (folder / "self" / "ns").mkdir(parents=True)
        (folder / "uptime").write_text("3600.00 7200.00\n")
        self.processes = UnattachedProcesses(lambda: set(), Failures(Log("test")), folder)
        self.processes._sees_host = ours

    def start(
        self, pid: int, parent: int = 1, *, maps: str = "", age_s: float = 1800.0, **variables: object
    ) -> None:
        entry = self.folder / str(pid)
        entry.mkdir()
        environ = "".join(f"{name}={text}\0" for name, text in {"HOME": "/root", **variables}.items())
        (entry / "environ").write_text(environ)
        (entry / "maps").write_text(maps)
        fields = ["S", str(parent), *["0"] * 17, str(int((3600 - age_s) * HZ)), "0"]
        (entry / "stat").write_text(f"{pid} (python (x) 3) {' '.join(fields)}\n")

    def found(self, *connected: int) -> int | None:
        self.processes.look(set(connected))
        return self.processes.count


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "proc")


def test_ranks_are_known_by_the_same_variables_as_in_the_producer() -> None:
    assert tuple(launcher.rank.encode() for launcher in LAUNCHERS) == subject.RANK_VARIABLES


def test_a_rank_with_torch_and_without_us_is_counted_and_said_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is looked at; a later process of the same number is another."""
    host.start(10, RANK=3, maps=TORCH)
    host.start(11, RANK=4, maps=TORCH + PAGE)
    host.start(12, maps=TORCH)
    host.start(13, RANK=5)
    with caplog.at_level(logging.WARNING):
        assert [host.found(), host.found()] == [1, 1]
        shutil.rmtree(host.folder / "10")
        assert host.found() == 0
        host.start(10, RANK=3, maps=TORCH, age_s=1000.0)
        assert host.found() == 1
    assert len([record for record in caplog.records if "not attached" in record.getMessage()]) == 2


def test_what_a_rank_starts_is_its_own(host: Host) -> None:
    """Loaders' workers and compilers inherit the rank: one process a rank is counted, below any shell."""
    host.start(10, RANK=0, maps="")  # bash
    host.start(11, 10, RANK=0, maps=TORCH)
    for worker in range(12, 20):
        host.start(worker, 11, RANK=0, maps=TORCH)
    host.start(20, RANK=1, maps=TORCH + PAGE)
    host.start(21, 20, RANK=1, maps=TORCH)
    assert host.found() == 1


def test_a_launcher_is_no_rank(host: Host) -> None:
    """srun gives torchrun a rank of its own, and torchrun has torch loaded."""
    host.start(10, SLURM_PROCID=0)
    host.start(11, 10, SLURM_PROCID=0, maps=TORCH)
    host.start(12, 11, SLURM_PROCID=0, RANK=0, maps=TORCH + PAGE)
    host.start(13, 11, SLURM_PROCID=0, RANK=1, maps=TORCH)
    assert host.found() == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "x"},
        {"RANK": ""},
        {"ARGUS_DISABLE": 1, "RANK": 0},
        {"ARGUS_DISABLE_PHASES": "yes", "RANK": 0},
    ],
    ids=str,
)
def test_who_is_no_rank_or_is_switched_off_is_not_missed(host: Host, variables: dict[str, object]) -> None:
    host.start(10, maps=TORCH, **variables)
    assert host.found() == 0


def test_a_young_process_may_still_import(host: Host) -> None:
    host.start(10, RANK=0, maps=TORCH, age_s=200.0)
    assert host.found() == 0


def test_who_is_connected_is_attached(host: Host) -> None:
    """By libargus_cupti alone, without a page."""
    host.start(10, RANK=0, maps=TORCH)
    assert host.found(10) == 0


def test_an_attached_process_is_looked_at_once(host: Host) -> None:
    """Reading what a training process has mapped costs a millisecond of its kernel's time."""
    host.start(10, RANK=0, maps=TORCH + PAGE)
    assert host.found() == 0
    (host.folder / "10" / "maps").unlink()
    assert host.found() == 0


def test_a_file_that_is_called_like_the_page_is_none(host: Host, tmp_path: Path) -> None:
    """A FIFO has whoever opens it wait for its writer: it is not opened."""
    host.start(10, RANK=0, maps=TORCH + PAGE)
    fifo = tmp_path / "argus-page"
    os.mkfifo(fifo)
    (host.folder / "10" / "fd").mkdir()
    (host.folder / "10" / "fd" / "3").symlink_to(fifo)
    look = threading.Thread(target=host.found, daemon=True)
    look.start()
    look.join(10)
    assert not look.is_alive()
    assert host.processes.count == 0


def test_what_cannot_be_looked_at_is_silent(host: Host) -> None:
    """Another user's, or gone between two files."""
    host.start(10, RANK=0, maps=TORCH)
    (host.folder / "10" / "stat").unlink()
    host.start(11, RANK=1)
    (host.folder / "11" / "maps").unlink()
    (host.folder / "12").mkdir()
    assert host.found() == 0


def test_an_exporter_that_may_not_look_at_all_says_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user of its own, without CAP_SYS_PTRACE: ranks of others may be there."""
    host.start(10)

    def refused(path: str, *_: object) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(subject, "open", refused, raising=False)
    assert host.found() is None


def test_an_exporter_that_sees_no_host_and_no_rank_says_nothing(tmp_path: Path) -> None:
    """In a container of its own: 0 would look like an answer."""
    host = Host(tmp_path / "proc", ours=False)
    host.start(10, maps=TORCH)
    assert host.found() is None
    host.start(11, RANK=0, maps=TORCH + PAGE)
    assert host.found() == 0, "a sidecar that shares the pod's namespace"


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process with a rank that has a library of that name loaded."""
    source = Path(ctypes.util.__file__)  # any file that can be mapped
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(source.read_bytes())
    program = f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1)"
    process = subprocess.Popen(
        [sys.executable, "-c", program + "; print(1, flush=True); input()"],
        env={"RANK": "7"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_real_processes_look_like_that(rank: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment, parent, age and mappings; and a producer's page under its name."""
    monkeypatch.setattr(subject, "_GRACE_S", -1.0)
    processes = UnattachedProcesses(lambda: set(), Failures(Log("test")))
    processes.look(set())
    assert rank.pid in {process.pid for process in processes._said}
    processes.look({rank.pid})
    assert rank.pid not in {process.pid for process in processes._said}
    page = PageWriter()
    assert f"/memfd:{subject.PAGE}".encode() in processes._maps(os.getpid())
    assert isinstance(page._map, mmap.mmap)


@pytest.mark.parametrize(("step", "times"), [(1, 0), (9, 1)], ids=["prepares its data", "trains"])
def test_who_trains_attached_and_reports_elsewhere_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: int, times: int
) -> None:
    """A real process with a producer's page, which says that iterations have ended."""
    monkeypatch.setattr(subject, "_GRACE_S", -1.0)
    program = f"from argus_core.shared_page import PageWriter; p = PageWriter(); p.step({step})"
    with subprocess.Popen(
        [sys.executable, "-c", program + "; print(1, flush=True); input()"],
        env={"RANK": "7"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        here, elsewhere = (UnattachedProcesses(lambda: set(), Failures(Log("test"))) for _ in range(2))
        with caplog.at_level(logging.WARNING):
            here.look({process.pid})
            for _ in range(2):
                elsewhere.look(set())
        process.kill()
    about = [record.getMessage() for record in caplog.records if f"pid={process.pid} " in record.getMessage()]
    assert len(about) == times
    assert all("does not report to this exporter" in text for text in about)


@pytest.mark.usefixtures("rank")
def test_the_exporter_publishes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gauge of the host, and a line of its log."""
    monkeypatch.setattr(subject, "_GRACE_S", -1.0)
    monkeypatch.setattr(subject, "_PERIOD_S", 0.05)
    name = "argus_exporter_unattached_processes"
    with exporter(config(tmp_path / "exporter.sock")) as running:
        wait_for(lambda: (value(scrape(running.url), name) or 0) >= 1, "the process")
        assert value(scrape(running.url), "argus_exporter_failures_total", loop="processes") == 0
