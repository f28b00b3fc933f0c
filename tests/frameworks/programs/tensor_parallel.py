"""DTensor tensor parallelism of 2: columns, then rows, and an all-reduce in each block."""

import torch
import torch.distributed as dist
from own import SGD, WIDTH, train, work
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(work(self.up(x))))


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
torch.manual_seed(0)
net = torch.nn.Sequential(*(Block() for _ in range(3)))
for block in net:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = SGD(net.parameters(), lr=0.1)
train(net, optimizer)
dist.destroy_process_group()
