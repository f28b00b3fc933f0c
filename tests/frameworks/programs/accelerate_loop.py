"""accelerate: its loop with `accumulate`; its loader looks ahead, and epochs end within an accumulation."""

import itertools

import torch
from accelerate import Accelerator
from own import SGD, STEPS, job, loader, model

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = model()
inner = SGD(net.parameters(), lr=0.1)
net, optimizer, batches = accelerator.prepare(net, inner, loader(10))
while len(job.ends_ns) < STEPS:
    for x in itertools.islice(batches, 2 * (STEPS - len(job.ends_ns))):
        with accelerator.accumulate(net):
            with job.timed("forward"):
                loss = net(x).square().mean()
            with job.timed("backward"):
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                job.stepped()
job.finish(loss.item())
accelerator.end_training()
