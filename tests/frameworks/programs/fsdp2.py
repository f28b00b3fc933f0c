"""fully_shard of each block and the root, gradients clipped."""

import torch
import torch.distributed as dist
from own import SGD, model, train
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo")
net = model()
for block in net:
    fully_shard(block)
fully_shard(net)
optimizer = SGD(net.parameters(), lr=0.1)
train(net, optimizer, clip=lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0))
dist.destroy_process_group()
