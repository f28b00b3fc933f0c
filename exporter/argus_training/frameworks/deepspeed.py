"""DeepSpeed: its engine steps an optimizer that torch's hooks do not see whole, on parameters of its own.

Patched: `DeepSpeedEngine.__init__` (the engine is the module whose calls are the forward), `step` (the
optimizer's step, at the end of gradient accumulation only), `allreduce_gradients` (the wait for peers), and
the instructions of `PipelineEngine._INSTRUCTION_MAP`. Its backward ends in `torch.autograd.backward`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from argus_core import wire
from argus_training.frameworks.timing import timed
from argus_training.hook import Hook

# Instruction of a pipeline schedule: phase, kind. Forward and load open an iteration (see below).
INSTRUCTIONS: Final = {
    "SendActivation": ("pp-send-activation", wire.Kind.COMM),
    "RecvActivation": ("pp-recv-activation", wire.Kind.COMM),
    "SendGrad": ("pp-send-grad", wire.Kind.COMM),
    "RecvGrad": ("pp-recv-grad", wire.Kind.COMM),
    "ReduceTiedGrads": ("pp-reduce-tied-grads", wire.Kind.COMM),
}


class DeepSpeedHook(Hook):
    name = "deepspeed"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (attached to what may be imported later)
        self.when_imported("deepspeed.runtime.engine", self._attach_engine)
        self.when_imported("deepspeed.runtime.pipe.engine", self._attach_pipeline)

    def _attach_engine(self, module: Any) -> None:
        class_ = module.DeepSpeedEngine
        init = class_.__init__
        observer = self.observer

        @functools.wraps(init)
        def noted_init(engine: Any, *args: Any, **kwargs: Any) -> None:
            init(engine, *args, **kwargs)
            try:
                if self.alive:
                    observer.watch(engine)
                    if engine.zero_optimization_stage() == 3:
                        observer.root_kinds.add("zero3")
            except Exception as error:
                self.failed(error)

        self.replace(class_, "__init__", noted_init)
        self.replace(class_, "step", self._step(class_.step))
        reduce = timed(self, class_.allreduce_gradients, "dp-allreduce", wire.Kind.COMM, group="dp")
        self.replace(class_, "allreduce_gradients", reduce)

    def _attach_pipeline(self, module: Any) -> None:
        class_ = module.PipelineEngine
        wrapped = {}
        for instruction, function in class_._INSTRUCTION_MAP.items():
            name = instruction.__name__
            if name in INSTRUCTIONS:
                phase, kind = INSTRUCTIONS[name]
                function = timed(self, function, phase, kind)
            elif name == "LoadMicroBatch":
                function = timed(self, function, "data", wire.Kind.HOST, opens=True)
            elif name == "ForwardPass":
                function = timed(self, function, "forward", wire.Kind.COMPUTE, trains=True)
            elif name == "ReduceGrads":
                function = timed(self, function, "dp-allreduce", wire.Kind.COMM, group="dp")
            elif name == "OptimizerStep":
                function = self._step(function)
            wrapped[instruction] = function
        self.replace(class_, "_INSTRUCTION_MAP", wrapped)

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        observer = self.observer

        @functools.wraps(original)
        def step(engine: Any, *args: Any, **kwargs: Any) -> Any:
            steps = False
            try:
                steps = self.alive and bool(engine.is_gradient_accumulation_boundary())
                if steps:
                    observer.step_begins(engine, engine.optimizer)
            except Exception as error:
                self.failed(error)
            result = original(engine, *args, **kwargs)
            try:
                if steps:
                    observer.step_ends(engine)
            except Exception as error:
                self.failed(error)
            return result

        return step
