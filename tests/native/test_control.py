"""The Python side of the controls, against a real injected process: this interpreter's child."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from argus_simulator.stack.ports import free_port
from argus_training import boot_directory
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


RANKLESS = """
import ctypes, os, sys, time, torch
from argus_training.kernels_control import KernelsControl

class Activity(ctypes.Structure):  # fake::Activity
    _fields_ = [(name, ctypes.c_uint32) for name in "kind device stream correlation graph call".split()]
    _fields_ += [(name, ctypes.c_uint64) for name in ("start", "end", "bytes")]
    _fields_ += [("value", ctypes.c_uint32), ("name", ctypes.c_char_p)]

def train(rank):
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    control, limit = KernelsControl(), time.monotonic() + 60
    while not control.statistics() and time.monotonic() < limit:
        for _ in range(20):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    now = time.time_ns()
    kernel = Activity(kind=10, start=now, end=now + 5, name=b"gemm")
    ctypes.CDLL("libcupti.so.13").fake_emit(ctypes.byref(kernel))

def join(rank, world_size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank)

if __name__ == "__main__":
    if os.environ["PORT"]:
        torch.multiprocessing.spawn(join, (2,), nprocs=2)
    else:
        train(0)
"""


@pytest.mark.parametrize("spawned", [False, True], ids=["plain", "spawn"])
def test_ranks_that_no_variable_holds_have_kernels(
    plain: Build, socket: Path, listener: Listener, tmp_path: Path, spawned: bool
) -> None:
    """`python train.py`, and mp.spawn: the producer tells the library who it is, once the process trains."""
    script = tmp_path / "script.py"
    script.write_text(RANKLESS)
    port = str(free_port())
    unset = dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE"), "")
    environment = command_environment(plain, socket, **unset) | {
        "PYTHONPATH": f"{boot_directory()}:{':'.join(sys.path)}",
        "PORT": port if spawned else "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = {(0, 2, "script"), (1, 2, "script")} if spawned else {(0, 1, "script")}
    listener.wait_ended(2 * len(expected))  # phases, kernels
    hellos = [c.hello for c in listener.connections if len(c.kernels) == 1]
    assert {(h.rank, h.world_size, wire.decode_text(h.training_job)) for h in hellos} == expected


def test_a_library_that_is_not_ours_is_left_alone() -> None:
    """The slot may hold another tool's library."""
    assert not KernelsControl("libc.so.6").loaded()
    assert KernelsControl("/nowhere/lib.so").statistics() == {}
    assert not KernelsControl("").rearm()
