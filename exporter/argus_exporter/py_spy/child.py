"""A child process with an end: bounded time, bounded output, its CPU time known, no zombie."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_CHUNK: Final = 65_536
_TEXT_LIMIT: Final = 16_384
_END_LIMIT_S: Final = 2.0
"""How long a killed child is waited for. One that hangs in the kernel is reaped by its thread, later."""
_NICENESS: Final = 10
"""Watching yields to training where cores are short."""


@dataclass(frozen=True)
class Finished:
    """How a child ended."""

    status: int
    """Exit status; minus the signal's number where a signal ended it."""
    output: bytes
    """What it wrote to the descriptor that it was given."""
    text: str
    """What it wrote to stdout and stderr."""
    cpu_seconds: float
    """User and system time of the child and of what it waited for (wait4)."""
    cut: str = ""
    """Why it was killed: `timeout` or `output_limit`; empty where it ended by itself."""


async def run_child(
    command: Callable[[int], Sequence[str]], *, limit_s: float, output_limit: int
) -> Finished:
    """Run a command to its end, or end it. Cancelled: the child is killed first.

    Args:
        command: the words, given the number of the descriptor that takes the output.
        limit_s: seconds after which it is killed.
        output_limit: bytes of output after which it is killed.

    Raises:
        OSError: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    output, text = _Drain(output_limit), _Drain(_TEXT_LIMIT)
    try:
        # No preexec_fn: not safe beside threads. A child whose exporter was killed ends with its window.
        process = subprocess.Popen(
            command(output.write_end),
            stdin=subprocess.DEVNULL,
            stdout=text.write_end,
            stderr=text.write_end,
            pass_fds=(output.write_end,),
            env={"PATH": os.environ.get("PATH", "")},
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        output.close()
        text.close()
        raise
    ended: asyncio.Future[tuple[int, float]] = loop.create_future()
    threading.Thread(target=_reap, args=(process, loop, ended), name="argus-reap", daemon=True).start()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    overflow = asyncio.Event()
    output.start(loop, overflow.set)
    text.start(loop, lambda: None)  # too many words of complaint are cut, not punished
    too_much = asyncio.ensure_future(overflow.wait())
    cut = ""
    try:
        await asyncio.wait((ended, too_much), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            cut = "output_limit" if overflow.is_set() else "timeout"
    finally:
        too_much.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait((ended,), timeout=_END_LIMIT_S)
        output.close()
        text.close()
    status, cpu_seconds = ended.result() if ended.done() else (-signal.SIGKILL, 0.0)
    return Finished(status, bytes(output.content), text.content.decode("utf-8", "replace"), cpu_seconds, cut)


def _reap(
    process: subprocess.Popen[bytes],
    loop: asyncio.AbstractEventLoop,
    ended: asyncio.Future[tuple[int, float]],
) -> None:
    """In a thread of its own: wait for the child, however long it takes to die, and learn what it cost."""
    _, raw, usage = os.wait4(process.pid, 0)
    status = os.waitstatus_to_exitcode(raw)
    process.returncode = status  # subprocess must not wait for it again

    def tell() -> None:
        if not ended.done():
            ended.set_result((status, usage.ru_utime + usage.ru_stime))

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(tell)


class _Drain:
    """A pipe that is read to the end; what exceeds the limit is thrown away and reported once."""

    def __init__(self, limit: int) -> None:
        self.content = bytearray()
        self._limit = limit
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._overflow: Callable[[], object] = lambda: None

    def start(self, loop: asyncio.AbstractEventLoop, overflow: Callable[[], object]) -> None:
        """Begin to read; the child has the other end now."""
        os.close(self.write_end)
        self.write_end = -1
        self._loop, self._overflow = loop, overflow
        loop.add_reader(self._read_end, self._readable)

    def close(self) -> None:
        """Take what is still there, and close."""
        if self._loop is not None:
            while self._readable():
                pass
            self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        if self.write_end >= 0:
            os.close(self.write_end)

    def _readable(self) -> bool:
        """Whether there may be more."""
        try:
            chunk = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            if self._loop is not None:
                self._loop.remove_reader(self._read_end)
            return False
        room = self._limit - len(self.content)
        self.content += chunk[:room]
        if len(chunk) > room:
            self._overflow()
            return False
        return True
