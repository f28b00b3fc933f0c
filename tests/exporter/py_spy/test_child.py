"""A child process of the exporter: bounded in time and output, its cost known, never a zombie."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from argus_exporter.py_spy.child import Finished, run_child

from .processes import children

LIMIT_S = 60.0


def python(program: str) -> Callable[[int], Sequence[str]]:
    return lambda fd: [sys.executable, "-c", program, str(fd)]


def run(program: str, *, limit_s: float = LIMIT_S, output_limit: int = 1 << 20) -> Finished:
    return asyncio.run(run_child(python(program), limit_s=limit_s, output_limit=output_limit))


def test_output_words_and_status_come_back() -> None:
    """Output on its own descriptor, words from stdout and stderr, the exit status."""
    finished = run("import os, sys; os.write(int(sys.argv[1]), b'data'); print('out'); sys.exit('err')")
    assert (finished.status, finished.output, finished.cut) == (1, b"data", "")
    assert "out" in finished.text
    assert "err" in finished.text


def test_cpu_time_is_the_child_s() -> None:
    """As wait4 tells it."""
    finished = run("import time\nwhile time.process_time() < 0.3: pass")
    assert 0.3 <= finished.cpu_seconds < 10


def test_more_output_than_a_pipe_holds_is_read() -> None:
    """One megabyte arrives whole."""
    finished = run("import os, sys\nwith open(int(sys.argv[1]), 'wb') as file: file.write(b'x' * 1_000_000)")
    assert len(finished.output) == 1_000_000


def test_a_child_that_writes_without_end_is_killed() -> None:
    """What is kept is bounded."""
    finished = run(
        "import os, sys\nwhile True: os.write(int(sys.argv[1]), b'x' * 65536)", output_limit=100_000
    )
    assert finished.cut == "output_limit"
    assert len(finished.output) == 100_000
    assert finished.status < 0


def test_words_are_cut() -> None:
    """A child that talks on is not killed for it, and its talk is not kept."""
    finished = run("print('x' * 1_000_000)")
    assert finished.status == 0
    assert len(finished.text) == 16_384


def test_a_child_that_does_not_end_is_killed_and_reaped() -> None:
    """At its limit."""
    pids: list[int] = []
    before = children()

    async def body() -> Finished:
        running = asyncio.ensure_future(
            run_child(python("import time; time.sleep(600)"), limit_s=0.5, output_limit=1)
        )
        await asyncio.sleep(0)
        pids.extend(children() - before)
        return await running

    finished = asyncio.run(body())
    assert finished.cut == "timeout"
    assert pids
    assert not children() & set(pids)


def test_cancelling_kills_the_child() -> None:
    """Nothing is left when the exporter stops."""
    before = children()

    async def body() -> set[int]:
        running = asyncio.ensure_future(
            run_child(python("import time; time.sleep(600)"), limit_s=LIMIT_S, output_limit=1)
        )
        await asyncio.sleep(0)
        pids = children() - before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return pids

    pids = asyncio.run(body())
    assert pids
    assert not children() & set(pids)


def test_a_command_that_cannot_start_leaves_no_descriptor_open() -> None:
    """Tried a hundred times, as a supervisor does."""

    async def body() -> None:
        for _ in range(100):
            with pytest.raises(OSError, match="nothing-here"):
                await run_child(lambda _: ["/nothing-here"], limit_s=1, output_limit=1)

    before = len(list(Path("/proc/self/fd").iterdir()))
    asyncio.run(body())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
