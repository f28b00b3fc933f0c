"""What wrappers on the user's own classes hold: they call what would be called, and no pickle has us in it.

A class of `__main__` is pickled by value (cloudpickle, which Ray, Spark and joblib use): its functions with
all that they close over. There stands False where we stand, and the copy of the wrapper only calls on.
"""

from __future__ import annotations

from typing import Any


class Inert:
    """False in a pickle."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, ()


def called_by(class_: type, method: str) -> Any:
    """What has as `__call__`, at each call, what a class has as its method without a wrapper of its own."""
    if method == "__call__" and method not in vars(class_):
        # What someone puts into the base class later (torch.fx traces so) is called as without us.
        return next(base for base in class_.__mro__[1:] if method in vars(base))
    return type("Original", (), {"__call__": staticmethod(getattr(class_, method))})
