"""`argus-exporter run -- COMMAND`: a training command with ARGUS attached to every rank it starts.

The command's environment gets our boot folder in front of PYTHONPATH (see argus_training/boot). Where an
exporter listens on the socket already, the command replaces this process; else one is started for the time of
the command. The training process is sacred: whatever fails here, the command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket as sockets
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from argus_core import settings_file
from argus_core.link import default_socket_path, stranger
from argus_training import boot_directory, injector, settings

NOT_USABLE = 2
NOT_FOUND = 127
NOT_EXECUTABLE = 126

_ELSEWHERE = "name another place with --socket"
_ADDRESS = ":9877"
_HOSTS = Path("/run/argus/exporter.sock")
"""Where the exporter of the host listens. Twin: PLACES in argus_training/boot/_argus_boot.py."""
_START_LIMIT_S = 20.0
"""How long an exporter may take until it listens: its imports from a cold network disk."""
_STOP_LIMIT_S = 5.0
_WITNESS_S = 0.5
"""How long a signal that came to us is waited for elsewhere: Slurm sends it to one after another."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80
_PR_SET_PDEATHSIG = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "argus-exporter run [options] -- COMMAND [ARGUMENT ...]"
    parser.description = (
        "Runs COMMAND with ARGUS attached to every rank it starts. Uses the exporter that listens on the "
        "socket, or starts one for the time of the command. Returns COMMAND's exit status."
    )
    parser.add_argument(
        "--socket",
        type=Path,
        help=f"socket of the exporter (default: $ARGUS_SOCKET, or a private folder, or {_HOSTS} where only "
        "the host's exporter listens)",
    )
    parser.add_argument(
        "--web.listen-address",
        dest="listen_address",
        default=_ADDRESS,
        metavar="HOST:PORT",
        help="where an exporter started here serves /metrics (default: %(default)s)",
    )
    parser.add_argument("--job", help="name of the training job (default: from the scheduler or the script)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status is the result, 128 + n when signal n ended it."""
    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not argv:
        return _refuse(
            "no command given; write it after --, as in: argus-exporter run -- torchrun train.py", NOT_USABLE
        )
    path = (options.socket or _usual_socket(options.listen_address)).absolute()
    environment = child_environment(os.environ, path, options.job)
    program = shutil.which(argv[0])
    if program is None:
        there = os.sep in argv[0] and Path(argv[0]).exists()
        return (
            _refuse(f"{argv[0]} is not executable; check its mode", NOT_EXECUTABLE)
            if there
            else _refuse(f"command {argv[0]!r} not found; check the spelling and PATH", NOT_FOUND)
        )
    if _is_listening(path):
        _say(f"reporting to the exporter on {path}")
        try:
            os.execve(program, argv, environment)
        except OSError as error:
            return _refuse(f"cannot run {program}: {error.strerror}", NOT_EXECUTABLE)
    with _exporter(path, options.listen_address):
        return _supervise(program, argv, environment)


def child_environment(environ: Mapping[str, str], socket: Path, job: str | None) -> dict[str, str]:
    """The command's environment: ours in front of PYTHONPATH, where to report, the kernels' library, and
    where NCCL's RAS listens.

    Stacks need nothing: the exporter takes them from outside.
    """
    boot = str(boot_directory())
    paths = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != boot]
    environment = {**environ, "PYTHONPATH": os.pathsep.join((boot, *paths)), "ARGUS_SOCKET": str(socket)}
    environment.pop("ARGUS_PRODUCER_PID", None)
    if job:
        environment["ARGUS_JOB"] = job
    wanted, _ = settings.read(environment, settings_file.beside(str(socket)))
    if wanted.disable:
        return environment
    environment = _ras_address() | environment
    if wanted.disable_kernels:
        return environment
    kernels, reason = injector.environment(environment, injector.library_path())
    if reason:
        _say(reason)
    return environment | kernels


def _ras_address() -> dict[str, str]:
    """A port of this command's own, so that no other job's RAS answers for it.

    Its ranks share it: NCCL listens with SO_REUSEPORT (client_support.cc). Free now, it may be taken when
    NCCL comes up; what NCCL does then has not been seen.
    """
    with contextlib.suppress(OSError), sockets.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"NCCL_RAS_ADDR": f"localhost:{free.getsockname()[1]}"}
    return {}


@contextlib.contextmanager
def _exporter(path: Path, listen_address: str) -> Iterator[None]:
    """An exporter of our own while the block runs; a warning instead where it cannot start."""
    try:
        log = path.with_name(f"{path.name}.log")  # train.log beside train.sock is the job's
        exporter = _start_exporter(path, listen_address, log)
    except OSError as error:
        _say(f"no exporter, the command runs without one: {error}")
        yield
        return
    try:
        yield
    finally:
        _stop(exporter)


def _open_log(log: Path) -> int:
    """A new log, in the folder that the socket will be in, made where it is missing.

    Raises:
        OSError: another user may write to the folder, and could lead what we write to any file of ours.
    """
    folder = log.parent
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    if folder.is_symlink():  # for the message; O_NOFOLLOW is what nobody can outrun
        raise OSError(f"{folder} is a symbolic link; {_ELSEWHERE}")
    opened = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(opened)
        if status.st_uid != os.getuid():
            raise OSError(f"{folder} belongs to another user (uid {status.st_uid}); {_ELSEWHERE}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(f"{folder} can be written to by others; {_ELSEWHERE}, or: chmod go-w {folder}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log.name, dir_fd=opened)
        return os.open(log.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=opened)
    finally:
        os.close(opened)


def _start_exporter(path: Path, listen_address: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the exporter and wait until it serves.

    Raises:
        OSError: it cannot be started, ended at once, or did not get ready in time.
    """
    # -P: what lies in the working folder is the job's, and may be called as what the exporter imports.
    command = [sys.executable, "-P", "-m", "argus_exporter.cli", "serve", "--socket", str(path)]
    command += ["--web.listen-address", listen_address]
    with os.fdopen(_open_log(log), "wb") as output:
        exporter = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A session of its own: Ctrl-C is for the training, which still reports while it ends.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    limit = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < limit:
        if exporter.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"it ended with status {exporter.returncode}"
            raise OSError(reason.removeprefix("argus-exporter: "))
        url = re.search(r"\burl=(\S+)", log.read_text(errors="replace"))
        if url and _is_listening(path):
            _say(f"serving {url[1]} while the command runs (log: {log})")
            return exporter
        time.sleep(0.02)
    _stop(exporter)
    raise OSError(f"it was not ready after {_START_LIMIT_S:.0f} s; see {log}")


class _Witness:
    """A process beside the command that only sleeps: a signal that ends it was sent to the command too.

    As one for the process group is, or one that systemd or Slurm sends to all of a job.
    """

    def __init__(self, mask: Set[int]) -> None:
        self._mask = mask
        self._process = self._start()

    def saw(self, number: signal.Signals) -> bool:
        """Whether the signal, which has just come, was for it too."""
        if self._process is None:
            return False
        try:
            ended = self._process.wait(_WITNESS_S)
        except subprocess.TimeoutExpired:
            return False
        self._process = self._start()
        if ended == -number:
            signal.sigtimedwait({number}, 0)  # `timeout` sends it to us, and then to the group
        return ended == -number

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes] | None:
        def prepare() -> None:
            _die_with_parent()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        nothing = subprocess.DEVNULL
        try:  # without an environment, which may name a rank
            return subprocess.Popen(
                ["sleep", "infinity"],
                env={},
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                preexec_fn=prepare,
            )
        except OSError:
            return None


@dataclass
class _Command:
    process: subprocess.Popen[bytes]

    def status(self) -> int | None:
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code


def _supervise(program: str, argv: list[str], environment: dict[str, str]) -> int:
    """Run the command as a child, hand signals on, return its status."""
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            command = _Command(
                subprocess.Popen(
                    argv,
                    executable=program,
                    env=environment,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
                )
            )
        except OSError as error:
            return _refuse(f"cannot run {program}: {error.strerror}", NOT_EXECUTABLE)
        witness = _Witness(before)
        while (status := command.status()) is None:
            received = signal.sigwaitinfo(watched)
            number = signal.Signals(received.si_signo)
            # Ctrl-C reaches the whole foreground group: the command has it already, a second one would cut
            # torchrun's orderly shutdown short.
            if number is not signal.SIGCHLD and not (witness.saw(number) or received.si_code == _SI_KERNEL):
                command.process.send_signal(number)
        witness.end()
        return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(exporter: subprocess.Popen[bytes]) -> None:
    exporter.terminate()
    try:
        exporter.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        exporter.kill()
        exporter.wait()


def _die_with_parent() -> None:
    """In the exporter, before exec: end when `run` is killed."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _usual_socket(address: str) -> Path:
    """The default one, unless the exporter of the host listens and nobody does there.

    Who names another address wants an exporter of his own, as where the host's serves other users.
    """
    path = default_socket_path()
    named = os.environ.get("ARGUS_SOCKET") or address != _ADDRESS
    return path if named or _is_listening(path) or not _is_listening(_HOSTS) else _HOSTS


def _is_listening(path: Path) -> bool:
    """Whether an exporter that may learn of the training has the socket."""
    # As intake.is_listening, without the exporter's imports in a process that will be the training command.
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return stranger(probe, path) is None


def _say(text: str) -> None:
    print(f"argus-exporter: {text}", file=sys.stderr, flush=True)


def _refuse(text: str, status: int) -> int:
    _say(text)
    return status
