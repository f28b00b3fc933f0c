"""The forward pass: phase `forward`, kind compute: calls of the outermost modules that an optimizer trains.

Found at an optimizer's first step: modules that no other module holds and that own one of its parameters.
The `__call__` of their classes is wrapped; calls of other instances pass through. Nothing is put on an
instance, so pickling and copying a model see nothing of us (hooks on the instance would go with it). Global
module hooks would cost 2 us for every submodule and make torch.compile warn. An outermost module that is
never called itself (a Lightning module trains through `training_step`) hands over to its children. The
forward before the first optimizer step is not seen. Where no optimizer of torch's steps, parameters that have
gradients stand for its own.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from argus_core import wire
from argus_training.hook import Hook, Observer
from argus_training.spans import now
from argus_training.stopwatch import Mark
from argus_training.torch_hooks.compiling import compiling
from argus_training.torch_hooks.inert import Inert, called_by
from argus_training.torch_hooks.input_work import counter

_SCANS_AT_ONCE: Final = 8  # a scan of all objects takes tens of ms; a job has a handful of optimizers
_SCAN_NS: Final = 10_000_000_000  # beyond that one in ten seconds: a program may train model after model
_DEPTH_LIMIT: Final = 3
_CHECKPOINT_DEPTH: Final = (
    5  # frames from our wrapper to checkpointing: functions of the user's may lie between
)
_PATIENCE: Final = 64  # iterations, after which the optimizer that found a root counts no more


class _Root:
    """One outermost module."""

    __slots__ = (
        "called",
        "counts",
        "depth",
        "family",
        "finder",
        "first_pass",
        "found",
        "module",
        "reviewed",
        "settled",
    )

    def __init__(
        self, module: weakref.ref[Any], depth: int, finder: int, found: int, family: list[int]
    ) -> None:
        self.module = module
        self.finder = finder
        """Id of the optimizer whose step found it: at its next an iteration has passed, also where several
        share the module."""
        self.found = found
        """The iteration in which it was."""
        self.depth = depth
        self.called = False
        self.reviewed = False
        self.family = family
        """Of children that took the place of one module the first that is called counts their work."""
        self.counts = depth == 0
        self.first_pass = False
        """It is called before the backward: what calls it within one runs it again (checkpointing)."""
        self.settled = False
        """It is called, or there is nothing to hand over to."""


class _Ours(Inert):
    """What the wrappers of the classes use of us."""

    __slots__ = ("count", "hook", "progress", "put", "roots", "totals", "words")

    def __init__(self, hook: ForwardHook, roots: dict[int, _Root], count: Callable[..., None]) -> None:
        recorder = hook.recorder
        self.hook = hook
        self.progress = hook.observer.progress
        self.words, self.put = recorder.words, recorder.put
        self.totals = recorder.host.work_totals
        self.roots = roots
        self.count = count


class ForwardHook(Hook):
    name = "forward"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._torch: Any = None
        self._scans_ns = 0
        self._unfound: list[Callable[[Any], bool]] = []
        self._roots: dict[int, _Root] = {}
        self._classes: set[type] = set()
        self._task = observer.stopwatch.task("forward", wire.Kind.COMPUTE)
        self._backward = observer.stopwatch.task("backward", wire.Kind.COMPUTE).slot
        self._mark: Mark | None = None  # of a forward that is not as usual

    def attach(self, torch: Any) -> None:
        self._torch = torch
        self.observer.on_trained.append(self._find)
        self.observer.on_root.append(self._new_root)
        self._count = counter(torch, self.recorder.host.work_totals)
        self._ours = _Ours(self, self._roots, self._count)
        self.hide_from_dynamo((self._count,), "_evaluates", "_begins", "_ended", "_broken", "_counts")

    def _find(self, is_trained: Callable[[Any], bool]) -> None:
        """Find and wrap the roots of parameters that are trained: soon, where that was done often of late."""
        if not self._unfound:
            self.observer.periodic.append(self._scan)
        self._unfound.append(is_trained)
        self._scan()

    def _scan(self) -> None:
        began = now()
        scans = max(self._scans_ns, began - _SCANS_AT_ONCE * _SCAN_NS) + _SCAN_NS
        if scans > began:
            return
        self._scans_ns, unfound = scans, self._unfound
        self._unfound = []
        self.observer.periodic.remove(self._scan)
        if not self.alive:
            return
        try:
            models = outermost(self._torch.nn.Module)
            for listener in self.observer.on_models:
                listener(models)
            finder = self.observer.progress.stepping
            if len(unfound) > 1:  # optimizers of one parameter each: their model is known
                known = [p for root in self._roots.values() for p in _parameters(root)]
                unfound = [is_trained for is_trained in unfound if not any(map(is_trained, known))]
            for module in models:
                if id(module) not in self._roots and any(
                    is_trained(p) for p in module.parameters() for is_trained in unfound
                ):
                    self._watch(module, 0, finder, [])
            if not self._roots and gc.get_freeze_count():
                self.recorder.host.say(
                    "gc.freeze() before the first optimizer step hides the model: no forward is seen"
                )
        except Exception as error:
            self.failed(error)

    def _new_root(self, module: Any) -> None:
        """A framework named it, whose optimizer does not hold the module's own parameters."""
        if self.alive and id(module) not in self._roots:
            self._watch(module, 0, 0, [])
            self._roots[id(module)].settled = True

    def _watch(self, module: Any, depth: int, finder: int, family: list[int]) -> None:
        key = id(module)
        ref = weakref.ref(module, lambda _: self._roots.pop(key, None))
        self._roots[key] = _Root(ref, depth, finder, self.recorder.step, family)
        self.observer.note_root(module)
        self._wrap(type(module))
        if self._review not in self.observer.on_optimizer_step:
            self.observer.on_optimizer_step.append(self._review)

    def _review(self) -> None:
        """After a step: roots that were not called in it give way to their children."""
        try:
            waiting = [(key, root) for key, root in self._roots.items() if not root.settled]
            if not waiting:
                self.observer.on_optimizer_step.remove(self._review)
            for key, root in waiting:
                module = root.module()
                waited = self.recorder.step - root.found
                whole = root.finder in (0, self.observer.stepped) or waited > _PATIENCE
                if root.called or root.depth >= _DEPTH_LIMIT or module is None:
                    root.settled = True
                elif not (root.reviewed and whole):  # the first comes in the very step that found the root
                    root.reviewed = True
                else:
                    del self._roots[key]
                    for child in module.children():
                        if any(p.requires_grad for p in child.parameters()):
                            self._watch(child, root.depth + 1, root.finder, root.family)
        except Exception as error:
            self.failed(error)

    def _evaluates(self, module: Any) -> bool:
        """A forward without gradients: what was fetched for it opened no iteration. False: it trains."""
        try:
            if not self.alive:
                return True
            if not module.training:
                self.observer.evaluates()
            elif self._is_checkpointed():
                return False
            else:  # a teacher, a generator's sample for its critic
                self.observer.iterations.paused()
        except Exception as error:
            self.failed(error)
        return True

    def _is_checkpointed(self) -> bool:
        """Reentrant checkpointing calls it without gradients now, and with them within the backward."""
        checkpoint = sys.modules.get("torch.utils.checkpoint")
        if checkpoint is None:
            return False
        code = checkpoint.CheckpointFunction.forward.__code__
        caller: FrameType | None = sys._getframe(2)
        for _ in range(_CHECKPOINT_DEPTH):
            if caller is not None and caller.f_code is code:
                return True
            caller = caller and caller.f_back
        return False

    def _begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward that is not as usual, or not known to be."""
        if not self.alive:
            return
        observer = self.observer
        if observer.evaluating:
            observer.trains()
        key = id(args[0])
        root = self._roots[key]
        root.called = True
        root.first_pass |= not self.recorder.words[self._backward]
        root.family[:] = root.family or [key]
        root.counts = root.family[0] == key
        observer.iterations.opening(now(), trains=True)
        self._mark = observer.stopwatch.begin(self._task)
        if observer.progress.counts_work and root.counts:
            self._count(args, kwargs)

    def _ended(self, begin: int) -> None:
        """One that was not as usual, or is not any more."""
        mark, self._mark = self._mark, None
        if self.recorder.alive:  # no child of fork that comes out of here
            self.observer.stopwatch.span(self._task, begin or mark)

    def _counts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called within a framework's function that is timed as the forward."""
        try:
            self.observer.progress.forwarded = False  # what it calls counts no more
            self._roots[id(args[0])].called = True
            if self.observer.progress.counts_work and self.alive and self._torch.is_grad_enabled():
                self._count(args, kwargs)
        except Exception as error:
            self.failed(error)

    def _broken(self) -> None:
        """The forward raised."""
        mark, self._mark = self._mark, None
        self.observer.stopwatch.discard(self._task, mark)

    def _wrap(self, class_: Any) -> None:
        if class_ in self._classes:
            return
        self._classes.add(class_)
        original, base = class_.__call__, called_by(class_, "__call__")
        inherited = "__call__" not in vars(class_)
        is_grad_enabled = self._torch.is_grad_enabled
        is_compiling, exporting = compiling(self._torch)
        tracing, backward = self._torch._C._get_tracing_state, self._backward
        slot, code = self._task.slot, self._task.code
        tensor, float32 = self._torch.Tensor, self._torch.float32
        # What the function holds is pickled with a class of the user's that is pickled by value.
        ours = self._ours

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # First: to a compiler that traces the user's function this is a constant, and it sees no more.
            if is_compiling() or exporting._is_compiling_flag or not ours:
                return base.__call__(*args, **kwargs)
            progress = ours.progress
            key = id(args[0])
            if progress.forwarding or key not in ours.roots:
                if progress.forwarded and key in ours.roots:
                    ours.hook._counts(args, kwargs)
                return base.__call__(*args, **kwargs)
            if not is_grad_enabled() and ours.hook._evaluates(args[0]):
                return base.__call__(*args, **kwargs)
            root = ours.roots[key]
            if root.first_pass and ours.words[backward]:
                return base.__call__(*args, **kwargs)
            progress.forwarding = True
            begin = 0
            try:
                try:
                    if progress.steady:
                        begin = ours.words[slot] = now()
                        progress.forwards += 1
                        if not progress.opened_ns:
                            progress.opened_ns = begin
                        if progress.counts_work and root.counts:
                            given: Any = args[1] if len(args) > 1 else None
                            # What `count` does with most inputs: a call of ours costs as much again.
                            if (
                                type(given) is tensor
                                and given.dtype is float32
                                and not given.is_nested
                                and tracing() is None
                                and (shape := given.shape)
                            ):
                                ours.totals["samples"] += shape[0]
                            else:
                                ours.count(args, kwargs)
                    else:
                        ours.hook._begins(args, kwargs)
                except Exception as error:
                    ours.hook.failed(error)
                # An empty dict that is made and handed on costs as much as a reading of the clock.
                result = base.__call__(*args, **kwargs) if kwargs else base.__call__(*args)
            except BaseException:
                progress.forwarding = False
                ours.hook._broken()
                raise
            progress.forwarding = False
            try:
                if begin and progress.steady:
                    ours.words[slot] = 0
                    ours.put((code, begin, now()))
                else:
                    ours.hook._ended(begin)
            except Exception as error:
                ours.hook.failed(error)
            return result

        class_.__call__ = call
        # What it calls may be compiled; it is no frame of its own to compile: without us there is none.
        frame = call.__code__  # type: ignore[attr-defined]
        self.when_imported("torch._dynamo", lambda dynamo: dynamo.eval_frame.skip_code(frame))

        def undo() -> None:
            if vars(class_).get("__call__") is call:
                if inherited:
                    del class_.__call__
                else:
                    class_.__call__ = original

        self._undo.append(undo)


def _parameters(root: _Root) -> list[Any]:
    module = root.module()
    return [] if module is None else list(module.parameters())


def outermost(module_type: type) -> list[Any]:
    """Modules that no module holds, in a stable order."""
    # issubclass of the type: isinstance would ask __class__ and wake torch's lazy deprecation objects.
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), module_type)]
    children = {id(child) for module in modules for child in module._modules.values() if child is not None}
    roots = [module for module in modules if id(module) not in children]
    return sorted(roots, key=lambda module: type(module).__name__)
