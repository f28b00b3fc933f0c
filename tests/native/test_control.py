"""The Python side of the controls, against a real injected process: this interpreter's child."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from argus_training.kernels_control import KernelsControl
from native.app import command_environment
from native.builds import Build
from native.listener import Listener

SCRIPT = """
import ctypes, json, os, sys
from argus_training.kernels_control import KernelsControl
control = KernelsControl()
seen = {"before": [control.loaded(), control.pause(), control.statistics()]}
ctypes.CDLL("libcuda.so.1").cuInit(0)
seen["after"] = [control.loaded(), control.pause(), control.pause(), control.rearm(),
                 control.rearm(because_silent=True), control.flush()]
seen["statistics"] = control.statistics()
child = os.fork()
if child == 0:
    os._exit(5 if control.statistics() == {} and not control.rearm() else 1)
seen["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(seen))
"""


def test_controls_reach_the_library(plain: Build, socket: Path, listener: Listener) -> None:
    """Nothing before CUDA has loaded it, nothing in a forked child; a second pause is refused."""
    environment = command_environment(plain, socket) | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["before"] == [False, False, {}]
    assert seen["after"] == [True, True, False, True, True, True]
    statistics = seen["statistics"]
    assert (statistics["pauses"], statistics["rearms"], statistics["silent_rearms"]) == (1, 2, 1)
    assert (statistics["cupti_version"], statistics["up"], statistics["reason"]) == (130001, 1, "")
    assert (statistics["free_buffers"], statistics["records"]) == (32, 0)
    assert seen["child"] == 5
    assert listener.connections == [], "a process that ran no kernel says nothing"


def test_a_library_that_is_not_ours_is_left_alone() -> None:
    """The slot may hold another tool's library."""
    assert not KernelsControl("libc.so.6").loaded()
    assert KernelsControl("/nowhere/lib.so").statistics() == {}
    assert not KernelsControl("").rearm()
