"""Ranks by mp.spawn, whose environment is their parent's: plain DistributedDataParallel."""

import os

import torch
import torch.distributed as dist
from own import SGD, job, model, train
from torch.nn.parallel import DistributedDataParallel


def rank(number: int) -> None:
    job.rank = number
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=2)
    net = DistributedDataParallel(model())
    optimizer = SGD(net.parameters(), lr=0.1)
    train(net, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(rank, nprocs=2)
