"""Who reaches the socket and who may speak on it."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.log import Log
from argus_core.log_limiter import LogLimiter
from argus_core.settings import SettingsError, from_mapping
from argus_exporter.config import ExporterConfig
from argus_exporter.intake.config import SocketConfig
from argus_exporter.intake.listener import Access, SocketTaken, access_of, listen
from argus_exporter.ranks.peers import AllowedUsers
from exporter.exporter_process import config, exporter, scrape, value, wait_for

NOBODY = 65534
SPEAK = """
import os, socket, sys
from argus_core import wire
os.setgroups([]); os.setgid(65534); os.setuid(65534)
hello = wire.hello(pid=1, rank=0, training_job="job", monotonic_ns=1, realtime_ns=1)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect(sys.argv[1])
    try:
        connection.send(wire.pack_message(hello.TYPE, hello.pack(), 1, 1, 0))
        sys.stdin.read()
    except OSError:
        pass
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# Modes


def test_by_default_nobody_else_reaches_the_socket(tmp_path: Path):
    """0600 in a folder of 0700."""
    path = tmp_path / "run" / "exporter.sock"
    with listen(path, access_of(SocketConfig())):
        assert (mode(path), mode(path.parent)) == (0o600, 0o700)


def test_allowed_users_reach_the_socket(tmp_path: Path):
    """All may knock; who is there is asked at the door."""
    path = tmp_path / "run" / "exporter.sock"
    with listen(path, access_of(SocketConfig(allowed_users=(NOBODY,)))):
        assert (mode(path), mode(path.parent)) == (0o666, 0o711)


def test_a_group_may_be_the_only_one_to_reach_it(tmp_path: Path):
    """0660, and the folder lets that group through."""
    path = tmp_path / "run" / "exporter.sock"
    mine = grp.getgrgid(os.getgid()).gr_name
    with listen(path, access_of(SocketConfig(allowed_users=(NOBODY,), group=mine))):
        assert (mode(path), mode(path.parent)) == (0o660, 0o710)
        assert path.stat().st_gid == os.getgid()


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Somebody chose it; where the allowed users cannot pass, the log says what to do."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    with listen(folder / "exporter.sock", Access(0o666, 0o711)):
        assert mode(folder) == 0o700
    assert "allowed users cannot reach the socket" in caplog.text
    assert "chmod it to 711" in caplog.text


def test_a_folder_that_anybody_may_write_to_is_refused(tmp_path: Path):
    """Anybody could put a socket of his own in the place of ours."""
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SocketTaken, match=r"every user may write to .* chmod o-w"):
        listen(folder / "exporter.sock", Access(0o600, 0o700))


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path):
    """He could replace the socket."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    os.chown(folder, NOBODY, -1)
    with pytest.raises(SocketTaken, match="belongs to another user"):
        listen(folder / "exporter.sock", Access(0o600, 0o700))


@as_root
def test_a_link_of_another_user_is_refused(tmp_path: Path):
    """It leads to a folder of ours today and to his own tomorrow."""
    (tmp_path / "own").mkdir(mode=0o700)
    folder = tmp_path / "run"
    folder.symlink_to("own")
    os.chown(folder, NOBODY, -1, follow_symlinks=False)
    with pytest.raises(SocketTaken, match=r"run belongs to another user \(uid 65534\)"):
        listen(folder / "exporter.sock", Access(0o600, 0o700))


# Users


def test_names_ids_and_everybody_are_understood():
    """Root and ourselves belong to every list."""
    root = pwd.getpwuid(0).pw_name
    assert [uid in AllowedUsers([4242]) for uid in (0, os.getuid(), 4242, 4243)] == [True, True, True, False]
    assert 4243 in AllowedUsers(["*"])
    assert not AllowedUsers([root, os.getuid()]).others


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"allowed_users": ["no-such-user"]}, r"socket\.allowed_users: there is no user 'no-such-user'"),
        ({"allowed_users": [-1]}, "user id -1 is negative"),
        ({"allowed_users": "train"}, r"socket\.allowed_users must be a list, not 'train'"),
        ({"group": "no-such-group"}, r"socket\.group is 'no-such-group'; allowed: the name of a group"),
        ({"allowed_user": []}, r"did you mean socket\.allowed_users\?"),
    ],
)
def test_wrong_users_are_refused_at_the_start(content: dict[str, object], says: str):
    """Key, value and what is allowed."""
    with pytest.raises(SettingsError, match=says):
        from_mapping(ExporterConfig, {"socket": content}, "exporter.yaml")


def speak(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SPEAK, str(path)], stdin=subprocess.PIPE)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that lets others through: pytest's are its user's own, as each pytest that starts sees to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@as_root
def test_training_as_an_allowed_user_is_served_by_an_exporter_of_root(public: Path):
    """One exporter a host, whoever trains."""
    path = public / "run" / "exporter.sock"
    with exporter(config(path, allowed_users=("nobody",))) as running:
        child = speak(path)
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0", timeout_s=30)
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(timeout=30) == 0


@as_root
def test_a_refused_user_is_counted_and_told_to_the_log_with_what_to_do(
    public: Path, caplog: pytest.LogCaptureFixture
):
    """Once a minute, however often he knocks."""
    path = public / "run" / "exporter.sock"
    with exporter(config(path, allowed_users=(4242,))) as running:
        for _ in range(3):
            child = speak(path)
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(timeout=30) == 0
        rejected = "argus_exporter_rejected_connections_total"
        wait_for(lambda: value(scrape(running.url), rejected, reason="peer_uid") == 3, "three refusals")
        assert value(scrape(running.url), "argus_rank_up", rank="0") is None
    lines = [record.getMessage() for record in caplog.records if "peer_uid" in record.getMessage()]
    assert len(lines) == 1
    assert "user nobody (uid 65534) may not connect" in lines[0]
    assert "add it to socket.allowed_users" in lines[0]


# The log


def test_held_back_lines_are_counted_in_the_next(caplog: pytest.LogCaptureFixture):
    """Each kind for itself."""
    now = 0.0
    limiter = LogLimiter(Log("test"), clock=lambda: now)
    for _ in range(5):
        limiter.warning("a", "first kind")
    limiter.warning("b", "second kind")
    now = 60.0
    limiter.warning("a", "first kind")
    assert [record.getMessage() for record in caplog.records] == [
        'msg="first kind"',
        'msg="second kind"',
        'msg="first kind" more_since_last_line=4',
    ]
