"""DeepSpeed's engine, ZeRO stage by the first argument."""

import atexit
import os
import sys

# DeepSpeed on gloo aborts as the interpreter is torn down, once in some twenty runs, without ARGUS too.
atexit.register(os._exit, 0)

import deepspeed  # noqa: E402
import torch  # noqa: E402
from own import SGD, STEPS, forever, job, loader, model  # noqa: E402

torch.set_num_threads(1)
stage = int(next(one for one in sys.argv[1:] if one.isdecimal()))  # its launcher adds --local_rank=
# It would compile an all-reduce over shared memory, for half a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
net = model()
engine, *_ = deepspeed.initialize(
    model=net,
    optimizer=SGD(net.parameters(), lr=0.1),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
batches = forever(loader(14))
for _ in range(STEPS):
    for _ in range(2):
        x = next(batches)
        with job.timed("forward"):
            loss = engine(x).square().mean()
        with job.timed("backward"):
            engine.backward(loss)
        with job.timed("step"):
            engine.step()
    job.stepped()
job.finish(loss.item())
torch.distributed.destroy_process_group()
