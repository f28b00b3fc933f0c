"""Samples of layers: which kind of work takes how long, in a series of its own, in no phase's time.

Layers are found (`layer_modules.py`) where the forward hook looks for models, at an optimizer's first step.
Their class's `__call__` is wrapped, of FSDP2's classes `forward`, which begins when parameters have been
gathered; nothing is put on an instance. In
sampled steps a few layers are timed in one micro-batch (`layer_plan.py`); other calls pass a gate of 0.3 us.
A micro-batch is a call of the module that holds all layers. What checkpointing runs again in the backward is
none, and no sample.

Of pipelines the chunk of a stage is sampled, whose call names its micro-batch: `forward_one_chunk`,
`backward_one_chunk` and `backward_weight_one_chunk` of torch, `forward_step` of Megatron-LM. DeepSpeed's
instructions `ForwardPass` and `BackwardPass` name a buffer only, but micro-batches are in order in each.

On a GPU a layer is timed by events, or not at all: the host only launches it. What the producer sees of
waits and pauses within it is no part of its time (`spans.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from argus_training.hook import Hook, Observer
from argus_training.layer_plan import LayerPlan, Model, microbatch_of
from argus_training.outbox import PENDING_LIMIT
from argus_training.spans import LayerSample, Task, now
from argus_training.step_log import TRAINING_CLOCK
from argus_training.stopwatch import Mark
from argus_training.torch_hooks.compiling import compiling
from argus_training.torch_hooks.inert import Inert, called_by
from argus_training.torch_hooks.layer_modules import find_layers

STAGES: Final = {
    "forward_one_chunk": ("stage_forward", "fwd_chunk_id"),
    "backward_one_chunk": ("stage_backward", "bwd_chunk_id"),
    "backward_weight_one_chunk": ("stage_weight", "bwd_chunk_id"),
}
"""Methods of torch's pipeline stages: kind, and the argument that is the micro-batch."""

INSTRUCTIONS: Final = {"ForwardPass": "stage_forward", "BackwardPass": "stage_backward"}
"""Of DeepSpeed's pipeline schedules."""

_Timed = tuple[Task, "Mark | None"]


class _Ours(Inert):
    """What the wrappers of the classes use of us."""

    __slots__ = ("armed", "hook", "models", "sampled")

    def __init__(
        self,
        hook: LayersHook,
        models: dict[int, Model],
        armed: dict[int, LayerSample],
        sampled: Callable[..., Any],
    ) -> None:
        self.hook = hook
        self.models = models
        self.armed = armed
        self.sampled = sampled


class LayersHook(Hook):
    name = "layers"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._plan = LayerPlan()
        self._models: dict[int, Model] = {}
        """By id of the module that calls their layers."""
        self._wrapped: set[tuple[type, str]] = set()
        self._called: set[type] = set()
        self._stages = _Microbatches()

    def attach(self, torch: Any) -> None:
        self._torch = torch
        self._graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self._is_compiling, self._exporting = compiling(torch)
        self.hide_from_dynamo((), "_microbatch", "_begin", "_ended", "_broken")
        self._ours = _Ours(self, self._models, self._plan.armed, self._make_sampled())
        self.observer.on_models.append(self._look)
        self.when_imported("torch.distributed.pipelining.stage", self._attach_stages)
        self.when_imported("megatron.core.pipeline_parallel.schedules", self._attach_schedules)
        self.when_imported("deepspeed.runtime.pipe.engine", self._attach_instructions)

    def _look(self, models: list[Any]) -> None:
        """Models are complete: find their layers, anew for all."""
        if not self.alive:
            return
        try:
            self._plan.armed.clear()
            self._models.clear()
            for caller, layers in find_layers(self._torch, models):
                model = Model([(layer.kind, layer.module) for layer in layers])
                self._models[id(caller)] = model
                for layer in layers:
                    where = type(layer.module), layer.method
                    if where not in self._wrapped:
                        self._wrapped.add(where)
                        self._put(*where, self._layer)
                if type(caller) not in self._called:
                    self._called.add(type(caller))
                    self._put(type(caller), "__call__", self._caller)
        except Exception as error:
            self.failed(error)

    # -- modules --------------------------------------------------------------------------------------------

    def _put(self, class_: Any, method: str, wrap: Callable[[type, Any], Any]) -> None:
        """Put what `wrap` makes of a class and what holds its method as `__call__` in the method's place."""
        inherited = method not in vars(class_)
        original = getattr(class_, method)
        call: Any = functools.wraps(original)(wrap(class_, called_by(class_, method)))
        setattr(class_, method, call)
        # As in forward.py: it is no frame of its own to compile.
        self.when_imported("torch._dynamo", lambda dynamo: dynamo.eval_frame.skip_code(call.__code__))

        def undo() -> None:
            if vars(class_).get(method) is call:
                if inherited:
                    delattr(class_, method)
                else:
                    setattr(class_, method, original)

        self._undo.append(undo)

    def _caller(self, class_: type, base: Any) -> Any:
        """Of what calls layers: a micro-batch begins."""
        is_compiling, ours = self._is_compiling, self._ours

        def call(*args: Any, **kwargs: Any) -> Any:
            # First: to a compiler that traces the user's function this is a constant, and it sees no more.
            if not is_compiling() and ours and id(args[0]) in ours.models:
                ours.hook._microbatch(class_, args[0])
            return base.__call__(*args, **kwargs)

        return call

    def _microbatch(self, class_: Any, module: Any) -> None:
        try:
            exports = self._exporting._is_compiling_flag
            if not self.alive or exports or type(module) is not class_ or not module.training:
                return
            if self._graph_task() < 0:  # no second pass
                outbox = self.recorder.outbox
                self._follow()
                self._plan.microbatch(self._models[id(module)], room=len(outbox.log) < PENDING_LIMIT)
                outbox.layers_ns = self._plan.cost_ns
        except Exception as error:
            self.failed(error)

    def _layer(self, class_: type, base: Any) -> Any:
        """Of a layer: timed where it is its turn."""
        is_compiling, ours = self._is_compiling, self._ours

        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not (armed := ours and ours.armed) or id(args[0]) not in armed:
                if kwargs:  # passing on none costs as well
                    return base.__call__(*args, **kwargs)
                return base.__call__(*args)
            return ours.sampled(class_, base.__call__, args, kwargs)

        return call

    def _make_sampled(self) -> Callable[..., Any]:
        """For the call of a layer whose turn it is. Written out for the host's clock: our calls cost more."""
        recorder, stopwatch = self.recorder, self.observer.stopwatch
        armed, put, graph_task, tensor_type = (
            self._plan.armed,
            recorder.put,
            self._graph_task,
            self._torch.Tensor,
        )

        def sampled(class_: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            begin = 0
            timed: _Timed | None = None
            try:
                module: Any = args[0]
                # Of a subclass that is wrapped too it is the subclass's call. Below 0: no second pass.
                if self.alive and type(module) is class_ and module.training and graph_task() < 0:
                    sample = armed.pop(id(module))
                    for tensor in (*args[1:], *kwargs.values()):
                        if isinstance(tensor, tensor_type):
                            if stopwatch.on_events:
                                timed = self._begin(sample, tensor.device)
                            elif tensor.device.type == "cpu":
                                begin = now()
                            break
            except Exception as error:
                self.failed(error)
            if timed is not None:
                return self._timed(timed, original, args, kwargs)
            result = original(*args, **kwargs)
            try:
                if begin and self.alive:
                    end, thread = now(), get_ident()
                    clock = TRAINING_CLOCK if thread == recorder.thread or not recorder.thread else thread
                    put((sample, begin, end, end - begin, recorder.step, clock))
            except Exception as error:
                self.failed(error)
            return result

        self.hide_from_dynamo((sampled,))
        return sampled

    def _follow(self) -> None:
        """The plan is that of the running step."""
        step = self.recorder.step
        if step != self._plan.step:
            self._plan.begin(step, now(), warm=self.recorder.host.warm)

    # -- stages ---------------------------------------------------------------------------------------------

    def _attach_stages(self, module: Any) -> None:
        class_ = module._PipelineStageBase
        for method, (kind, argument) in STAGES.items():
            original = getattr(class_, method, None)
            if original is not None:
                self.replace(class_, method, self._stage(kind, argument, original))

    def _stage(self, kind: str, argument: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def begins(args: Any, kwargs: Any) -> _Timed | None:
            stage, number = args[0], args[1] if len(args) > 1 else kwargs[argument]
            if not stage.submod.training or not self._stages.sampled(self._plan, number):
                return None
            return self._begin(LayerSample(kind, stage.stage_index, number), stage.device)

        return self._chunk(begins, original)

    def _attach_schedules(self, schedules: Any) -> None:
        def begins(args: Any, kwargs: Any) -> _Timed | None:
            number = kwargs.get("current_microbatch")
            model = args[2] if len(args) > 2 else kwargs.get("model")
            if number is None or not model.training or not self._stages.sampled(self._plan, number):
                return None
            return self._begin(LayerSample("stage_forward", 0, number), next(model.parameters()).device)

        self.replace(schedules, "forward_step", self._chunk(begins, schedules.forward_step))

    def _attach_instructions(self, module: Any) -> None:
        wrapped = dict(module.PipelineEngine._INSTRUCTION_MAP)
        for instruction, function in wrapped.items():
            if kind := INSTRUCTIONS.get(instruction.__name__):
                wrapped[instruction] = self._instruction(kind, function)
        self.replace(module.PipelineEngine, "_INSTRUCTION_MAP", wrapped)

    def _instruction(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        plan, order = self._plan, _InOrder()

        def begins(args: Any, _kwargs: Any) -> _Timed | None:
            engine = args[0]
            if engine.module.training and self._stages.sampled(plan, number := order.next(plan.step)):
                return self._begin(LayerSample(kind, engine.stage_id, number), engine.device)
            return None

        return self._chunk(begins, original)

    def _chunk(
        self, begins: Callable[..., _Timed | None], original: Callable[..., Any]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def chunk(*args: Any, **kwargs: Any) -> Any:
            timed = None
            try:
                if self.alive:
                    self._follow()
                    timed = begins(args, kwargs)
            except Exception as error:
                self.failed(error)
            if timed is None:
                return original(*args, **kwargs)
            return self._timed(timed, original, args, kwargs)

        return chunk

    # -- spans ----------------------------------------------------------------------------------------------

    def _begin(self, sample: LayerSample, device: Any) -> _Timed | None:
        """None where its time cannot be told: on a GPU without events, or beside the one that has them."""
        stopwatch = self.observer.stopwatch
        if device.type != ("cuda" if stopwatch.on_events else "cpu"):
            return None
        task = sample.task()
        return task, stopwatch.begin(task)

    def _timed(self, timed: _Timed, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException:
            self._broken(timed)
            raise
        self._ended(timed)
        return result

    def _ended(self, timed: _Timed) -> None:
        try:
            if self.recorder.alive:  # no child of fork that comes out of here
                self.observer.stopwatch.span(*timed)
        except Exception as error:
            self.failed(error)

    def _broken(self, timed: _Timed) -> None:
        """The layer raised."""
        try:
            self.observer.stopwatch.discard(*timed)
        except Exception as error:
            self.failed(error)


class _Microbatches:
    """Which chunks of a pipeline are sampled, where each says its number."""

    def __init__(self) -> None:
        self._step = 0
        self._seen = 0
        self._before = 1
        """So many were in the step before."""

    def sampled(self, plan: LayerPlan, number: int) -> bool:
        """Whether micro-batch `number` of the running step is the one."""
        if plan.step != self._step:
            self._step, self._before, self._seen = plan.step, self._seen or 1, 0
        self._seen = max(self._seen, number + 1)
        return plan.samples and number == microbatch_of(plan.step, self._before)


class _InOrder:
    """Numbers of training micro-batches that do not say theirs, from 0 in each step."""

    def __init__(self) -> None:
        self._step = self._number = -1

    def next(self, step: int) -> int:
        self._number = self._number + 1 if step == self._step else 0
        self._step = step
        return self._number
