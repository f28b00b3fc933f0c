"""Reinforcement learning: the trained model, within DDP, generates between its steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argus_core.wire import Activity
from training.jobs import environment, run
from training.reader import Reader, until

from .measured import PACKAGES, forked, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

ROUNDS, UPDATES = 4, 3
PROGRAM = f"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1)
torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
sizes = dict(n_layer=2, n_embd=16, n_head=2, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
reference = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
policy = torch.nn.parallel.DistributedDataParallel(GPT2LMHeadModel(GPT2Config(**sizes)))
optimizer = torch.optim.AdamW(policy.parameters())
prompts = torch.ones(2, 4, dtype=torch.int64)
def generate(model):
    return model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=8, pad_token_id=0
    )
def update(samples):
    loss = policy(input_ids=samples, labels=samples).loss
    with torch.no_grad():
        reference(input_ids=samples)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for round in range({ROUNDS}):
    samples = generate(policy.module)
    reference(input_ids=samples)
    for _ in range({UPDATES}):
        update(samples)
generate(reference)
torch.distributed.barrier()
del policy, optimizer
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""


def test_a_rollout_is_an_activity_and_no_iteration(tmp_path: Path) -> None:
    """Of the model that is trained, once it is known by its first step; iterations are the inner steps."""
    if not PACKAGES.is_dir():
        pytest.skip("the frameworks are not installed (make frameworks)")
    script = tmp_path / "rollout.py"
    script.write_text(PROGRAM)
    with Reader(tmp_path / "s") as reader:
        env = environment(reader.path, ARGUS_WARMUP_ITERATIONS="0", ARGUS_FLUSH_MILLISECONDS="0")
        env |= {"PYTHONPATH": f"{env['PYTHONPATH']}{os.pathsep}{PACKAGES}"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = run(forked("transformers.models.gpt2.modeling_gpt2", "torch._dynamo")(str(script)), env)
        assert done.returncode == 0, done.stderr
        for rank in (0, 1):
            said = reader.ranks[rank]
            until(lambda said=said: said.exit_status is not None, "BYE")  # type: ignore[misc]
            changes = [one for at, one in enumerate(said.activities) if said.activities[at - 1 : at] != [one]]
            assert changes == [Activity.TRAIN, *(Activity.ROLLOUT, Activity.TRAIN) * (ROUNDS - 1)]
            assert len(said.iterations) == ROUNDS * UPDATES
            assert said.work["tokens"] == (ROUNDS * UPDATES - 1) * 2 * 12
