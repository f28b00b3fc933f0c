"""Do something once a module has been imported, without importing it ourselves.

What a hook needs may come late (torch._dynamo, triton) or never; importing torch._dynamo alone takes 2 s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class ImportWatch:
    """A finder that finds nothing itself: it lets the others, and hears of the end of the import."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}

    def when_imported(self, name: str, callback: Callback) -> Callable[[], None]:
        """Call back with the module: now where it is there already, else once it is. Undone by the result.

        An exception of `callback` reaches the caller now, and nobody later: it contains its own.
        """
        module = sys.modules.get(name)
        unfinished = getattr(getattr(module, "__spec__", None), "_initializing", False)
        # We attach in the last moment of the import of torch, when all of it is there.
        if module is not None and (name == "torch" or not unfinished):
            callback(module)
            return lambda: None
        waiting = self._waiting.setdefault(name, [])
        waiting.append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

        def undo() -> None:
            if callback in waiting:
                waiting.remove(callback)

        return undo

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder`; None for all but the awaited."""
        callbacks = self._waiting.pop(name, None)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        if not callbacks:
            return None
        for finder in [one for one in sys.meta_path if one is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _tell(spec.loader, callbacks)
                return spec
        return None


def _tell(loader: Any, callbacks: list[Callback]) -> None:
    """Have `loader` call back after it has executed its module, once."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        for callback in callbacks:
            try:
                callback(module)
            except Exception as error:
                sys.stderr.write(f"argus: not attached to {module.__name__}: {error!r}\n")

    try:
        loader.exec_module = exec_module
    except AttributeError:
        return  # a loader without a dictionary: such modules stay unobserved
