"""One of two ranks on one device that calls known numbers of NCCL's operations, and prints them as JSON.

python -m bench.gpu_day.nccl_ranks FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Final

import torch
import torch.distributed

ROUNDS: Final = 20
ELEMENTS: Final = 4096
CALLED: Final = {"AllReduce": 2 * ROUNDS, "AllGather": ROUNDS, "ReduceScatter": ROUNDS}
"""By the loop below, whose second all-reduce is asynchronous."""


def main() -> None:
    folder, rank = sys.argv[1], int(os.environ["RANK"])
    torch.distributed.init_process_group(
        "nccl",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=2,
        timeout=timedelta(minutes=4),
    )
    whole = torch.ones(2 * ELEMENTS, device="cuda")
    half = torch.ones(ELEMENTS, device="cuda")
    for _ in range(ROUNDS):
        torch.distributed.all_reduce(half)
        waiting = torch.distributed.all_reduce(whole, async_op=True)
        waiting.wait()
        torch.distributed.all_gather_into_tensor(whole, half)
        torch.distributed.reduce_scatter_tensor(half, whole)
        if rank == 0:
            torch.distributed.send(half, 1)
        else:
            torch.distributed.recv(half, 0)
    torch.cuda.synchronize()
    print(json.dumps(CALLED | {"Send" if rank == 0 else "Recv": ROUNDS}), flush=True)
    sys.stdin.read()  # until the step has read the memory
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
