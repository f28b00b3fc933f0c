"""What a wait waits for: name and group of a collective, by the object that stands for it until then.

That is a `Work`, or the storage of the tensor that a functional collective has returned (views of it wait for
the same). Both are known by weak references: nothing lives longer for it.

Patched, beside the functions that `collectives.py` has: methods of process groups whose work Python sees
though no such function has started it (`isend`, `irecv`, and what is called coalesced), and the functions of
`torch.distributed._functional_collectives` that take a group. Their operations (`torch.ops._c10d_functional`)
are called without them by compiled graphs and by autograd: whom a wait for those waits for is not known.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, Final

from argus_training.hook import Hook

METHODS: Final = (
    "_end_coalescing",
    "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce_coalesced",
    "recv",
    "recv_anysource",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "send",
)
"""Methods of process groups; each torch has some."""


class Awaited:
    """Of one hook.

    Args:
        hook: takes our failures; what is replaced is so by it.
        named: the name of a process group.
        is_compiling: whether a compiler traces: it sees no more of us.
    """

    def __init__(
        self, hook: Hook, named: Callable[[Any], str], is_compiling: Callable[[], bool], types: Any
    ) -> None:
        self._hook = hook
        self._named = named
        self._is_compiling = is_compiling
        self._types = types
        self._of: weakref.WeakKeyDictionary[Any, tuple[str, str]] = weakref.WeakKeyDictionary()
        """Name and group by a `Work`, or by a storage."""
        self._starting = ""
        """Group of the functional collective that is being called: some wait before they return."""

    def attach(self) -> None:
        group = self._types.ProcessGroup
        for name in METHODS:
            if hasattr(group, name):
                self._hook.replace(group, name, self._wrap_method(name, getattr(group, name)))

    def attach_functional(self, functional: Any) -> None:
        for name, place in starting(functional).items():
            wrapper = self._wrap_functional(functional, getattr(functional, name), place)
            self._hook.replace(functional, name, wrapper)

    def note(self, work: Any, name: str, group: str) -> bool:
        """The work of a collective by this name, if it is one."""
        found = isinstance(work, self._types.Work)
        if found:
            self._of[work] = name, group
        return found

    def by_work(self, work: Any) -> tuple[str, str]:
        """Name and group of what is waited for; no group: not known."""
        return self._of.get(work, ("work", ""))

    def by_tensor(self, tensor: Any) -> tuple[str, str]:
        """The same where a tensor is waited for."""
        storage = _storage(tensor)
        return (storage is not None and self._of.get(storage)) or ("functional", self._starting)

    def _wrap_method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        hook = self._hook

        @functools.wraps(original)
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            work = original(group, *args, **kwargs)
            try:
                if hook.alive:
                    self.note(work, "work", self._named(group))
            except Exception as error:
                hook.failed(error)
            return work

        # Of a subclass in Python, C++ takes this for its override, which calls C++: again and again, but that
        # pybind11 knows an override that calls by the name of its code and by its first argument.
        wrapper: Any = call
        code = wrapper.__code__ = wrapper.__code__.replace(co_name=name)
        hook.when_imported("torch._dynamo", lambda dynamo: dynamo.eval_frame.skip_code(code))
        return call

    def _wrap_functional(
        self, functional: Any, original: Callable[..., Any], place: int
    ) -> Callable[..., Any]:
        hook, is_compiling = self._hook, self._is_compiling

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not hook.alive:
                return original(*args, **kwargs)
            outer, group = self._starting, ""
            try:
                given = args[place] if len(args) > place else kwargs.get("group")
                group = self._name_of(given, functional)
            except Exception as error:
                hook.failed(error)
            self._starting = group
            try:
                result = original(*args, **kwargs)
            finally:
                self._starting = outer
            try:
                for tensor in result if isinstance(result, (list, tuple)) else (result,):
                    storage = _storage(tensor)
                    if storage is not None:
                        self._of[storage] = "functional", group
            except Exception as error:
                hook.failed(error)
            return result

        return call

    def _name_of(self, group: Any, functional: Any) -> str:
        """Of a process group, its name in torch, or a mesh, or one dimension of it. Of ranks: unknown."""
        if group is None or type(group) is list:
            return ""
        if not isinstance(group, self._types.ProcessGroup):
            group = self._types._resolve_process_group(functional._resolve_group_name(group))
        return self._named(group)


def starting(functional: Any) -> dict[str, int]:
    """The functions that start a collective, and the place of the group among their arguments.

    Not those that a compiler has in place of other functions (`all_reduce_inplace`), which call these.
    """
    found: dict[str, int] = {}
    for name, one in vars(functional).items():
        ours = inspect.isfunction(one) and one.__module__ == functional.__name__
        if ours and not name.startswith("_") and not name.endswith("_inplace"):
            arguments = list(inspect.signature(one).parameters)
            if "group" in arguments:
                found[name] = arguments.index("group")
    return found


def _storage(tensor: Any) -> Any:
    """Of a tensor, or of the one within that waits (`AsyncCollectiveTensor`); None where it has none."""
    try:
        return getattr(tensor, "elem", tensor).untyped_storage()
    # No tensor, or a subclass without storage of its own, which torch tells by either error. Whom such a wait
    # waits for stays unknown; as failures of ours they would switch off the hook of all collectives.
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
