"""torch.distributed.pipelining: two stages, 1F1B of four micro-batches, two blocks each."""

import torch
import torch.distributed as dist
from own import SGD, STEPS, forever, job, loader, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))


class Stage(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with job.timed("forward"):
            return super().forward(x)


net = Stage(*model(4)[2 * job.rank : 2 * job.rank + 2])
stage = PipelineStage(net, job.rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, target: (y - target).square().mean())
optimizer = SGD(net.parameters(), lr=0.1)
batches = forever(loader(10, size=8))
for _ in range(STEPS):
    x = next(batches)
    losses: list[torch.Tensor] = []
    if job.rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x, losses=losses)
    optimizer.step()
    optimizer.zero_grad()
    job.stepped()
job.finish(sum(one.item() for one in losses))
dist.destroy_process_group()
