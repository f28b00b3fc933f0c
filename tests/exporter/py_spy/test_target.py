"""Only the process at the other end of the socket is sampled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argus_exporter.py_spy.target import NotTraceable, Process, is_self, process_of

OURS = frozenset({0, os.getuid()})


def fake_proc(tmp_path: Path, pid: int, *, started: int = 5, pids: str = "", uids: str = "0 0 0 0") -> Path:
    folder = tmp_path / str(pid)
    folder.mkdir()
    fields = ["S"] + ["0"] * 18 + [str(started)]
    (folder / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)} 0 0\n")
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uids}\n{f'NSpid:{chr(9)}{pids}' if pids else ''}\n")
    return tmp_path


def test_a_peer_that_names_itself_is_found() -> None:
    """This very process, from the real /proc."""
    process = process_of(os.getpid(), os.getpid(), OURS)
    assert process.pid == os.getpid()
    assert process.is_alive()
    assert is_self(process.pid)


def test_a_peer_in_a_container_names_its_inner_pid(tmp_path: Path) -> None:
    """NSpid ties the two."""
    proc = fake_proc(tmp_path, 4711, pids="4711\t12")
    assert process_of(4711, 12, OURS, proc) == Process(4711, 5, OURS)


def test_an_invisible_peer_is_refused_with_what_to_do() -> None:
    """SO_PEERCRED gives 0 across pid namespaces."""
    with pytest.raises(NotTraceable, match="shareProcessNamespace") as refused:
        process_of(0, 12, OURS)
    assert refused.value.reason == "other_pid_namespace"


def test_a_peer_that_is_gone_is_told_apart(tmp_path: Path) -> None:
    """No /proc entry."""
    with pytest.raises(NotTraceable) as refused:
        process_of(4711, 4711, OURS, tmp_path)
    assert refused.value.reason == "target_gone"


def test_a_later_process_with_the_same_pid_is_another(tmp_path: Path) -> None:
    """Told by its start."""
    proc = fake_proc(tmp_path, 4711, started=6)
    assert not Process(4711, 5, OURS).is_alive(proc)
    assert Process(4711, 6, OURS).is_alive(proc)


def test_a_process_that_has_become_another_user_s_is_left_alone(tmp_path: Path) -> None:
    """It connected, and then ran a setuid program: same pid, same start, not its owner's to show."""
    proc = fake_proc(tmp_path, 4711, uids="1000 0 0 0")
    with pytest.raises(NotTraceable) as refused:
        process_of(4711, 4711, frozenset({1000}), proc)
    assert refused.value.reason == "owner_mismatch"
    assert not Process(4711, 5, frozenset({1000})).is_alive(proc)
