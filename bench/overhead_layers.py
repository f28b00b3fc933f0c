"""What the marks of layers cost a step: the gate of every call, and the samples.

    python -m bench.overhead_layers [--turns N]

A model of 80 layers with a core attention and an MLP each, 8 micro-batches a step: 1,280 calls that pass our
gate, 8 of them sampled, in each step. The marks are put in and taken out in turns inside one process, and
what is counted is the time of the calls alone, of modules that do nothing. Before each call the thread does
what it does for a layer of a model on a GPU: it dispatches operations of torch, here on tensors so small that
little else is left of them. `layers_share` is of a step of one second, the median over the turns. The last
line is JSON and has the seconds of a step too, also of calls back to back (`warm`), and after 4 MiB have been
written before each (`evicted`), the worst there is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from bench.overhead import environments, reading

LAYERS: Final = 80
MICROBATCHES: Final = 8
STEP_S: Final = 1.0
_WARM_UP: Final = 14
"""Steps before the first turn: an iteration is known by then."""
_EVICTED_BYTES: Final = 4 << 20  # more than a core's own caches hold
BETWEEN: Final = ("dispatch", "warm", "evicted")
"""What the thread does between two calls."""


class Marked:
    """A training whose layers are marked, as they were found attached, or not.

    Args:
        between: one of `BETWEEN`.
    """

    def __init__(self, between: str) -> None:
        import torch

        torch.set_num_threads(1)
        other_work = _other_work(torch, between)
        clock = time.perf_counter
        marked = self

        class Attention(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x

        class MLP(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x

        class Layer(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.core_attention, self.mlp = Attention(), MLP()

        class Model(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = torch.nn.ModuleList([Layer() for _ in range(LAYERS)])
                self.head = torch.nn.Linear(8, 1)

            def forward(self, x: Any) -> Any:
                for layer in self.layers:
                    for part in (layer.core_attention, layer.mlp):
                        other_work()
                        begin = clock()
                        part(x)
                        marked.spent_s += clock() - begin
                return self.head(x)

        self._model = Model()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._x = torch.ones(4, 8)
        self._classes = (Attention, MLP)
        self.spent_s = 0.0
        for _ in range(_WARM_UP):
            self.step()
        self._wrappers = [vars(class_)["__call__"] for class_ in self._classes]

    def step(self) -> float:
        """Seconds in the calls of layers in one step."""
        self.spent_s = 0.0
        for _ in range(MICROBATCHES):
            self._model(self._x).sum().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return self.spent_s

    def out(self) -> None:
        for class_ in self._classes:
            del class_.__call__

    def put_in(self) -> None:
        for class_, wrapper in zip(self._classes, self._wrappers, strict=True):
            class_.__call__ = wrapper  # type: ignore[method-assign]


def _other_work(torch: Any, between: str) -> Callable[[], object]:
    if between == "evicted":
        large = torch.zeros(_EVICTED_BYTES, dtype=torch.uint8)
        return lambda: large.add_(1)
    if between == "warm":
        return lambda: None
    x, weight, ones = torch.randn(8, 16), torch.randn(16, 16), torch.ones(16)
    functional = torch.nn.functional

    def dispatch() -> object:
        """Fifteen operations, as of an attention or an MLP."""
        with torch.no_grad():
            normed = functional.layer_norm(x, (16,), ones)
            queries, keys, values = (functional.linear(normed, weight).view(2, 4, 16) for _ in range(3))
            weights = torch.softmax(queries @ keys.transpose(1, 2), -1)
            mixed = functional.linear((weights @ values).reshape(8, 16), weight)
            return functional.gelu(functional.dropout(mixed, 0.1) + x)

    return dispatch


def inside(turns: int, between: str) -> dict[str, float]:
    """In an attached process: seconds that the marks add to a step."""
    from argus_training import layer_plan

    layer_plan.SPACING_NS = 0  # as where a step takes a second: each has its samples
    marked = Marked(between)
    added, with_, without = [], [], []
    for _ in range(turns):
        with_.append(marked.step())
        marked.out()
        without.append(marked.step())
        marked.put_in()
        added.append(with_[-1] - without[-1])
    return {"median": median(added), "of_minima": min(with_) - min(without), "calls_s": median(without)}


def layers_share(turns: int) -> dict[str, Any]:
    """The share of a step of one second, and what it was made of: seconds a step, by what lies between."""
    found = {}
    with reading() as path:
        for name in BETWEEN:
            command = [sys.executable, "-m", "bench.overhead_layers", "--inside", name, "--turns", str(turns)]
            environment = environments(path)["phases"] | {"ARGUS_WARMUP_ITERATIONS": "0"}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return {
        "layers_share": round(found["dispatch"]["median"] / STEP_S, 6),
        "calls": LAYERS * MICROBATCHES * 2,
        "seconds": {
            name: {key: round(value, 6) for key, value in one.items()} for name, one in found.items()
        },
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=40, help="steps with and without (default: 40)")
    parser.add_argument("--inside", choices=BETWEEN, help=argparse.SUPPRESS)
    args = parser.parse_args()
    answer = inside(args.turns, args.inside) if args.inside else layers_share(args.turns)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
