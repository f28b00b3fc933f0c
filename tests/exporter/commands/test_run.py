"""`argus-exporter run`: status and signals pass through; the command runs whatever the exporter does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from argus_exporter.commands import run as command
from argus_exporter.commands.run import child_environment
from argus_exporter.ras.client import Address
from argus_training import boot_directory, injector
from stranger import STRANGER, as_root, stranger_listening
from training.reader import Reader, until

WAIT = (
    "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); signal.pause()"
)


def start(
    socket: Path, *command: str, address: str = "127.0.0.1:0", start_new_session: bool = False
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "argus_exporter.cli", "run", "--socket", str(socket)),
            *("--web.listen-address", address, "--", *command),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def told(err: str) -> list[str]:
    """Lines of stderr, without the word on a package that was installed without a compiler."""
    return [line for line in err.splitlines() if "libargus_cupti.so is not installed" not in line]


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-c", program


@pytest.mark.parametrize(
    ("program", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
def test_status_is_the_commands(tmp_path: Path, program: str, status: int) -> None:
    """Also after a signal; one line says where /metrics is, and the exporter is gone afterwards."""
    run = start(tmp_path / "s", *python(program))
    _, err = run.communicate(timeout=60)
    assert run.returncode == status
    (line,) = told(err)
    assert "http://127.0.0.1:" in line
    assert not (tmp_path / "s").exists()


def test_sigterm_is_forwarded(tmp_path: Path) -> None:
    """The command decides how to end."""
    run = start(tmp_path / "s", *python(WAIT))
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 9
    assert not (tmp_path / "s").exists()


COUNTED = """
import signal, sys
seen = []
signal.signal(signal.SIGTERM, lambda *_: (seen.append(1), print("up", flush=True)))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(len(seen)))
print("up", flush=True)
while True: signal.pause()
"""


def test_a_signal_for_all_reaches_the_command_once(tmp_path: Path) -> None:
    """As `timeout`, systemd or Slurm send it: a second one would cut an orderly end short."""
    run = start(tmp_path / "s", *python(COUNTED), start_new_session=True)
    assert run.stdout is not None
    for _ in range(2):
        assert run.stdout.readline() == "up\n"
        os.killpg(run.pid, signal.SIGTERM)
    assert run.stdout.readline() == "up\n"
    run.send_signal(signal.SIGUSR1)  # for the command alone
    run.communicate(timeout=60)
    assert run.returncode == 2
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)  # nothing is left of us


def test_listening_exporter_is_used(tmp_path: Path) -> None:
    """The command takes the place of `run`: same process."""
    with Reader(tmp_path / "s"):
        run = start(tmp_path / "s", *python("import os; print(os.getpid())"))
        out, err = run.communicate(timeout=60)
    assert out == f"{run.pid}\n"
    assert len(told(err)) == 1


def test_command_runs_without_exporter(tmp_path: Path) -> None:
    """An exporter that cannot start is one warning."""
    run = start(tmp_path / "s", *python("print('trained')"), address="nonsense")
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "trained\n")
    (line,) = told(err)
    assert "nonsense" in line


def test_killed_run_takes_its_exporter_along(tmp_path: Path) -> None:
    """No exporter is left behind by SIGKILL; the command itself is not ours to end."""
    run = start(tmp_path / "s", *python(f"import os; print(os.getpid(), flush=True); {WAIT}"))
    assert run.stdout is not None
    command = int(run.stdout.readline())
    try:
        run.kill()
        run.wait()
        until(lambda: not (tmp_path / "s").exists(), "the exporter ends")
    finally:
        os.kill(command, signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "status", "word"),
    [((), 2, "no command"), (("no-such-command",), 127, "not found")],
)
def test_unusable_command_is_one_line(
    tmp_path: Path, command: tuple[str, ...], status: int, word: str
) -> None:
    """2 for none, 127 for one that is not there, as a shell says it."""
    run = start(tmp_path / "s", *command)
    _, err = run.communicate(timeout=60)
    assert run.returncode == status
    (line,) = told(err)
    assert word in line


def test_environment_keeps_the_users_path() -> None:
    """Our folder leads, once; what was there stays in its order."""
    environ = {"PYTHONPATH": os.pathsep.join(("/a", str(boot_directory()), "/b"))}
    child = child_environment(environ, Path("/run/s"), "job")
    assert child["PYTHONPATH"].split(os.pathsep) == [str(boot_directory()), "/a", "/b"]
    assert (child["ARGUS_SOCKET"], child["ARGUS_JOB"]) == ("/run/s", "job")


def test_each_command_has_a_port_of_nccl_s_ras_of_its_own() -> None:
    """Else all jobs of a user on a host listen on one, and any of them answers."""
    given = [child_environment({}, Path("/run/s"), "job")["NCCL_RAS_ADDR"] for _ in range(2)]
    ports = {Address.parse(address).port for address in given}
    assert len(ports) == 2
    assert {Address.parse(address).host for address in given} == {"localhost"}


def test_a_port_of_ras_that_is_set_stays() -> None:
    mine = {"NCCL_RAS_ADDR": "localhost:4711"}
    assert child_environment(mine, Path("/run/s"), "job")["NCCL_RAS_ADDR"] == "localhost:4711"
    assert "NCCL_RAS_ADDR" not in child_environment({"ARGUS_DISABLE": "1"}, Path("/run/s"), "job")


def test_environment_has_all_channels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels by CUDA's injection slot, unless it is taken or kernels are off; stacks come from outside."""
    library = tmp_path / "libargus_cupti.so"
    library.touch()
    monkeypatch.setattr(injector, "library_path", lambda: library)
    child = child_environment({}, Path("/run/s"), None)
    assert child["CUDA_INJECTION64_PATH"] == str(library)
    taken = child_environment({"CUDA_INJECTION64_PATH": "/opt/other.so"}, Path("/run/s"), None)
    assert taken["CUDA_INJECTION64_PATH"] == "/opt/other.so"
    for switch in ("ARGUS_DISABLE", "ARGUS_DISABLE_KERNELS"):
        assert "CUDA_INJECTION64_PATH" not in child_environment({switch: "1"}, Path("/run/s"), None)


def foreign(base: Path) -> Path:
    folder = base / "argus-0"
    folder.mkdir(mode=0o755)
    os.chown(folder, STRANGER, STRANGER)
    return folder


def linked(base: Path) -> Path:
    (base / "elsewhere").mkdir(mode=0o700)
    (base / "argus-0").symlink_to("elsewhere")
    return base / "argus-0"


def writable(base: Path) -> Path:
    folder = base / "argus-0"
    folder.mkdir()
    folder.chmod(0o770)
    return folder


@as_root
@pytest.mark.parametrize("place", [foreign, linked, writable])
def test_nothing_is_written_where_another_user_may_write(
    tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    """Their link would lead to a file of ours: it keeps its content, and the command runs all the same."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("ssh-ed25519 mine")
    folder = place(tmp_path)
    (folder / "exporter.sock.log").symlink_to(precious)
    run = start(folder / "exporter.sock", *python("print('trained')"))
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "trained\n")
    (line,) = told(err)
    assert f"no exporter, the command runs without one: {folder}" in line
    assert precious.read_text() == "ssh-ed25519 mine"
    assert [path.name for path in folder.iterdir()] == ["exporter.sock.log"]


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nor in a folder of our own: what lies there may be older than its mode."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("ssh-ed25519 mine")
    (tmp_path / "exporter.sock.log").symlink_to(precious)
    run = start(tmp_path / "exporter.sock", *python("print('trained')"))
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "trained\n")
    assert precious.read_text() == "ssh-ed25519 mine"


def test_a_log_of_the_job_beside_the_socket_stays(tmp_path: Path) -> None:
    """`--socket train.sock` writes no `train.log`."""
    (tmp_path / "train.log").write_text("three weeks of training")
    run = start(tmp_path / "train.sock", *python("pass"))
    run.communicate(timeout=60)
    assert (tmp_path / "train.log").read_text() == "three weeks of training"
    assert "serving metrics" in (tmp_path / "train.sock.log").read_text()


def test_a_module_of_the_job_is_none_of_the_exporters(tmp_path: Path) -> None:
    """It runs in the job's folder, where `statistics.py` may be anything."""
    (tmp_path / "statistics.py").write_text("raise SystemExit('the statistics of the job')")
    program = str(Path(sys.executable).with_name("argus-exporter"))
    command = [program, "run", "--socket", str(tmp_path / "s")]
    command += ["--web.listen-address", "127.0.0.1:0", "--", *python("print('trained')")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == "trained\n"
    assert "serving http://" in run.stderr


@pytest.mark.parametrize(
    ("named", "own", "hosts", "address", "found"),
    [
        (False, False, True, ":9877", "hosts"),
        (False, True, True, ":9877", "own"),
        (False, False, False, ":9877", "own"),
        (True, False, True, ":9877", "named"),
        (False, False, True, ":9999", "own"),
    ],
)
def test_the_exporter_of_the_host_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
    own: bool,
    hosts: bool,
    address: str,
    found: str,
) -> None:
    """Where nobody listens in the user's own place and no place was named: its port is taken, too."""
    sockets = {name: tmp_path / name / "exporter.sock" for name in ("named", "own", "hosts")}
    monkeypatch.delenv("ARGUS_SOCKET", raising=False)
    monkeypatch.setattr(command, "_HOSTS", sockets["hosts"])
    monkeypatch.setattr(command, "default_socket_path", lambda: sockets["named" if named else "own"])
    if named:
        monkeypatch.setenv("ARGUS_SOCKET", str(sockets["named"]))
    with contextlib.ExitStack() as listening:
        for path in [sockets["own"]] * own + [sockets["hosts"]] * hosts:
            path.parent.mkdir(mode=0o700)
            listening.enter_context(Reader(path))
        assert command._usual_socket(address) == sockets[found]


def test_run_and_the_boot_folder_agree_on_the_hosts_place() -> None:
    boot = (boot_directory() / "_argus_boot.py").read_text(encoding="utf-8")
    assert f'"{command._HOSTS}",' in boot


@as_root
def test_a_strangers_exporter_is_not_used(tmp_path: Path) -> None:
    """Whoever made /tmp/argus-UID before us and listens there learns nothing of the training."""
    with stranger_listening(tmp_path, (0, 0o1777), (STRANGER, 0o755)) as path:
        run = start(path, *python("print('trained')"))
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "trained\n")
    (line,) = told(err)
    assert "belongs to another user (uid 4242)" in line
