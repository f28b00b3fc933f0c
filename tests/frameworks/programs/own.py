"""What the programs share: work that takes a known time, their own timers, and what they say at the end.

A program trains `STEPS` iterations on every rank. In the second half rank 1 works `SLOW` times as long in
forward and backward, so that one run shows both the even job and the one with a slow rank. Work is time
asleep: two ranks on two busy cores then disturb each other less. With `WORK=0` there is none of it: the loss
does not depend on it.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 16
HALF = STEPS // 2
SLOW = 3.0
WORKS = os.environ.get("WORK") != "0"
BLOCK_S = 0.01
"""Of one block, forward and again backward."""
STEP_S = 0.02
FETCH_S = 0.04
"""Long beside what a loader itself takes (.3 to .7 ms a batch), which the timer of `Rows` does not see."""
WIDTH = 16


class Job:
    """Timers and count of one rank."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.ends_ns: list[int] = []
        """Of each iteration, as the program sees it: after its last optimizer step."""
        self.timers: dict[str, list[tuple[int, int]]] = {}

    @property
    def factor(self) -> float:
        return SLOW if self.rank == 1 and len(self.ends_ns) >= HALF else 1.0

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        begin_ns = time.time_ns()
        yield
        self.timers.setdefault(phase, []).append((begin_ns, time.time_ns()))

    def within(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """For what a framework calls."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timed(phase):
                return function(*args, **kwargs)

        return timed

    def stepped(self) -> None:
        self.ends_ns.append(time.time_ns())

    def finish(self, loss: float) -> None:
        """Say the loss for people, and the rest to the test."""
        print(f"rank {self.rank} loss {loss:.17g}\n", end="", flush=True)  # in one piece: ranks share stdout
        if folder := os.environ.get("OWN"):
            told = {"ends_ns": self.ends_ns, "timers": self.timers}
            (Path(folder) / f"{self.rank}.json").write_text(json.dumps(told))
        # A thread of gloo needs the GIL to let go of the last collective. Where the interpreter ends before,
        # torch 2.13 aborts ("terminate called without an active exception"), one time in four.
        time.sleep(0.05)


job = Job()


def busy(seconds: float) -> None:
    if WORKS:
        time.sleep(seconds)


@torch.library.custom_op("own::work", mutates_args=())
def work(x: Tensor) -> Tensor:
    """Takes its time forward and backward; opaque to compilers, as a library's kernel is."""
    busy(BLOCK_S * job.factor)
    return x.clone()


@torch.library.custom_op("own::work_backward", mutates_args=())
def work_backward(gradient: Tensor) -> Tensor:
    busy(BLOCK_S * job.factor)
    return gradient.clone()


work.register_fake(torch.empty_like)
work_backward.register_fake(torch.empty_like)
work.register_autograd(lambda _, gradient: work_backward(gradient))


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(work(self.linear(x)))


def model(blocks: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(blocks)))


class SGD(torch.optim.SGD):
    """Its update takes its time."""

    @torch.no_grad()
    def step(self, closure: object = None) -> object:
        with job.timed("optimizer"):
            loss = super().step(closure)
            busy(STEP_S)
        return loss


class Rows(torch.utils.data.Dataset[Tensor]):
    """Rows of another seed on each rank; a fetch takes its time."""

    fetch_s = FETCH_S

    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(job.rank)
        self.rows = torch.randn(rows, WIDTH, generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        with job.timed("fetch"):
            busy(self.fetch_s)
            return [self.rows[index] for index in indices]


def loader(batches: int, size: int = 4) -> torch.utils.data.DataLoader[Tensor]:
    return torch.utils.data.DataLoader(Rows(batches * size), batch_size=size, collate_fn=collate)


def collate(rows: list[Tensor]) -> Tensor:
    with job.timed("fetch"):
        return torch.stack(rows)


def train(
    net: nn.Module, optimizer: torch.optim.Optimizer, clip: Callable[[], object] = lambda: None
) -> None:
    """The plain loop of a step a batch, and what is said at its end."""
    batches = forever(loader(10))
    for _ in range(STEPS):
        x = next(batches)
        with job.timed("forward"):
            loss = net(x).square().mean()
        with job.timed("backward"):
            loss.backward()
        clip()
        optimizer.step()
        optimizer.zero_grad()
        job.stepped()
    job.finish(loss.item())


def forever(loader: torch.utils.data.DataLoader[Tensor]) -> Iterator[Tensor]:
    """Epoch after epoch. A loop of the program's own is timed where it asks for a batch.

    Where a framework asks, only `Rows` can be timed ("fetch"): what the loader itself takes is then outside.
    """
    while True:
        batches = iter(loader)
        while True:
            with job.timed("data"):
                batch = next(batches, None)
            if batch is None:
                break
            yield batch
