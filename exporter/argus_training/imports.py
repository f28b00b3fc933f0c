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
    """A finder that finds nothing itself: it lets the others, and hears of the end of the import.

    A look-up alone means nothing (`importlib.util.find_spec` throws what it finds away), so each is followed
    until the module has run. What is imported past us is seen at the next look-up of anything. It stays on
    `sys.meta_path`: a finder that is taken out makes whoever walks the list at that moment skip the next one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}
        self._asks = False

    def when_imported(self, name: str, callback: Callback) -> Callable[[], None]:
        """Call back with the module: now where it is there already, else once it is. Undone by the result.

        An exception of `callback` reaches the caller now, and nobody later: it contains its own.
        """
        module = sys.modules.get(name)
        # We attach in the last moment of the import of torch, when all of it is there.
        if module is not None and (name == "torch" or _has_run(module)):
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
        for awaited in list(self._waiting):
            module = sys.modules.get(awaited)
            if module is not None and _has_run(module):
                self._tell(self._waiting.pop(awaited, []), module)
        # Another finder may ask all others too, so us again; Python itself looks up one name at a time.
        if name not in self._waiting or self._asks:
            return None
        self._asks = True
        try:
            for finder in [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._follow(spec.loader, name)
                    return spec
        finally:
            self._asks = False
        return None

    def _follow(self, loader: Any, name: str) -> None:
        """Hear when `loader` has executed the module. One that cannot tell is left alone."""
        if "exec_module" in getattr(loader, "__dict__", ("exec_module",)):
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == name:  # the loader of an archive is that of all that lies in it
                vars(loader).pop("exec_module", None)
                self._tell(self._waiting.pop(name, []), module)

        loader.exec_module = exec_module

    def _tell(self, callbacks: list[Callback], module: ModuleType) -> None:
        for callback in callbacks:
            try:
                callback(module)
            except Exception as error:
                sys.stderr.write(f"argus: not attached to {module.__name__}: {error!r}\n")


def _has_run(module: ModuleType) -> bool:
    """Whether its import has ended; asks nothing that would make a lazy one load."""
    if type(module).__getattribute__ is not ModuleType.__getattribute__:
        return False
    names = vars(module)
    if getattr(names.get("__spec__"), "_initializing", False):
        return False
    frame = sys._getframe().f_back
    while frame is not None and frame.f_globals is not names:  # somebody executes it by hand
        frame = frame.f_back
    return frame is None
