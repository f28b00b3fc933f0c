"""torch.compile of the module, of its blocks, of DDP or of the whole step, by the first argument."""

import sys
from typing import Any

import torch
import torch.distributed as dist
from own import SGD, STEPS, forever, job, loader, model, train
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
what = sys.argv[1]
dist.init_process_group("gloo")
inner = model()
net: Any = inner
if what == "module":
    net = DistributedDataParallel(torch.compile(inner, backend="aot_eager"))
elif what == "block":
    for block in inner:
        block.compile(backend="aot_eager")
    net = DistributedDataParallel(inner)
elif what == "ddp":
    net = torch.compile(DistributedDataParallel(inner), backend="aot_eager")
else:
    net = DistributedDataParallel(inner)
if what == "step":  # its clock is no part of a graph
    SGD.step = torch.compiler.disable(SGD.step)
optimizer = SGD(net.parameters(), lr=0.1)

if what != "step":
    train(net, optimizer)
else:

    @torch.compile(backend="aot_eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    batches = forever(loader(10))
    for _ in range(STEPS):
        loss = step(next(batches))
        job.stepped()
    job.finish(loss.item())
dist.destroy_process_group()
