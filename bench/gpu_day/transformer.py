"""A transformer in bfloat16 whose step takes about as long as it is told; it knows nothing of ARGUS.

OVERHEAD_STEP_MS       how long a step is to be; micro-batches are added until it is
OVERHEAD_MICRO_BATCHES how many, where that is known already: all processes that are compared do the same work
OVERHEAD_MODE          eager, compile (torch.compile around DDP) or graphs (a step is one CUDA graph)"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.gpu_day.device import device
from bench.overhead_worker import Endless

STEP_MS = float(os.environ.get("OVERHEAD_STEP_MS", "50"))
MICRO_BATCHES = int(os.environ.get("OVERHEAD_MICRO_BATCHES", "0"))
MODE = os.environ.get("OVERHEAD_MODE", "eager")
ROWS = 64


class Transformer:
    """The model, its loader and its step; on the CPU tiny, for dry runs."""

    def __init__(self) -> None:
        self.on = device()
        cuda = self.on.torch_device == "cuda"
        torch.set_num_threads(1)
        torch.manual_seed(0)
        # Deeper for long steps, so that they are no hundreds of micro-batches; four processes must fit a GPU.
        self.width, self.length, layers = (1024, 512, 24 if STEP_MS > 100 else 6) if cuda else (16, 8, 1)
        layer = torch.nn.TransformerEncoderLayer(
            self.width, 16 if cuda else 2, 4 * self.width, batch_first=True, dropout=0.0
        )
        self.model: Any = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.model.to(self.on.torch_device)
        if MODE != "graphs":  # DDP's reducer and a captured backward do not go together without care
            folder = tempfile.mkdtemp()
            backend = "nccl" if cuda else "gloo"
            torch.distributed.init_process_group(
                backend, init_method=f"file://{folder}/r", rank=0, world_size=1
            )
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        if MODE == "compile":
            self.model = torch.compile(self.model, backend="inductor" if cuda else "eager")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, capturable=cuda)
        data = torch.utils.data.TensorDataset(torch.randn(ROWS, self.length, self.width))
        sampler = _Rows()
        loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, pin_memory=cuda)
        self.batches = iter(loader)
        self.micro_batches = 1
        self._static = torch.randn(8, self.length, self.width, device=self.on.torch_device)
        self._replay: Callable[[], object] | None = None

    def _work(self, x: Any) -> None:
        with torch.autocast(self.on.torch_device, torch.bfloat16):
            loss = self.model(x).float().square().mean()
        loss.backward()

    def _captured(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        for _ in range(self.micro_batches):
            self._work(self._static)
        self.optimizer.step()

    def step(self) -> None:
        if MODE == "graphs":
            (x,) = next(self.batches)
            self._static.copy_(x, non_blocking=True)
            if self._replay is None:
                self._replay = self.on.graph(self._captured)
            self._replay()
            return
        # One batch for all: a loader that copies one for each would keep the GPU waiting.
        (x,) = next(self.batches)
        x = x.to(self.on.torch_device, non_blocking=True)
        for _ in range(self.micro_batches):
            self._work(x)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self) -> float:
        """Of a step, the quickest of five."""
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            self.step()
            self.on.synchronize()
            taken.append(time.perf_counter() - began)
        return min(taken)

    def fit(self) -> int:
        """As many micro-batches as fill the wanted time."""
        if MICRO_BATCHES:
            self.micro_batches = MICRO_BATCHES
            return MICRO_BATCHES
        one = self.seconds()
        self._replay = None
        self.micro_batches = 2
        more = self.seconds() - one
        self._replay = None
        self.micro_batches = 1 + max(0, round((STEP_MS / 1e3 - one) / max(more, 1e-4)))
        return self.micro_batches


class _Rows(Endless):
    def __iter__(self) -> Any:
        return (index % ROWS for index in super().__iter__())


def training() -> tuple[Callable[[], None], Callable[[], None]]:
    """A step, and what waits for it."""
    made = Transformer()
    made.on.on().__enter__()  # for the life of the process
    made.step()
    made.fit()
    return made.step, made.on.synchronize


if __name__ == "__main__":
    alone = Transformer()
    with alone.on.on():
        alone.step()
        print(alone.fit())
