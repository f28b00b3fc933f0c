"""An ordinary data-parallel training script: fine-tunes the last layers of a small transformer on the CPU.

    torchrun --nproc-per-node 4 tests/training/train.py

AdamW, DistributedDataParallel, gloo. It knows nothing of what may observe it. STEPS (0: until SIGTERM or
STOP_FILE exists), WIDTH, FROZEN, TRAINED (layers), BATCH, LENGTH and ACCUMULATE set its size. A degraded
machine is part of the test: from step SLOW_FROM on, or while SLOW_FILE exists, rank SLOW_RANK needs
SLOW_FACTOR times the work of the frozen layers, as a processor at a lower clock would.
"""

import gc
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def number(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


STEPS = int(number("STEPS", 0))
WIDTH = int(number("WIDTH", 128))
FROZEN = int(number("FROZEN", 6))
TRAINED = int(number("TRAINED", 1))
BATCH = int(number("BATCH", 4))
LENGTH = int(number("LENGTH", 128))
ACCUMULATE = int(number("ACCUMULATE", 1))
CLASSES = 16


class Sequences(Dataset[tuple[Tensor, Tensor]]):
    """Random sequences whose label depends on their mean."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(LENGTH, WIDTH, generator=generator)
        return x, (x.mean() * 100).long().abs() % CLASSES


class Degradation(nn.Module):
    """A rank that became slower: real work on the processor, repeated, from a step or while a file exists."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.slow = rank == int(number("SLOW_RANK", -1))
        self.factor = number("SLOW_FACTOR", 3.0)
        self.from_step = int(number("SLOW_FROM", -1))
        self.file = os.environ.get("SLOW_FILE")
        self.calls = 0

    def repeats(self, layers: int) -> int:
        """How many of `layers` layers to compute once more in this call."""
        self.calls += 1
        reached = 0 <= self.from_step < self.calls
        if self.slow and (reached or (self.file and Path(self.file).exists())):
            return round((self.factor - 1) * layers)
        return 0


class Model(nn.Module):
    """Frozen layers below, trained layers above."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.frozen = nn.ModuleList(block() for _ in range(FROZEN)).requires_grad_(False)
        self.trained = nn.ModuleList(block() for _ in range(TRAINED))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.degradation = Degradation(rank)

    def forward(self, x: Tensor) -> Tensor:
        repeats = self.degradation.repeats(len(self.frozen))
        with torch.no_grad():
            for index in range(repeats):
                self.frozen[index % len(self.frozen)](x)
            for layer in self.frozen:
                x = layer(x)
        for layer in self.trained:
            x = layer(x)
        return self.head(x.mean(1))


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stop = False

    def on_sigterm(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_sigterm)
    model = DistributedDataParallel(Model(rank))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Sequences(), batch_size=BATCH)
    stop_file = os.environ.get("STOP_FILE")
    batches = iter(loader)
    step = 0
    while not STEPS or step < STEPS:
        for part in range(ACCUMULATE):
            x, y = next(batches)
            if part < ACCUMULATE - 1:
                with model.no_sync():
                    criterion(model(x), y).backward()
            else:
                loss = criterion(model(x), y)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 10 == 0:
            # All ranks stop at the same step, and the loss is that of all of them.
            wants_stop = stop or bool(stop_file and Path(stop_file).exists())
            report = torch.tensor([float(wants_stop), loss.item()])
            dist.all_reduce(report)
            if rank == 0 and step % 100 == 0:
                print(f"step {step} loss {report[1].item() / dist.get_world_size():.4f}", flush=True)
            if report[0] > 0:
                break
    if rank == 0:
        print(f"finished after {step} steps", flush=True)
    # DistributedDataParallel lies in reference cycles; where it outlives its process group, gloo ends the
    # process with `terminate called` about one time in seven (PyTorch 2.13, without any observer).
    del model, optimizer, batches, loader
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
