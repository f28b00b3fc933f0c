"""FullyShardedDataParallel, each block a unit of its own."""

import warnings

import torch
import torch.distributed as dist
from own import SGD, Block, model, train
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

torch.set_num_threads(1)
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
net = FullyShardedDataParallel(
    model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu")
)
optimizer = SGD(net.parameters(), lr=0.1)
train(net, optimizer, clip=lambda: net.clip_grad_norm_(1.0))
dist.destroy_process_group()
