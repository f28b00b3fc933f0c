"""The training that `bench.overhead` measures: one process, told by lines on stdin when to train.

    python -m bench.overhead_worker cpu|cuda|sized

A command is `<steps>`; the answer is one line of JSON: seconds of wall clock, of this thread's CPU time and
of the other threads' for so many steps, and resident memory in MiB. It knows nothing of ARGUS while it
trains; `torch_profiler` as second argument keeps torch.profiler on, `traceml` traces the steps on the
CPU with TraceML, in a process that `traceml run` started. On the CPU a small model with a
DataLoader and DDP over gloo; on a GPU a transformer, whose steps are complete (synchronised) when the answer
is given. `sized` is the transformer of `bench.gpu_day.transformer`: its variables say how long a step is,
each step is complete before the next begins, and the answer has the seconds of each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

IDLE_S = float(os.environ.get("BENCH_IDLE_S", "0"))
"""What the training thread waits in a step, as for a GPU: then caches are cold, for the training too."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 2**20


class Endless:
    """A sampler without end."""

    def __iter__(self) -> Iterator[int]:
        index = 0
        while True:
            yield index % 4096
            index += 1


def cpu_training() -> tuple[Callable[[], None], Callable[[], None]]:
    """A step, and what waits for all steps."""
    import torch

    if "traceml" in sys.argv:
        import traceml_ai

        traceml_ai.init(mode="auto")  # before the loader is made, whose fetches it times
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/r", rank=0, world_size=1)
    layers = (torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=4, sampler=Endless()))
    criterion = torch.nn.CrossEntropyLoss()

    def train(x: torch.Tensor, y: torch.Tensor) -> None:
        criterion(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    def step() -> None:
        train(*next(batches))
        if IDLE_S:
            time.sleep(IDLE_S)

    return traced(train, model, batches) if "traceml" in sys.argv else step, lambda: None


def traced(train: Callable[..., None], model: Any, batches: Iterator[Any]) -> Callable[[], None]:
    """A step as TraceML's quickstart has it: the batch is fetched outside of what is traced."""
    import traceml_ai

    def step() -> None:
        x, y = next(batches)
        with traceml_ai.trace_step(model):
            train(x, y)
        if IDLE_S:
            time.sleep(IDLE_S)

    return step


def cuda_training() -> tuple[Callable[[], None], Callable[[], None]]:
    """A step of a transformer in bfloat16, some tens of ms on a current GPU, and what waits for all steps."""
    import torch

    width, length, batch = 1024, 512, 16
    layer = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    data = torch.utils.data.TensorDataset(torch.randn(256, length, width))
    endless = torch.utils.data.DataLoader(data, batch_size=batch, sampler=_Cycle(256), pin_memory=True)
    batches = iter(endless)

    def step() -> None:
        (x,) = next(batches)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x.cuda(non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, torch.cuda.synchronize


class _Cycle(Endless):
    def __init__(self, size: int) -> None:
        self._size = size

    def __iter__(self) -> Iterator[int]:
        return (index % self._size for index in super().__iter__())


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """torch.profiler always on: host and GPU activities, traces thrown away every ten steps."""
    import torch

    schedule = torch.profiler.schedule(wait=0, warmup=0, active=10)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda _: None) as profiler:
        _hooks.append(profiler.step)
        yield


_hooks: list[Callable[[], Any]] = []


def sized_training() -> tuple[Callable[[], None], Callable[[], None]]:
    from bench.gpu_day.transformer import training

    return training()


def observed() -> dict[str, Any]:
    """Whether ARGUS is in this process, looked up after the steps: where it is not, it has cost nothing."""
    training, control = (sys.modules.get(f"argus_training{part}") for part in ("", ".kernels_control"))
    records = control.KernelsControl().statistics().get("records", 0) if control is not None else 0
    return {
        "attached": getattr(training, "_observer", None) is not None,
        "kernel_records": records,
        "collectives": collectives() if "ARGUS_NCCL_PAGE" in os.environ else 0,
    }


def collectives() -> int:
    """Operations that NCCL's profiler plugin has counted in this process."""
    from argus_core import injection, nccl_page

    descriptor = injection.profiler_memory(os.environ)
    if descriptor is None:
        return 0
    reader = nccl_page.NcclPageReader(os.dup(descriptor))
    try:
        return sum(one.count for group in reader.read().communicators for one in group.operations)
    finally:
        reader.close()


TRAININGS = {"cpu": cpu_training, "cuda": cuda_training, "sized": sized_training}


def main() -> None:
    kind = sys.argv[1]
    with profiled() if "torch_profiler" in sys.argv else contextlib.nullcontext():
        step, wait = TRAININGS[kind]()
        step()
        wait()
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            cpu, everyone, wall = time.thread_time(), time.process_time(), time.perf_counter()
            ends = [wall]
            for _ in range(int(line)):
                step()
                for hook in _hooks:
                    hook()
                if kind == "sized":
                    wait()
                    ends.append(time.perf_counter())
            wait()
            answer: dict[str, Any] = {"cpu_s": time.thread_time() - cpu, "wall_s": time.perf_counter() - wall}
            answer["other_cpu_s"] = time.process_time() - everyone - answer["cpu_s"]
            if kind == "sized":
                answer["steps_s"] = [end - begin for begin, end in itertools.pairwise(ends)]
            print(json.dumps(answer | observed() | {"rss_mb": resident_mb()}), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
