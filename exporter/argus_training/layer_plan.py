"""Which layers are sampled in a step, and in which micro-batch: drawn by the step's number alone.

All ranks of a role have the same layers and count the same steps, so they sample the same work and their
means compare. Steps without samples lie between where steps are short: so many that samples are 0.2 to 0.8 s
apart. Every layer is drawn as often as any other.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Sequence
from typing import Any, Final

from argus_training.spans import LayerSample

LAYERS_A_STEP: Final = 4
"""Of each kind. On a GPU a sample is two events, some 10 us: of four kinds 0.2 ms, below 0.1 % of 0.2 s."""
SPACING_NS = 200_000_000
_CALL_NS: Final = 300
"""What a layer's call costs that is not sampled. Source: `layers_share` of bench.overhead."""


def layers_of(step: int, layers: int) -> list[int]:
    """Up to four of so many layers, evenly spread."""
    shift, chosen = _drawn(step), min(layers, LAYERS_A_STEP)
    return [(shift + part * layers // chosen) % layers for part in range(chosen)]


def microbatch_of(step: int, microbatches: int) -> int:
    """The first, a middle one or the last.

    The first finds a pipeline that fills and cold caches, the last overlaps with the reduction of gradients;
    those between are alike but for their data.
    """
    return (0, microbatches // 2, microbatches - 1)[(_drawn(step) >> 16) % 3]


def _drawn(step: int) -> int:
    """32 bits that look drawn by lot: steps at any distance have nothing in common."""
    return zlib.crc32(step.to_bytes(8, "little"))


class Model:
    """What is called once in each micro-batch and calls layers: a model, or a chunk of it.

    Args:
        layers: kind and module, in the order of the model.
    """

    __slots__ = ("calls", "kinds", "microbatches", "step")

    def __init__(self, layers: Sequence[tuple[str, Any]]) -> None:
        self.kinds: dict[str, list[weakref.ref[Any]]] = {}
        for kind, module in layers:
            self.kinds.setdefault(kind, []).append(weakref.ref(module))
        self.step = -1
        """The one that `calls` counts in."""
        self.calls = 0
        self.microbatches = 1
        """In the latest step before in which it was called."""


class LayerPlan:
    """Chooses, from the beginnings of steps and micro-batches, what is sampled."""

    __slots__ = ("_every", "_sampled_ns", "armed", "cost_ns", "samples", "step")

    def __init__(self) -> None:
        self._every = 1
        """Each so-manieth step is sampled: a power of two, alike on all ranks, since they step together."""
        self._sampled_ns = 0
        self.step = -1
        """The one that has begun."""
        self.samples = False
        """It is one of samples."""
        self.armed: dict[int, LayerSample] = {}
        """What the next call of a module (its id) is a sample of. Always the same dict, nearly always empty:
        each call of a layer looks at it."""
        self.cost_ns = 0
        """What the calls of layers have cost, about."""

    def begin(self, step: int, now_ns: int, *, warm: bool) -> None:
        """A step begins, from 0 on. It may be one of samples once warm-up is over."""
        self.step = step
        self.samples = warm and step % self._every == 0
        if self.samples:
            # Twice or half as many steps lie between from here on, where this one came soon or late.
            since, self._sampled_ns = now_ns - self._sampled_ns, now_ns
            if since < SPACING_NS:
                self._every *= 2
            elif since > 4 * SPACING_NS and self._every > 1:
                self._every //= 2

    def microbatch(self, model: Model, *, room: bool = True) -> None:
        """A micro-batch of the step begins in the model: arm its layers, if it is the one that is sampled.

        Args:
            room: samples can be kept until they are sent.
        """
        if model.step != self.step:
            model.step, model.microbatches, model.calls = self.step, model.calls or model.microbatches, 0
        number = model.calls
        model.calls += 1
        self.armed.clear()
        samples = room and self.samples and number == microbatch_of(self.step, model.microbatches)
        for kind, modules in model.kinds.items():
            self.cost_ns += len(modules) * _CALL_NS
            for index in layers_of(self.step, len(modules)) if samples else ():
                module = modules[index]()
                if module is not None:
                    self.armed[id(module)] = LayerSample(kind, index, number)
