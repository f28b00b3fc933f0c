"""JIT compilation on the host: how often and how long, by compiler; dynamo's also as the activity `compile`.

Sources: `torch._dynamo.callback` (its own start and end callbacks, once the user has imported dynamo: the
import alone takes 2 s) and `triton.knobs.compilation.listener` (the one that is set is called first). A
Triton kernel compiles in tens of ms, between launches: no activity. One that comes from its cache counts as
no compilation.

A graph that dynamo hands to its compiler (`OutputGraph.call_user_compiler`) is looked at once, for functional
collectives and DTensors: what waits for them then is compiled code, which no hook sees.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from argus_core import wire
from argus_training.hook import Hook
from argus_training.spans import now
from argus_training.torch_hooks.collectives import group_name

OWN_DIMENSIONS: Final = ("cp", "ep", "pp", "tp")
"""A group of another name is of data-parallel ranks, or has some of them."""


class CompilationHook(Hook):
    name = "compilation"

    def attach(self, torch: Any) -> None:
        self.when_imported("torch._dynamo", self._attach_dynamo)
        if torch.distributed.is_available():
            self.when_imported("torch._dynamo.output_graph", self._attach_graphs)
        self.when_imported("triton.knobs", self._attach_triton)

    def _attach_dynamo(self, dynamo: Any) -> None:
        handler = dynamo.callback.callback_handler
        recorder = self.recorder
        begin_ns = 0

        # A backward that is compiled as it is first called is compiled within a frame of the user's that
        # dynamo runs, and what compiling calls is then looked at too.
        @dynamo.disable  # type: ignore[untyped-decorator]
        def started(*_: Any) -> None:
            nonlocal begin_ns
            if self.alive and not begin_ns:
                try:
                    begin_ns = now()
                    recorder.enter(wire.Activity.COMPILE, urgent=True)
                except Exception as error:
                    self.failed(error)

        @dynamo.disable  # type: ignore[untyped-decorator]
        def ended(*_: Any) -> None:
            nonlocal begin_ns
            if self.alive and begin_ns:
                try:
                    end_ns = now()
                    recorder.host.compilation("dynamo", begin_ns, end_ns - begin_ns)
                    recorder.stopped(begin_ns, end_ns)
                    begin_ns = 0
                    recorder.leave(wire.Activity.COMPILE)
                    self.observer.compiled()
                except Exception as error:
                    self.failed(error)

        def register() -> None:
            handler.register_start_callback(started)
            handler.register_end_callback(ended)

        clear = handler.clear

        @functools.wraps(clear)
        def clear_others() -> None:
            """`torch._dynamo.reset` clears all."""
            clear()
            if self.alive:
                register()

        register()
        self._undo.append(lambda: handler.remove_start_callback(started))
        self._undo.append(lambda: handler.remove_end_callback(ended))
        self.replace(handler, "clear", clear_others)

    def _attach_graphs(self, output_graph: Any) -> None:
        compile_graph = output_graph.OutputGraph.call_user_compiler

        @functools.wraps(compile_graph)
        def call_user_compiler(graph: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.alive:
                try:
                    self._look(module.graph.nodes)
                except Exception as error:
                    self.failed(error)
            return compile_graph(graph, module, *args, **kwargs)

        self.replace(output_graph.OutputGraph, "call_user_compiler", call_user_compiler)

    def _look(self, nodes: Any) -> None:
        from torch.distributed import distributed_c10d

        for group in {group for node in nodes for group in _groups(node, distributed_c10d)}:
            ranks = sorted(distributed_c10d.get_process_group_ranks(group))
            world_size, description = distributed_c10d.get_world_size(), getattr(group, "group_desc", "")
            named = group_name(ranks, self.observer.layout(), world_size, description)
            self.observer.compiles_dp |= len(ranks) > 1 and named not in OWN_DIMENSIONS

    def _attach_triton(self, knobs: Any) -> None:
        listener = knobs.compilation.listener
        recorder = self.recorder

        def compiled(**told: Any) -> None:
            if listener is not None:
                listener(**told)
            if self.alive and not told["cache_hit"]:
                try:
                    duration_ns = int(told["times"].total * 1e3)  # microseconds
                    end_ns = now()
                    recorder.host.compilation("triton", end_ns - duration_ns, duration_ns)
                    recorder.stopped(end_ns - duration_ns, end_ns)
                except Exception as error:
                    self.failed(error)

        self.replace(knobs.compilation, "listener", compiled)


def _groups(node: Any, distributed: Any) -> list[Any]:
    """Process groups of a node: of a functional collective, or along which a DTensor may be redistributed."""
    if "c10d" in str(node.target):
        texts = [one for one in node.args if isinstance(one, str)]  # the group's name comes last
        return [distributed._resolve_process_group(name) for name in texts[-1:]]
    mesh = getattr(node.meta.get("example_value"), "device_mesh", None)
    return [] if mesh is None else list(mesh.get_all_groups())
