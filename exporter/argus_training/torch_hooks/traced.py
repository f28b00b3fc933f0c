"""Python functions that the user names: a phase of kind host each, called as they are.

`ARGUS_TRACED_PYTHON_API="torch.cuda@synchronize,torch@Tensor.item"`: module, `@`, attribute, which may be
dotted through classes. Meant for explicit synchronisations, which stall the issue of kernels (FLARE 4.1).
A name that cannot be found is said once, and the others are traced.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from typing import Any

from argus_core import wire
from argus_training.hook import Hook


class TracedHook(Hook):
    name = "traced"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (the user names the modules)
        for name in filter(None, (name.strip() for name in self.observer.traced.split(","))):
            module, _, attribute = name.partition("@")
            if not module or not attribute:
                self._wrong(name, "allowed: module@attribute, such as torch.cuda@synchronize")
            elif not _exists(module):
                self._wrong(name, f"there is no module {module}")
            else:
                self.when_imported(module, functools.partial(self._attach_one, name, attribute))

    def _attach_one(self, name: str, attribute: str, module: Any) -> None:
        *owners, last = attribute.split(".")
        owner = module
        for part in owners:
            owner = getattr(owner, part, None)
        function = (
            inspect.getattr_static(owner, last, None)
            if inspect.isclass(owner)
            else getattr(owner, last, None)
        )
        plain = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
        if not callable(plain) or inspect.isclass(plain):
            self._wrong(name, f"{module.__name__} has no function {attribute}")
            return
        wrapper: Any = self._wrap(f"{module.__name__}.{attribute}", plain)
        if isinstance(function, (staticmethod, classmethod)):
            wrapper = type(function)(wrapper)
        try:
            self._put(owner, last, function, wrapper)
        except TypeError as error:  # a class written in C
            self._wrong(name, str(error))

    def _put(self, owner: Any, attribute: str, original: Any, wrapper: Any) -> None:
        inherited = attribute not in vars(owner)
        setattr(owner, attribute, wrapper)

        def undo() -> None:
            if vars(owner).get(attribute) is wrapper:
                if inherited:
                    delattr(owner, attribute)
                else:
                    setattr(owner, attribute, original)

        self._undo.append(undo)

    def _wrong(self, name: str, reason: str) -> None:
        self.recorder.host.say(f"ARGUS_TRACED_PYTHON_API has {name!r}: {reason}; going on without it")

    def _wrap(self, title: str, original: Callable[..., Any]) -> Callable[..., Any]:
        phase = self.recorder.phase(title, wire.Kind.HOST)
        begin, ended, broken = self.recorder.begin, self.recorder.ended, self.recorder.broken

        @functools.wraps(original)
        def traced(*args: Any, **kwargs: Any) -> Any:
            if not self.alive:
                return original(*args, **kwargs)
            begin_ns = begin(phase)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                broken(phase)
                raise
            try:
                ended(phase, begin_ns)
            except Exception as error:
                self.failed(error)
            return result

        return traced


def _exists(module: str) -> bool:
    """Whether the module is there; below a package that is not imported yet, whether the package is."""
    if module in sys.modules:
        return True
    parent, _, _ = module.rpartition(".")
    if parent and parent not in sys.modules:
        return _exists(parent)
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
