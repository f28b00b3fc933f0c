"""ARGUS attached to real torch processes: what arrives, and that the training is never touched.

The jobs are unmodified scripts; a bare reader stands for the exporter.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from exporter.exporter_process import config, exporter, scrape, value, wait_for

from .jobs import LOOP, environment, run, run_rank
from .reader import Reader, until

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRAIN = Path(__file__).with_name("train.py")
NO_EDITABLE = (  # an image has no editable install, whose finder would lead back to this checkout
    "import os, sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"
)
SMALL = {"WIDTH": "32", "LENGTH": "8", "FROZEN": "1", "BATCH": "2"}


def torchrun(ranks: int = 2) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), str(TRAIN)]


def test_unmodified_job_reports_phases_and_iterations(reader: Reader) -> None:
    """Every phase of every step of both ranks; the launcher, which Slurm gave a rank, does not attach."""
    steps = 20
    env = environment(reader.path, STEPS=str(steps), SLURM_PROCID="0", ARGUS_DEBUG="1", **SMALL)
    result = run(torchrun(), env)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("argus: attached") == 2
    for rank in (0, 1):
        said = reader.ended(rank)
        (hello,) = said.hellos
        assert (hello.rank, hello.local_rank, hello.world_size) == (rank, rank, 2)
        assert wire.decode_text(hello.training_job) == "train"
        count = said.count()
        assert {name: count[name] for name in ("data", "backward", "optimizer")} == dict.fromkeys(
            ("data", "backward", "optimizer"), steps
        )
        # The first forward and its wait come before the first optimizer step, where the model is found.
        assert {name: count[name] for name in ("forward", "dp-allreduce")} == dict.fromkeys(
            ("forward", "dp-allreduce"), steps - 1
        )
        assert count["all_reduce"] == steps // 10
        kinds = {(phase, wire.Kind(span.kind), group) for phase, group, span in said.spans}
        assert kinds - {("gc", wire.Kind.HOST, "")} == {
            ("data", wire.Kind.HOST, ""),
            ("forward", wire.Kind.COMPUTE, ""),
            ("backward", wire.Kind.COMPUTE, ""),
            ("dp-allreduce", wire.Kind.COMM, ""),
            ("optimizer", wire.Kind.COMPUTE, ""),
            ("all_reduce", wire.Kind.COMM, "world"),
        }
        assert [iteration.step for iteration in said.iterations] == list(range(1, steps + 1))
        assert said.iterations[-1].total_count == steps
        assert {span.step for phase, _, span in said.spans if phase == "data"} == set(range(1, steps + 1))
        assert all(state.up for state, _ in said.channels)
        assert said.exit_status == 0
    assert sorted(reader.ranks) == [0, 1]


@pytest.mark.parametrize(("needed", "reason"), [(b"2.900", "glibc"), (b"2.14", None)])
def test_an_image_with_an_old_glibc_trains_without_kernels(
    tmp_path: Path, needed: bytes, reason: str | None
) -> None:
    """The producer as an init container puts it there: CUDA hears of a library that loads, or of none; why
    there are no kernels reaches /metrics and, once, stderr."""
    packages, installed = tmp_path / "argus", Path(wire.__file__).parents[1]
    for package in ("argus_core", "argus_training"):
        shutil.copytree(installed / package, packages / package, ignore=shutil.ignore_patterns("__pycache__"))
    library = packages / "argus_core" / "libargus_cupti.so"
    library.write_bytes(b"\x7fELF..\0GLIBC_" + needed + b"\0libc.so.6\0")
    program = NO_EDITABLE + LOOP + "train()\nprint(os.environ.get('CUDA_INJECTION64_PATH'))\ninput()"
    with exporter(config(tmp_path / "s")) as running:
        env = environment(running.socket, PYTHONPATH=str(packages / "argus_training" / "boot"))
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=env | {"RANK": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0", 60)
            wait_for(
                lambda: value(scrape(running.url), "argus_iteration_last_step", rank="0") == 10, "ten steps"
            )
            labels = {"rank": "0", "channel": "kernels"}
            samples = scrape(running.url)
            assert value(samples, "argus_channel_up", **labels) == (None if reason is None else 0)
            if reason is not None:
                assert value(samples, "argus_channel_info", **labels, reason=reason) == 1
            out, err = process.communicate("\n", timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert out.splitlines()[-1] == (str(library) if reason is None else "None")
    assert err.count("argus: no kernels: ") == (0 if reason is None else 1)


def test_gradient_accumulation_is_one_iteration(reader: Reader) -> None:
    """Four forwards a step; only the last backward waits for peers (the others are in DDP's no_sync)."""
    result = run(torchrun(1), environment(reader.path, STEPS="6", ACCUMULATE="4", **SMALL))
    assert result.returncode == 0, result.stderr
    said = reader.ended()
    count = said.count()
    assert len(said.iterations) == 6
    assert (count["data"], count["backward"], count["optimizer"], count["dp-allreduce"]) == (24, 24, 6, 5)


def test_two_optimizers_and_two_loaders_are_one_iteration(reader: Reader) -> None:
    """A generator and its critic, each with batches and an optimizer of its own."""
    program = LOOP + (
        "critic = torch.nn.Linear(8, 1)\n"
        "second = torch.optim.Adam(critic.parameters())\n"
        "for _ in range(3):\n"
        "    for x, y in zip(loader, torch.utils.data.DataLoader(torch.rand(100, 8), batch_size=10)):\n"
        "        critic(y).sum().backward()\n"
        "        second.step()\n"
        "        model(x).sum().backward()\n"
        "        optimizer.step()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.count()["optimizer"] == said.count()["data"] == 60
    assert len(said.iterations) == 30


def test_iterations_without_a_loader_begin_with_the_forward(reader: Reader) -> None:
    """Batches from anywhere. The first begins with its backward: that forward is not expected yet."""
    program = LOOP + (
        "for _ in range(15):\n    model(torch.rand(4, 8)).sum().backward()\n    optimizer.step()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.count()["data"] == 0
    assert len(said.iterations) == 15


def test_with_events_the_hooks_time_work_by_events(reader: Reader) -> None:
    """As with a model on a GPU, on stand-ins for CUDA's events: each phase by its own clock and step."""
    events = (
        "import time\n"
        "class Event:\n"
        "    def record(self): self.at = time.monotonic_ns()\n"
        "    def query(self): return True\n"
        "    def elapsed_time(self, end): return (end.at - self.at) / 1e6\n"
        "import argus_training\n"
        "observer = argus_training._observer\n"
        "observer.stopwatch.use_events(Event, 64, lambda: False)\n"
        "observer.iterations.ended = observer._iteration_on_gpu_ended\n"
    )
    assert run_rank(LOOP + events + "train(); train()", reader.path).returncode == 0
    said = reader.ended()
    sources = {phase: wire.Source(span.source).name for phase, _, span in said.spans if phase != "gc"}
    assert sources == {"data": "HOST", "forward": "EVENT", "backward": "EVENT", "optimizer": "EVENT"}
    assert said.count()["forward"] == 19  # the first is not expected yet
    assert {span.step for phase, _, span in said.spans if phase == "backward"} == set(range(1, 21))
    assert said.page is not None
    assert said.page.read().open_spans == ()


def test_failures_of_public_functions_are_counted(reader: Reader) -> None:
    """Our own code raises in each of them: the user's goes on, the channel says it, they switch off."""
    broken = (
        "import torch\n"
        "import argus_training\n"
        "from argus_training import recorder\n"
        "def broken(*_, **__): raise RuntimeError('ours')\n"
        "recorder.Recorder.begin = recorder.Recorder.work = broken\n"
        "for _ in range(4):\n"
        "    with argus_training.iteration():\n"
        "        argus_training.work('tokens', 7)\n"
        "        with argus_training.span('tokenise'): print('done')\n"
    )
    result = run_rank(broken, reader.path)
    assert (result.returncode, result.stdout) == (0, "done\n" * 4)
    assert result.stderr.count("argus: hook public detached after 3 failures") == 1
    said = reader.ended()
    assert (said.channels[-1][0].up, said.channels[-1][1]) == (0, "hook_public")


def test_slow_rank_is_told_from_those_that_wait(reader: Reader) -> None:
    """Rank 1 does five times the forward work: its forward is long, and rank 0 waits for it."""
    env = environment(
        reader.path,
        STEPS="30",
        SLOW_RANK="1",
        SLOW_FROM="0",
        SLOW_FACTOR="5",
        FROZEN="4",
        TRAINED="1",
        BATCH="2",
    )
    assert run(torchrun(), env).returncode == 0

    def median(rank: int, phase: str) -> float:
        values = sorted(reader.ended(rank).seconds(phase))
        return values[len(values) // 2]

    assert median(1, "forward") > 1.5 * median(0, "forward")
    assert median(0, "dp-allreduce") > 1.5 * median(1, "dp-allreduce")


def test_user_exception_passes_through(reader: Reader) -> None:
    """Same traceback and status as without ARGUS, and BYE says that it failed."""
    program = LOOP + "train()\nraise ValueError('mine')\n"
    observed = run_rank(program, reader.path)
    plain = run_rank(program, reader.path, ARGUS_DISABLE="1")
    assert (observed.returncode, observed.stderr) == (plain.returncode, plain.stderr)
    assert observed.returncode == 1
    assert "ValueError: mine" in observed.stderr
    said = reader.ended()
    assert said.exit_status == 1
    assert len(said.iterations) == 10


def test_exception_inside_hooked_calls_reaches_the_user(reader: Reader) -> None:
    """Forward, backward, data and optimizer raise: the user catches it, the next steps are observed."""
    program = LOOP + (
        "train()\n"
        "caught = 0\n"
        "def expect(call):\n"
        "    global caught\n"
        "    try: call()\n"
        "    except (RuntimeError, ValueError, ZeroDivisionError, StopIteration): caught += 1\n"
        "expect(lambda: model(torch.ones(1, 3)))\n"
        "expect(lambda: torch.ones(1).backward())\n"
        "class Broken(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 3\n"
        "    def __getitem__(self, i): return 1 / 0\n"
        "expect(lambda: next(iter(torch.utils.data.DataLoader(Broken()))))\n"
        "def closure(): raise ValueError\n"
        "expect(lambda: optimizer.step(closure))\n"
        "train()\n"
        "print(caught)\n"
    )
    result = run_rank(program, reader.path)
    assert (result.stdout, result.stderr) == ("4\n", "")
    said = reader.ended()
    assert len(said.iterations) == 20
    assert said.count()["forward"] == 19


def test_without_exporter_training_is_the_same(tmp_path: Path) -> None:
    """Nobody listens: same result, nothing printed."""
    program = LOOP + "print(train())"
    observed = run_rank(program, tmp_path / "nobody")
    plain = run_rank(program, tmp_path / "nobody", ARGUS_DISABLE="1")
    assert (observed.stdout, observed.stderr, observed.returncode) == (plain.stdout, "", 0)


def test_exporter_restart_is_survived(tmp_path: Path) -> None:
    """The exporter dies in the middle: training goes on, and the next exporter learns all anew."""
    stop = tmp_path / "stop"
    env = environment(tmp_path / "s", STOP_FILE=str(stop), **SMALL)
    first = Reader(tmp_path / "s")
    job = subprocess.Popen(torchrun(1), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(first.ranks[0].iterations) >= 20, "iterations at the first exporter")
        first.close()
        before = first.ranks[0].iterations[-1]
        with Reader(tmp_path / "s") as second:
            said = second.ranks[0]
            until(lambda: len(said.iterations) >= 20, "iterations at the second exporter")
            stop.touch()
            out, err = job.communicate(timeout=60)
            until(lambda: said.exit_status is not None, "BYE")
            assert job.returncode == 0, err
            assert "finished" in out
            assert said.iterations[-1].total_count > before.total_count + 20
            assert said.iterations[-1].total_seconds > before.total_seconds
            assert {"data", "forward", "backward", "optimizer"} <= set(said.count())
            assert said.activities[-1] is wire.Activity.TRAIN
    finally:
        job.kill()
        job.wait()


ON_ITS_GPU = """
import threading, torch
class Current(threading.local):
    device = 0
current = Current()
torch.cuda.is_initialized = lambda: True
torch.cuda.current_device = lambda: current.device
torch.cuda.get_device_properties = lambda device: type("Properties", (), {"uuid": device})
current.device = 1
"""


def test_an_exporter_that_comes_back_hears_of_the_same_gpu(tmp_path: Path) -> None:
    """The thread that sends introduces the rank anew; a current device is one thread's, in others it is 0."""
    stop = tmp_path / "stop"
    program = ON_ITS_GPU + LOOP + f"while not __import__('os').path.exists({str(stop)!r}): train()\n"
    first = Reader(tmp_path / "s")
    env = environment(tmp_path / "s", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    job = subprocess.Popen([sys.executable, "-c", program], env=env)
    try:
        until(lambda: first.ranks[0].hellos != [], "the first HELLO")
        first.close()
        with Reader(tmp_path / "s") as second:
            until(lambda: second.ranks[0].hellos != [], "the next")
            stop.touch()
            assert job.wait(60) == 0
        for reader in (first, second):
            assert wire.decode_text(reader.ranks[0].hellos[-1].gpu_uuid) == "GPU-1"
    finally:
        job.kill()
        job.wait()


def test_throwing_hooks_are_contained(reader: Reader) -> None:
    """Our own code raises in every hook: same result as without it, each hook says so once and is gone."""
    broken = (
        "from argus_training import recorder, stopwatch\n"
        "def broken(*_, **__): raise RuntimeError('ours')\n"
        "recorder.Recorder.ended = recorder.Recorder.timed = stopwatch.Stopwatch._span = broken\n"
    )
    program = (
        LOOP + "print(train(), torch.autograd.backward.__module__, model.__class__.__dict__.get('__call__'))"
    )
    observed = run_rank(broken + program, reader.path)
    plain = run_rank(program, reader.path, ARGUS_DISABLE="1")
    assert observed.returncode == 0
    assert observed.stdout == plain.stdout
    for hook in ("data", "forward", "backward", "optimizer"):
        assert observed.stderr.count(f"argus: hook {hook} detached after 3 failures") == 1


def test_model_is_pickled_and_copied_without_us(tmp_path: Path) -> None:
    """Nothing of ours is on the user's objects."""
    program = LOOP + (
        "import copy, io, pickle\n"
        "train()\n"
        "copied = copy.deepcopy(model)\n"
        "text = pickle.dumps(model)\n"
        "torch.save(model, io.BytesIO())\n"
        "pickle.loads(text)(torch.ones(1, 8)); copied(torch.ones(1, 8))\n"
        "print(b'argus' in text)"
    )
    result = run_rank(program, tmp_path / "nobody")
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_outer_module_that_is_not_called_hands_over(reader: Reader) -> None:
    """As in Lightning, where training_step calls a child: its calls are the forward, from step 3 on."""
    program = LOOP + (
        "class Outer(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = model\n"
        "outer = Outer()\n"
        "train()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.count()["forward"] == 8


def test_own_spans_work_and_iterations(reader: Reader) -> None:
    """The public functions, for what hooks cannot see."""
    program = (
        "import torch\n"
        "import argus_training\n"
        "for _ in range(3):\n"
        "    with argus_training.iteration():\n"
        "        with argus_training.span('tokenise'):\n"
        "            argus_training.work('tokens', 7)\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.count()["tokenise"] == 3
    assert len(said.iterations) == 3
    assert said.work == {"tokens": 21.0}


def test_data_loader_workers_are_silent(reader: Reader) -> None:
    """Forked and spawned workers inherit the rank's environment and say nothing for it."""
    program = (
        LOOP
        + "loader = torch.utils.data.DataLoader(torch.rand(40, 8), batch_size=4, num_workers=2)\n"
        + "if __name__ == '__main__':\n    train()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert len(said.hellos) == 1
    assert len(said.iterations) == 10


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver", "preloaded"])
def test_ranks_that_multiprocessing_starts_are_observed(start: str, reader: Reader, tmp_path: Path) -> None:
    """Each as the rank that its process group tells; the parent, whose environment they have, is none."""
    script = tmp_path / "started.py"
    script.write_text(
        LOOP
        + f"""
def rank(number):
    store = "file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=number, world_size=2)
    train()
    torch.distributed.destroy_process_group()
if __name__ == "__main__":
    import multiprocessing
    if {start == "preloaded"}:
        multiprocessing.set_forkserver_preload(["torch"])
    method = "forkserver" if {start == "preloaded"} else {start!r}
    torch.multiprocessing.start_processes(rank, nprocs=2, start_method=method)
"""
    )
    result = run([sys.executable, str(script)], environment(reader.path))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    for rank in (0, 1):
        said = reader.ended(rank)
        assert (len(said.hellos), len(said.iterations), said.exit_status) == (1, 10, 0)
        assert said.count()["backward"] == said.count()["optimizer"] == 10
    assert sorted(reader.ranks) == [0, 1]


@pytest.mark.parametrize("switch", [{"ARGUS_DISABLE": "1"}, {"ARGUS_DISABLE_PHASES": "1"}])
def test_switched_off_is_off(reader: Reader, switch: dict[str, str]) -> None:
    """No hook is in place and nobody says HELLO."""
    program = LOOP + "train(); print(hasattr(torch.autograd.backward, '__wrapped__'))"
    result = run_rank(program, reader.path, **switch)
    assert result.stdout == "False\n"
    assert not reader.ranks


def test_settings_come_from_the_file_beside_the_socket(reader: Reader) -> None:
    """Nothing but the socket is known, as where a launcher drops variables; what is wrong is said once."""
    file = reader.path.with_name(f"{reader.path.name}.env")
    file.write_text("ARGUS_JOB=filed\nARGUS_DISABLE_HOOKS=data\nARGUS_CUPTI_BUFFERS=1\n")
    result = run_rank(LOOP + "train()", reader.path)
    assert result.returncode == 0
    assert result.stderr == (
        f"argus: ARGUS_CUPTI_BUFFERS in {file} is '1'; allowed: a whole number of 2 or more; using 32\n"
    )
    said = reader.ended()
    assert wire.decode_text(said.hellos[0].training_job) == "filed"
    assert {"forward", "optimizer"} <= set(said.count()) and "data" not in said.count()


SETENV = """
import os, subprocess, sys, threading
late = []
def heard(event, arguments):
    if event in ("os.putenv", "os.unsetenv") and len(os.listdir("/proc/self/task")) > 1:
        if arguments[0].startswith((b"ARGUS_", b"CUDA_")):
            late.append(arguments)
sys.addaudithook(heard)
another = threading.Thread(target=threading.Event().wait, daemon=True)
"""
"""Notes each variable of ours that is set while other threads run. torch sets some of its own."""
CHILD = (
    "print(late, subprocess.run([sys.executable, '-c', "
    "'import os; print(int(os.environ.get(\"ARGUS_PRODUCER_PID\", -1)) == os.getppid())'],"
    " stdout=subprocess.PIPE, text=True).stdout)"
)


def test_no_variable_is_set_while_threads_run(reader: Reader) -> None:
    """setenv races with other threads' getenv. Children of the rank learn all the same who reports."""
    result = run_rank(SETENV + "another.start()\n" + LOOP + "train()\n" + CHILD, reader.path)
    assert (result.stdout, result.stderr) == ("[] True\n\n", "")
    assert list(reader.ranks) == [0]


def test_where_children_cannot_be_told_who_reports_it_is_said(reader: Reader) -> None:
    """No boot at the start made room for it, and there are threads by the time of the first step."""
    program = SETENV + "os.environ.pop('ARGUS_PRODUCER_PID'); another.start()\n" + LOOP + "train()\n" + CHILD
    result = run_rank(program, reader.path)
    assert result.stdout == "[] False\n\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith("argus: processes that this rank starts, and that train, report as this rank: ")


def test_hook_can_be_left_out(reader: Reader) -> None:
    """Each hook has a switch of its own."""
    assert run_rank(LOOP + "train()", reader.path, ARGUS_DISABLE_HOOKS="backward,data").returncode == 0
    said = reader.ended()
    assert set(said.count()) - {"gc"} == {"forward", "optimizer"}
    assert len(said.iterations) == 9  # from the second on, whose forward is seen


def test_installed_torch_has_no_unknown_collective() -> None:
    """A new torch that names a collective anew must be noticed: it would be invisible."""
    from torch.distributed import distributed_c10d

    from argus_training.torch_hooks.collectives import ASYNCHRONOUS, COLLECTIVES, LEFT_OUT

    collectives = {
        name
        for name in distributed_c10d.__all__
        if inspect.isfunction(function := getattr(distributed_c10d, name))
        and "group" in (parameters := inspect.signature(function).parameters)
        and {"async_op", "tensor", "obj", "object_list"} & set(parameters)
    }
    assert collectives <= {*COLLECTIVES, ASYNCHRONOUS, *LEFT_OUT}
    assert "all_reduce" in collectives
