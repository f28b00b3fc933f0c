"""DistributedDataParallel: accumulation of 2 with no_sync, gradient scaling, checkpointing, BatchNorm."""

import contextlib

import torch
import torch.distributed as dist
from own import SGD, STEPS, WIDTH, Block, forever, job, loader, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = model(2)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.last = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.last, self.norm(self.blocks(x)), use_reentrant=False)


dist.init_process_group("gloo")
net = DistributedDataParallel(Net())
optimizer = SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
batches = forever(loader(14))  # epochs that end in the middle of an iteration's accumulation
for _ in range(STEPS):
    for last in (False, True):
        x = next(batches)
        with contextlib.nullcontext() if last else net.no_sync():
            with job.timed("forward"):
                loss = net(x).square().mean()
            with job.timed("backward"):
                scaler.scale(loss / 2).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    job.stepped()
job.finish(loss.item())
dist.destroy_process_group()
