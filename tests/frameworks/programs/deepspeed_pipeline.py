"""DeepSpeed's PipelineModule: two stages of two blocks each, its schedule of four micro-batches."""

import atexit
import os

# DeepSpeed on gloo aborts as the interpreter is torn down, once in some twenty runs, without ARGUS too.
atexit.register(os._exit, 0)

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.pipe import PipelineModule  # noqa: E402
from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: E402
from own import SGD, STEPS, forever, job, loader, model  # noqa: E402

MICRO_BATCHES = 4
torch.set_num_threads(1)
# It would compile an all-reduce over shared memory, for half a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")

# With what the engine does around the module: ARGUS times its instruction, the whole of it.
DeepSpeedEngine.forward = job.within("forward", DeepSpeedEngine.forward)


def criterion(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with job.timed("forward"):
        return (y - target).square().mean()


net = PipelineModule(list(model(4)), num_stages=2, loss_fn=criterion)
engine, *_ = deepspeed.initialize(
    model=net,
    optimizer=SGD(net.parameters(), lr=0.1),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
batches = ((x, x) for x in forever(loader(14)))
for _ in range(STEPS):
    loss = engine.train_batch(batches)
    job.stepped()
job.finish(loss.item())
torch.distributed.destroy_process_group()
