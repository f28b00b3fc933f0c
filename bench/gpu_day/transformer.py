"""A transformer in bfloat16 whose step takes about as long as it is told; it knows nothing of ARGUS.

OVERHEAD_STEP_MS       how long a step is to be; micro-batches are added until it is
OVERHEAD_MICRO_BATCHES how many, where that is known already: all processes that are compared do the same work
OVERHEAD_MODE          eager, compile (torch.compile around DDP) or graphs (a step is one CUDA graph)
OVERHEAD_RANKS         of how many ranks it is one, OVERHEAD_RANK which; without them it is alone
OVERHEAD_RENDEZVOUS    the file that the ranks meet in
"""

from __future__ import annotations

import json
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
RANKS = int(os.environ.get("OVERHEAD_RANKS", "1"))
RANK = int(os.environ.get("OVERHEAD_RANK", "0"))
ROWS = 64
VOCABULARY = 1024


class Transformer:
    """The model, its loader and its step; on the CPU tiny, for dry runs."""

    def __init__(self) -> None:
        self.on = device()
        cuda = self.on.torch_device == "cuda"
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.width, self.length, layers = self._size() if cuda else (16, 8, 1)
        layer = torch.nn.TransformerEncoderLayer(
            self.width, 16 if cuda else 2, 4 * self.width, batch_first=True, dropout=0.0
        )
        encoder = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        # Rows of the loader are tokens, as they are elsewhere: rows of numbers to be trained on are 64 MiB a
        # batch, and copying those on the host took a third of a step, with a spread that hid all else.
        self.model: Any = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, self.width), encoder)
        self.model.to(self.on.torch_device)
        if MODE != "graphs":  # DDP's reducer and a captured backward do not go together without care
            meet = os.environ.get("OVERHEAD_RENDEZVOUS") or f"{tempfile.mkdtemp()}/r"
            backend = "nccl" if cuda else "gloo"
            torch.distributed.init_process_group(
                backend, init_method=f"file://{meet}", rank=RANK, world_size=RANKS
            )
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        if MODE == "compile":
            self.model = torch.compile(self.model, backend="inductor" if cuda else "eager")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, capturable=cuda)
        data = torch.utils.data.TensorDataset(torch.randint(VOCABULARY, (ROWS, self.length)))
        sampler = _Rows()
        loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, pin_memory=cuda)
        self.batches = iter(loader)
        self.micro_batches = 1
        self._static = torch.zeros(8, self.length, dtype=torch.int64, device=self.on.torch_device)
        self._replay: Callable[[], object] | None = None

    @staticmethod
    def _size() -> tuple[int, int, int]:
        """Width, length and layers on a GPU, that all processes which take turns must fit."""
        if RANKS > 1:  # gradients of 25 MiB: those of the larger model take most of a second over sockets
            return 512, 512, 2
        # Large enough for the host to be ahead of the GPU.
        return 2048, 1024, 4

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
        # One batch for all: what is measured is not the loader.
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
            self._work_of(MICRO_BATCHES)
            return MICRO_BATCHES
        one = self.seconds()
        self._work_of(2)
        more = self.seconds() - one
        self._work_of(self._agreed(1 + max(0, round((STEP_MS / 1e3 - one) / max(more, 1e-4)))))
        return self.micro_batches

    def _work_of(self, micro_batches: int) -> None:
        """From the next step on; what was captured is of another number."""
        self.micro_batches, self._replay = micro_batches, None

    def _agreed(self, number: int) -> int:
        """The first rank's: with different numbers of all-reduces they would wait for each other for ever."""
        if RANKS == 1:
            return number
        told = torch.tensor([number], device=self.on.torch_device)
        torch.distributed.broadcast(told, 0)
        return int(told.item())


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


def main() -> None:
    """Prints how many micro-batches fill a step, and how long it then is."""
    alone = Transformer()
    with alone.on.on():
        alone.step()
        fitted = alone.fit()
        print(json.dumps({"micro_batches": fitted, "step_s": alone.seconds()}))


if __name__ == "__main__":
    main()
