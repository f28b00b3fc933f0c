"""Work that nobody tells: counted from the shapes of what the model is called with."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from .jobs import run_rank
from .reader import Reader, Said

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOKENS = torch.zeros(8, 512, dtype=torch.int64)
IMAGES = torch.zeros(4, 3, 8, 8)
LENGTHS = torch.nested.nested_tensor([torch.zeros(3, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)])


def counted(*args: Any, **kwargs: Any) -> dict[str, float]:
    from argus_training.torch_hooks.input_work import counter

    found: defaultdict[str, float] = defaultdict(float)
    counter(torch, found)((object(), *args), kwargs)
    return found


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((TOKENS,), {}, {"tokens": 4096, "samples": 8}),
        ((TOKENS, TOKENS), {"labels": IMAGES}, {"tokens": 4096, "samples": 8}),
        ((), {"attention_mask": IMAGES, "input_ids": TOKENS}, {"tokens": 4096, "samples": 8}),
        (({"pixel_values": IMAGES, "labels": TOKENS},), {}, {"samples": 4}),
        (([TOKENS, IMAGES], 3), {}, {"tokens": 4096, "samples": 8}),
        ((TOKENS[0],), {}, {"tokens": 512}),
        (
            (),
            {"input_ids": TOKENS[:1], "cu_seq_lens_q": torch.tensor([0, 12, 412, 512])},
            {"tokens": 512, "samples": 1, "attention_pairs": 12**2 + 400**2 + 100**2},
        ),
        (
            (),
            {"input_ids": TOKENS[:1], "cu_seq_lens_q": torch.tensor([0, 12, 512], device="meta")},
            {"tokens": 512, "samples": 1},
        ),
        ((IMAGES,), {}, {"samples": 4}),
        ((), {"inputs_embeds": IMAGES}, {"samples": 4}),
        ((LENGTHS,), {}, {"tokens": 8, "samples": 2}),
        ((LENGTHS.float(),), {}, {"samples": 2}),
        (
            (torch.nested.as_nested_tensor(list(LENGTHS.unbind()), layout=torch.jagged),),
            {},
            {"tokens": 8, "samples": 2},
        ),
        ((torch.tensor(3),), {}, {}),
        (("text",), {"return_dict": True}, {}),
        ((), {}, {}),
    ],
    ids=[
        "positional",
        "several",
        "named",
        "a dict",
        "a batch",
        "packed",
        "packed, with lengths",
        "packed, with lengths elsewhere than on the host",
        "images",
        "embedded",
        "nested",
        "nested, no tokens",
        "nested, jagged",
        "a number",
        "text",
        "none",
    ],
)
def test_shapes_tell_the_work(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, float]
) -> None:
    """The first tensor, or one of the names that models use; never a mask or labels."""
    assert counted(*args, **kwargs) == expected


MODEL = """
import torch
import argus_training
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 1)
    def forward(self, input_ids=None, labels=None):
        return self.head(self.embed(input_ids)).sum()
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def ran(program: str, reader: Reader) -> Said:
    result = run_rank(MODEL + program, reader.path)
    assert (result.returncode, result.stderr) == (0, "")
    return reader.ended()


def test_tokens_of_training_forwards_are_counted(reader: Reader) -> None:
    """Of all that are seen (from the second step on), micro-batches of any length; evaluation is no work."""
    program = """
for step in range(21):
    for length in (4, 6):
        model(input_ids=torch.ones(2, length, dtype=torch.long), labels=None).backward()
    optimizer.step()
    with torch.no_grad():
        model.eval()(input_ids=torch.ones(2, 100, dtype=torch.long))
        model.train()
"""
    assert ran(program, reader).work == {"tokens": 20 * 2 * 10, "samples": 20 * 2 * 2}


def test_what_the_user_tells_is_all_that_counts(reader: Reader) -> None:
    """They know what is padding; from their first call on."""
    program = """
for step in range(11):
    argus_training.work("tokens", 5)
    model(input_ids=torch.ones(2, 4, dtype=torch.long)).backward()
    optimizer.step()
"""
    assert ran(program, reader).work == {"tokens": 55}


EXPERTS = """
import sys, types
experts = types.ModuleType("megatron.core.transformer.moe.experts")
class GroupedMLP(torch.nn.Module):
    def forward(self, permuted_local_hidden_states, tokens_per_expert):
        return permuted_local_hidden_states * 2
experts.GroupedMLP = GroupedMLP
from argus_training import _observer
hook = next(one for one in _observer.hooks if one.name == "megatron")
hook._attach_experts(experts)
layer = GroupedMLP()
for step in range(6):
    x = torch.ones(7 + step, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, None, use_reentrant=step % 2 == 0).sum().backward()
    model(input_ids=torch.ones(1, 1, dtype=torch.long)).backward()
    optimizer.step()
    layer.eval()(x, None)
    layer.train()
"""


def test_tokens_routed_to_the_experts_of_a_rank_are_counted(reader: Reader) -> None:
    """Once: neither when checkpointing runs them again, nor in evaluation."""
    program = "import warnings, torch.utils.checkpoint\nwarnings.simplefilter('ignore')\n" + EXPERTS
    assert ran(program, reader).work["routed_tokens"] == sum(7 + step for step in range(6))


def test_each_call_is_added_to_what_was_counted_before() -> None:
    from argus_training.torch_hooks.input_work import counter

    totals = defaultdict(float, {"tokens": 1.0, "samples": 2.0})
    count = counter(torch, totals)
    count((object(), TOKENS), {})
    count((object(), IMAGES), {})
    assert totals == {"tokens": 4097.0, "samples": 14.0}
