"""`dataclass` with slots, also on Python 3.9 of older training images: `dataclasses` has them since 3.10."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as slotted
elif sys.version_info >= (3, 10):
    slotted = functools.partial(dataclasses.dataclass, slots=True)
else:

    def slotted(**options: Any) -> Any:
        return lambda type_: with_slots(dataclasses.dataclass(**options)(type_))


def with_slots(type_: type) -> type:
    """The dataclass again, with a slot for each field that no base has one for; it may not use `super()`."""
    inherited = {name for base in type_.__mro__[1:] for name in getattr(base, "__slots__", ())}
    names = tuple(field.name for field in dataclasses.fields(type_) if field.name not in inherited)
    body = {
        name: value for name, value in vars(type_).items() if name not in (*names, "__dict__", "__weakref__")
    }
    return type(type_)(type_.__name__, type_.__bases__, {**body, "__slots__": names})


__all__ = ["slotted", "with_slots"]
