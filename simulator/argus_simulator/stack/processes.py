"""Child processes that never outlive us.

Each child leads a process group of its own, so that Ctrl-C in a terminal reaches only us and we stop the
children in order. Should we be killed outright, the kernel kills them (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from argus_simulator.stack.errors import PortTaken, StackError, WaitTimeout
from argus_simulator.stack.family import descendants
from argus_simulator.stack.ports import free_port, listens
from argus_simulator.stack.waiting import wait_for

_STOP_S = 10.0
"""How long a child may take to end after SIGTERM; then it is killed."""
_KILL_S = 5.0
_READY_S = 60.0
"""How long a server may take to become ready: Prometheus needs 1 s, on a loaded machine several."""
_PORT_TRIES = 5
_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
_PORT_TAKEN = ("address already in use", "Address already in use", "Errno 98")

_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and exec


class Child:
    """A running child process with its log file.

    Start it from a thread that lives as long as the child should: the kernel's death signal comes when the
    starting *thread* ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        orderly_death: bool = False,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        parent = os.getpid()
        # One that has children of its own must get the chance to end them when we are killed.
        death_signal = signal.SIGTERM if orderly_death else signal.SIGKILL

        def tie_to_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != parent:  # it died before we asked for the signal
                os._exit(1)

        with log.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment} if environment is not None else None,
                    cwd=folder,
                    start_new_session=True,
                    preexec_fn=tie_to_parent,
                )
            except OSError as error:
                raise StackError(f"{name}: cannot start {command[0]}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise where the child has ended.

        Raises:
            StackError: with its status and the end of its log.
        """
        status = self.exit_status
        if status is not None:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise StackError(f"{self.name} {how}; the end of its log ({self.log}):\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(f"  {line}" for line in lines) or "  (empty)"

    def stop(self) -> None:
        """End the child and all it started: SIGTERM to the child, and after a bounded wait SIGKILL to all."""
        started = descendants(self.pid)
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        if self._process.poll() is None:
            started |= descendants(self.pid)
            self._process.kill()
            self._process.wait(_KILL_S)
        for process in started:
            process.kill()


@dataclass(frozen=True)
class Server:
    """A child that answers on a port."""

    child: Child
    port: int
    ready_path: str = "/"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def kill_server(server: Server) -> None:
    """SIGKILL: it cannot say goodbye."""
    os.kill(server.child.pid, signal.SIGKILL)
    server.child.stop()


def start_again(server: Server) -> Server:
    """The same command on the same port, once it is ready.

    Raises:
        StackError: it died or did not become ready.
    """
    old = server.child
    return _ready(Child(old.name, old.command, old.log), server.port, server.ready_path)


def start_server(name: str, command: Callable[[int], Sequence[str]], ready_path: str, log: Path) -> Server:
    """Start a server on a free port and wait until it is ready.

    Args:
        name: for messages.
        command: argv for a port.
        ready_path: URL path that answers 200 when ready.
        log: file that gets its output.

    Raises:
        StackError: it died or did not become ready; the message ends in its log.
    """
    for _ in range(_PORT_TRIES):
        port = free_port()
        with contextlib.suppress(PortTaken):
            return _ready(Child(name, command(port), log), port, ready_path)
    raise StackError(f"{name}: {_PORT_TRIES} ports in a row were taken while it started; see {log}")


def _ready(child: Child, port: int, ready_path: str) -> Server:
    """The server, once it answers; a child that does not is stopped, also where a signal ends the wait."""
    try:
        _await_ready(child, port, ready_path)
    except BaseException:
        child.stop()
        raise
    return Server(child, port, ready_path)


def _await_ready(child: Child, port: int, ready_path: str) -> None:
    def alive() -> None:
        if child.exit_status is not None and any(text in child.log_tail() for text in _PORT_TAKEN):
            raise PortTaken(f"{child.name}: port {port} was taken meanwhile")
        child.check()

    def ready() -> bool:
        if not listens(child.pid, port):
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready_path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        wait_for(ready, _READY_S, f"{child.name} to answer on port {port}", every_s=0.05, meanwhile=alive)
    except WaitTimeout as error:
        raise StackError(f"{error}; the end of its log ({child.log}):\n{child.log_tail()}") from error
