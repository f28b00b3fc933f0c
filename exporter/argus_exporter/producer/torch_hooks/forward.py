"""The forward pass: phase `forward`, kind compute: calls of the outermost modules that an optimizer trains.

Found at an optimizer's first step: modules that no other module holds and that own one of its parameters.
They get hooks of their own; global module hooks would cost 2 us for every submodule and make torch.compile
warn. An outermost module that is never called itself (a Lightning module trains through `training_step`)
hands over to its children. The forward before the first optimizer step is not seen.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

from argus_core import wire
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.spans import now
from argus_exporter.producer.stopwatch import Mark

_SCANS_LIMIT: Final = 8  # a scan of all objects takes tens of ms; a job has a handful of optimizers
_DEPTH_LIMIT: Final = 3


class ForwardHook(Hook):
    name = "forward"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._torch: Any = None
        self._compiling: Callable[[], bool] = lambda: False
        self._scans = 0
        self._roots: list[_Root] = []
        self._running = False
        observer.on_new_optimizer.append(self._new_optimizer)
        observer.on_optimizer_step.append(self._review)

    def attach(self, torch: Any) -> None:
        self._torch = torch
        self._compiling = torch.compiler.is_compiling

    def detach(self) -> None:
        super().detach()
        for root in self._roots:
            root.remove()

    def _new_optimizer(self, optimizer: Any) -> None:
        """Find and hook the roots of a new optimizer's parameters."""
        if not self.alive or self._scans >= _SCANS_LIMIT:
            return
        self._scans += 1
        try:
            parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
            known = {id(root.module) for root in self._roots}
            for module in find_roots(self._torch.nn.Module, parameters):
                if id(module) not in known:
                    self._hook(module, depth=0)
        except Exception as error:
            self.failed(error)

    def _hook(self, module: Any, depth: int) -> None:
        if getattr(module, "_compiled_call_impl", None) is not None:
            return  # module.compile() would trace our hooks and recompile
        self._roots.append(_Root(self, module, depth))
        self.observer.note_root(module)

    def _review(self) -> None:
        """After a step: roots that were not called in it give way to their children."""
        if not self.alive or all(root.settled for root in self._roots):
            return
        try:
            for root in list(self._roots):
                if root.settled:
                    continue
                if root.calls or root.depth >= _DEPTH_LIMIT:
                    root.settled = True
                    continue
                root.reviews += 1
                if root.reviews > 1:  # the first step ends right after the hooks were set
                    root.remove()
                    self._roots.remove(root)
                    for child in root.module.children():
                        if any(p.requires_grad for p in child.parameters()):
                            self._hook(child, root.depth + 1)
        except Exception as error:
            self.failed(error)

    # -- called by torch ------------------------------------------------------------------------------------

    def begins(self, root: _Root) -> None:
        # A compiler that traces the user's function must see nothing of us: this is a constant to it.
        if self._compiling() or self._running or not self.alive:
            return
        try:
            if self._torch.is_grad_enabled():
                self._running = True
                root.running = True
                root.calls += 1
                root.begin = self.observer.stopwatch.mark()
                self.observer.iterations.opening(now())
            else:
                self.observer.iterations.void()
        except Exception as error:
            self.failed(error)

    def ends(self, root: _Root, completed: bool) -> None:
        if self._compiling() or not root.running:
            return
        root.running = self._running = False
        begin, root.begin = root.begin, None
        try:
            if completed:
                self.observer.stopwatch.span("forward", wire.Kind.COMPUTE, begin)
            else:
                self.observer.stopwatch.discard(begin)
        except Exception as error:
            self.failed(error)


class _Root:
    """The hooks of one outermost module."""

    def __init__(self, hook: ForwardHook, module: Any, depth: int) -> None:
        self.module = module
        self.depth = depth
        self.calls = 0
        self.reviews = 0
        self.settled = False
        self.running = False
        self.begin: Mark | None = None
        self._handles = (
            module.register_forward_pre_hook(lambda *_: hook.begins(self), prepend=True),
            module.register_forward_hook(
                lambda _module, _inputs, output: hook.ends(self, output is not None), always_call=True
            ),
        )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def find_roots(module_type: type, parameters: set[int]) -> list[Any]:
    """Modules that no module holds and that own one of `parameters` (ids), in a stable order."""
    # issubclass of the type: isinstance would ask __class__ and wake torch's lazy deprecation objects.
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), module_type)]
    children = {id(child) for module in modules for child in module._modules.values() if child is not None}
    roots = [
        module
        for module in modules
        if id(module) not in children and any(id(p) in parameters for p in module.parameters())
    ]
    return sorted(roots, key=lambda module: type(module).__name__)
