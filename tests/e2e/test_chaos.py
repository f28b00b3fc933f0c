"""Real training while everything around it fails: its loss curve and step count are those of a run alone."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from argus_exporter.commands.run import child_environment
from argus_simulator.stack.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (make torch)"
    ),
]

STEPS = 400
PATIENCE_S = 240.0
"""Longest wait for a condition: two ranks and an exporter on two cores that others use as well."""

SCRIPT = """
import json, os, sys, torch
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
layers = torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(8192, 64), torch.randint(0, 8, (8192,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1)
losses, finish = [], os.environ["FINISH"]
pace = float(os.environ["PACE_S"])
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    torch.distributed.all_reduce(total)
    losses.append(total.item())
    if rank == 0 and len(losses) % 10 == 0:
        with open(finish + ".steps", "w") as file: file.write(str(len(losses)))
    if len(losses) == STEPS: break
    if pace: __import__("time").sleep(pace)
if rank == 0:
    with open(finish, "w") as file: json.dump(losses, file)
torch.distributed.barrier()
del model, optimizer
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""

BROKEN_HOOKS = """
import sys
class Late:
    def find_spec(self, name, path=None, target=None):
        if name == "argus_training.torch_hooks":
            sys.meta_path.remove(self)
            from argus_training import recorder, stopwatch
            def broken(*_, **__):
                raise RuntimeError("ours")
            taker = recorder.Recorder
            taker.ended = taker.timed = taker.iteration = broken
            stopwatch.Stopwatch._span = broken
sys.meta_path.insert(0, Late())
"""


class Job:
    """Two ranks under torchrun; `environ` decides whether ARGUS is attached."""

    def __init__(
        self,
        folder: Path,
        name: str,
        environ: dict[str, str],
        pace_s: float = 0.0,
        below: Callable[[list[str]], list[str]] = lambda command: command,
    ) -> None:
        self.result = folder / f"{name}.json"
        script = folder / "train.py"
        script.write_text(SCRIPT.replace("STEPS", str(STEPS)))
        plain = {
            key: value for key, value in environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        }
        plain |= {"OMP_NUM_THREADS": "1", "FINISH": str(self.result), "PACE_S": str(pace_s)}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        self.process = subprocess.Popen(
            below([*command, str(script)]), env=plain, stderr=subprocess.PIPE, text=True, cwd=folder
        )

    @property
    def steps(self) -> int:
        try:
            return int(self.result.with_name(self.result.name + ".steps").read_text() or 0)
        except FileNotFoundError:
            return 0

    def reach(self, steps: int) -> None:
        until(lambda: self.steps >= steps or self.process.poll() is not None, f"step {steps}")
        assert self.process.poll() is None, self.process.communicate()[1]

    def losses(self) -> tuple[list[float], str]:
        """The loss of each step, and what was said on stderr."""
        try:
            _, err = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.terminate()  # torchrun ends its ranks
            self.process.communicate()
            raise
        assert self.process.returncode == 0, err
        return json.loads(self.result.read_text()), err


def until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)


def serve(socket: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(socket)]
    exporter = subprocess.Popen(
        [*command, "--web.listen-address", "127.0.0.1:0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(socket.exists, "the exporter listens")
    return exporter


FULL_DISK = """
mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" || exit 97
dd if=/dev/zero of="$0/filler" bs=4k 2>/dev/null
exec "$@"
"""
NO_FILE_GROWS = 'ulimit -f 0 && exec "$@"'


def on_a_full_disk(folder: Path, command: list[str]) -> list[str]:
    """`command` where `folder` is a file system of its own without a free byte, unseen by others."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
    return [*namespaces, "sh", "-c", FULL_DISK, str(folder), *command]


def disks_can_be_filled(folder: Path) -> bool:
    """Whether this host lets us mount in a namespace of our own."""
    try:
        return subprocess.run(on_a_full_disk(folder, ["true"]), capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def dropped_for_the_disk(port: int) -> float:
    """Bytes of the ring that the exporter says it lost to the disk."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("argus_exporter_trace_ring_dropped_bytes_total") and 'reason="disk"' in line:
                return float(line.split()[-1])
    return 0.0


def attached(socket: Path, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
    return child_environment(own, socket, "chaos") | {"ARGUS_FLUSH_MILLISECONDS": "20"} | more


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The loss curve without ARGUS."""
    folder = tmp_path_factory.mktemp("alone")
    own = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
    losses, _ = Job(folder, "alone", own).losses()
    assert len(losses) == STEPS
    return losses


def test_exporter_killed_and_its_folder_removed(tmp_path: Path, alone: list[float]) -> None:
    """kill -9, a new exporter, then the whole folder of the socket vanishes under both."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    socket = folder / "s"
    exporter = serve(socket)
    job = Job(tmp_path, "killed", attached(socket), pace_s=0.01)
    try:
        job.reach(60)
        exporter.send_signal(signal.SIGKILL)
        exporter.wait()
        job.reach(120)
        socket.unlink()
        exporter = serve(socket)
        job.reach(240)
        shutil.rmtree(folder)
        exporter.kill()
        exporter.wait()
        losses, err = job.losses()
    finally:
        exporter.kill()
        exporter.wait()
        job.process.kill()
        job.process.wait()
    assert losses == alone
    assert "argus" not in err


def test_exporter_that_stops_reading(tmp_path: Path, alone: list[float]) -> None:
    """A stopped exporter: the socket fills, records are dropped, and no step waits."""
    socket = tmp_path / "s"
    exporter = serve(socket)
    job = Job(tmp_path, "stuck", attached(socket, ARGUS_FLUSH_MILLISECONDS="0"))
    try:
        job.reach(20)
        exporter.send_signal(signal.SIGSTOP)
        losses, _ = job.losses()
    finally:
        exporter.kill()
        exporter.wait()
        job.process.kill()
        job.process.wait()
    assert losses == alone


def test_no_disk_and_hooks_that_raise(tmp_path: Path, alone: list[float]) -> None:
    """HOME and TMPDIR cannot be written, no exporter is there, and every hook of ours raises."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(BROKEN_HOOKS)
    environ = attached(tmp_path / "nobody" / "s", HOME="/dev/full", XDG_RUNTIME_DIR="/dev/full")
    environ["PYTHONPATH"] += os.pathsep + str(broken)
    losses, err = Job(tmp_path, "broken", environ).losses()
    assert losses == alone
    assert "detached after 3 failures" in err


def test_disk_that_is_full(tmp_path: Path, alone: list[float]) -> None:
    """HOME, TMPDIR and the exporter's ring lie on a file system without a free byte.

    Where the host forbids mounts, no file of the exporter's may grow (RLIMIT_FSIZE), and the job's disk is as
    ever: the next test shows that nothing of ours writes there.
    """
    full = tmp_path / "full"
    full.mkdir()
    mounts = disks_can_be_filled(full)
    socket, configuration, port = tmp_path / "s", tmp_path / "exporter.yaml", free_port()
    configuration.write_text(f"traces:\n  enabled: true\n  folder: {full}/argus\n")
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--config", str(configuration)]
    command += ["--socket", str(socket), "--web.listen-address", f"127.0.0.1:{port}"]
    exporter = subprocess.Popen(
        on_a_full_disk(full, command) if mounts else ["sh", "-c", NO_FILE_GROWS, "sh", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    environ = attached(socket)
    below: Callable[[list[str]], list[str]] = lambda command: command  # noqa: E731
    if mounts:
        environ |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"), str(full))
        below = functools.partial(on_a_full_disk, full)
    try:
        until(socket.exists, "the exporter listens")
        job = Job(tmp_path, "full-disk", environ, pace_s=0.01, below=below)
        until(lambda: dropped_for_the_disk(port) > 0, "the exporter notices its disk")
        losses, err = job.losses()
        assert exporter.poll() is None
    finally:
        exporter.kill()
        exporter.wait()
    assert losses == alone
    assert "argus" not in err


def test_nothing_is_written_to_disk(tmp_path: Path, alone: list[float]) -> None:
    """So a full disk is no matter: of all files opened for writing, none is opened by our code."""
    watch = tmp_path / "watch"
    watch.mkdir()
    ours, others = tmp_path / "ours", tmp_path / "others"
    (watch / "sitecustomize.py").write_text(
        "import sys\n"
        "append = open\n"
        "def audit(event, args):\n"
        "    if event == 'open' and isinstance(args[1], str) and set(args[1]) & set('wax+'):\n"
        "        opener = sys._getframe(1).f_code.co_filename\n"
        "        if opener == __file__: return\n"
        "        log = 'ours' if '/argus_training/' in opener or '/argus_core/' in opener else 'others'\n"
        f"        append({str(tmp_path)!r} + '/' + log, 'a').write(f'{{opener}} {{args[0]}}\\n')\n"
        "sys.addaudithook(audit)\n"
    )
    socket = tmp_path / "s"
    exporter = serve(socket)
    environ = attached(socket)
    environ["PYTHONPATH"] += os.pathsep + str(watch)
    try:
        losses, _ = Job(tmp_path, "disk", environ).losses()
    finally:
        exporter.kill()
        exporter.wait()
    assert losses == alone
    assert others.exists()  # the script's own results: the watch was awake
    assert not ours.exists(), ours.read_text()
