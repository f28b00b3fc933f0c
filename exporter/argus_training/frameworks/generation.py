"""Rollouts: the trained model generates samples between steps, as in loops of reinforcement learning.

Patched: `GenerationMixin.generate` of transformers, which TRL and others call on the model itself, so that no
call of the module that is trained (a DDP around it) tells. Generation by an engine of its own, in this
process or another, is not seen.
"""

from __future__ import annotations

import functools
from typing import Any

from argus_training.hook import Hook


class GenerationHook(Hook):
    name = "generation"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (attached to what may be imported later)
        self.when_imported("transformers.generation.utils", self._attach)

    def _attach(self, module: Any) -> None:
        class_ = module.GenerationMixin
        original = class_.generate

        @functools.wraps(original)
        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if self.alive:
                    self.observer.generates(model)
            except Exception as error:
                self.failed(error)
            return original(model, *args, **kwargs)

        self.replace(class_, "generate", generate)
