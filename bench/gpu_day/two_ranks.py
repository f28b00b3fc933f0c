"""Two ranks of a data-parallel training on one device, which hang in the end.

    python -m bench.gpu_day.two_ranks FOLDER [away | diverging | inside]

away: the second stays away from the last step, whose collective the first has called, by DDP and so from C++.
A thread of each then writes what torch's flight recorder says, FOLDER/recorder.RANK.json.
diverging: under one number one waits for a broadcast of the other, which waits for what is to be reduced to
it. Neither sends, so neither can end, whatever a backend makes of the pair.
inside: both call an all-reduce, the first once FOLDER/go is there; by then the second has been stopped in it.
Each says `trained N`, with the number of its last collective by the flight recorder, and hangs once
FOLDER/call is there.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed
from torch._C import _distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from bench.gpu_day.device import device
from bench.gpu_day.flight import last_collective

STEPS: Final = 20


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    on = device()
    torch.distributed.init_process_group(
        "nccl" if on.torch_device == "cuda" else "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=2,
        timeout=timedelta(minutes=10),
    )
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(32, 32).to(on.torch_device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 32, device=on.torch_device)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        on.synchronize()

    for _ in range(STEPS):
        step()
        torch.distributed.all_reduce(batch[0].clone())
    on.synchronize()
    print("trained", last_collective(_recorded()), flush=True)
    how = sys.argv[2] if len(sys.argv) > 2 else "away"
    if how == "away":
        record = threading.Thread(target=_record, args=(folder, rank))
        record.start()
        _wait_for(folder / "call")
        if rank == 0:
            step()
        record.join()
    elif how == "diverging":
        _wait_for(folder / "call")
        call = torch.distributed.reduce if rank == 1 else torch.distributed.broadcast
        call(batch[0].clone(), 1)
    else:
        _wait_for(folder / ("go" if rank == 0 else "call"))
        torch.distributed.all_reduce(batch[0].clone())
    on.synchronize()
    threading.Event().wait()


def _record(folder: Path, rank: int) -> None:
    """When the file `ask` is there: by then the first rank waits."""
    _wait_for(folder / "ask")
    written = folder / f"recorder.{rank}.part"
    written.write_text(_recorded())
    written.rename(folder / f"recorder.{rank}.json")


def _recorded() -> str:
    said = [dump(includeCollectives=True, onlyActive=False) for dump in _recorders()]
    texts = [one.decode() if isinstance(one, bytes) else one for one in said]
    return max(texts, key=lambda text: len(json.loads(text).get("entries", ())))


def _recorders() -> list[Callable[..., Any]]:
    """All that this torch has: one alone has the collectives of our backend."""
    plain = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    nccl = getattr(_distributed_c10d, "_dump_nccl_trace_json", None)
    found = [one for one in (plain, nccl) if one is not None]
    if plain is not None and "backend:" in (plain.__doc__ or ""):  # since torch 2.15
        found.append(functools.partial(plain, backend="nccl2"))
    return found


def _wait_for(path: Path) -> None:
    while not path.exists():
        threading.Event().wait(0.05)


if __name__ == "__main__":
    main()
