"""Which modules of a model are layers whose work may be sampled, of what kind, and where.

Megatron-LM's parts are known by their names; of any other model a layer is a `block`: what fills a
ModuleList, Sequential or ModuleDict with two or more of one class, as the decoder layers of transformers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple

PARTS: Final = ("core_attention", "mlp", "experts", "router")
"""Names under which Megatron's modules hold them (core 0.8 to 0.19), and their kinds."""
BLOCK: Final = "block"
_WRAPPERS: Final = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""FSDP1 gathers parameters before it calls what it wraps."""
_ALIKE: Final = 2


class Layer(NamedTuple):
    """A module, and which method of its class is its work alone."""

    kind: str
    module: Any
    method: str


class Layers(NamedTuple):
    """The layers of one model, in its order, and the module that calls all of them, once in a micro-batch."""

    caller: Any
    layers: list[Layer]


def find_layers(torch: Any, roots: list[Any]) -> Iterator[Layers]:
    """The layers of outermost modules that train.

    Of a module that is compiled as a whole nothing within is one: a mark there would be part of its graph.
    """
    nn = torch.nn
    containers = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
    for root in roots:
        found: dict[int, Layer] = {}
        if _compiled(root) or not any(parameter.requires_grad for parameter in root.parameters()):
            continue
        parts = list(_parts(root))
        if not any(kind == PARTS[0] for kind, _ in parts):
            parts = [(BLOCK, block) for block in _blocks(root, containers)]
        for kind, module in parts:
            if _own_work(module) and not isinstance(module, torch.jit.ScriptModule):
                found.setdefault(id(module), Layer(kind, module, _method(module)))
        caller = _caller(root, found, (nn.ModuleList, nn.ModuleDict))
        if caller is not None:
            yield Layers(caller, list(found.values()))


def _caller(root: Any, layers: Container[int], never_called: tuple[type, ...]) -> Any:
    """The innermost module that holds all of them (by id), and that can be called; None: there are none."""
    inside = [child for child in root._modules.values() if child is not None and _holds(child, layers)]
    if len(inside) == 1 and id(inside[0]) not in layers:
        inner = _caller(inside[0], layers, never_called)
        if not isinstance(inner, never_called):
            return inner
    return root if inside else None


def _holds(module: Any, layers: Container[int]) -> bool:
    return any(id(one) in layers for one in module.modules())


def _parts(root: Any) -> Iterator[tuple[str, Any]]:
    """Kind and module, of whatever model has them; a `mlp` that holds experts is the whole of their layer."""
    for parent in _walk(root):
        for name, child in parent._modules.items():
            if name in PARTS and child is not None and "experts" not in child._modules:
                yield name, child


def _blocks(module: Any, containers: tuple[type, ...]) -> Iterator[Any]:
    """The outermost blocks below a module."""
    children = [_unwrapped(child) for child in module._modules.values() if child is not None]
    alike = Counter(map(type, children)) if isinstance(module, containers) else Counter()
    for child in children:
        if alike[type(child)] >= _ALIKE and child._modules and type(child) not in containers:
            yield child
        elif not _compiled(child):
            yield from _blocks(child, containers)


def _walk(module: Any) -> Iterator[Any]:
    yield module
    for child in module._modules.values():
        if child is not None and not _compiled(child):
            yield from _walk(child)


def _compiled(module: Any) -> bool:
    """By torch.compile(module) or module.compile()."""
    return type(module).__name__ == "OptimizedModule" or _compiled_in_place(module)


def _compiled_in_place(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def _unwrapped(module: Any) -> Any:
    while True:
        inner = next((module._modules[name] for name in _WRAPPERS if name in module._modules), None)
        if inner is None:
            return module
        module = inner


def _own_work(module: Any) -> bool:
    """No wait in it that nobody sees: FSDP1 or DeepSpeed's ZeRO 3 gather parameters for parts of it."""
    nested = any(type(one).__name__ == "FullyShardedDataParallel" for one in module.modules())
    return not nested and not any(hasattr(parameter, "ds_id") for parameter in module.parameters())


def _method(module: Any) -> str:
    """FSDP2 gathers in `__call__`, before `forward`. A compiled call knows no `forward` of ours."""
    sharded = any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)
    return "forward" if sharded and not _compiled_in_place(module) else "__call__"
