"""Variables of a process with threads: children learn who reports, and no string of the environment moves.

Each in an interpreter of its own, because this one's environment is everybody's.
"""

from __future__ import annotations

import os
import subprocess
import sys

NAMED = """
import ctypes, os, subprocess, sys, threading
from argus_core.process_environment import PRODUCER, alone, name_producer, reserve_producer

def places():
    "Where each string of the environment is."
    strings, found = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ"), []
    while strings[len(found)]:
        found.append(strings[len(found)])
    return ctypes.addressof(strings.contents), found

def child(**keywords):
    read = "import os; print(int(os.environ.get('ARGUS_PRODUCER_PID', '-1')))"
    return int(subprocess.run([sys.executable, "-c", read], stdout=subprocess.PIPE, **keywords).stdout)

end = threading.Event()
thread = threading.Thread(target=end.wait)
"""


def run(program: str, **environ: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
    result = subprocess.run(
        [sys.executable, "-c", NAMED + program],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_alone_the_variable_is_set() -> None:
    run("assert alone() and name_producer() and child() == os.getpid()")


THREADED = """
thread.start()
before = places()
assert not alone() and name_producer()
assert places() == before
end.set(); thread.join()
assert child() == child(env=dict(os.environ)) == int(os.environ[PRODUCER]) == os.getpid()
"""


def test_with_threads_it_is_written_in_its_place() -> None:
    """Children are told, with an inherited environment and with a copy; no string has moved."""
    run("reserve_producer()\n" + THREADED)


def test_what_a_parent_left_is_room_enough() -> None:
    """The string that exec gave us, not one that setenv made."""
    run("reserve_producer()\n" + THREADED, ARGUS_PRODUCER_PID="0000000000")


def test_with_threads_and_no_room_nothing_is_touched() -> None:
    """Attached late, without the boot: it is said that children are not told."""
    run(
        "thread.start(); before = places()\n"
        "assert not name_producer() and places() == before and PRODUCER not in os.environ\n"
        "end.set(); thread.join(); assert child() == -1"
    )


def test_a_variable_that_somebody_took_away_is_not_put_back() -> None:
    run(
        "reserve_producer(); os.environ.clear(); thread.start()\n"
        "assert not name_producer() and not os.environ; end.set(); thread.join()"
    )
