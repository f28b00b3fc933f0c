"""With which status this interpreter ends, as far as that can be known while it ends.

Python tells atexit functions nothing. What is left behind: `sys.last_value` after an uncaught exception, the
argument of `sys.exit`, and the instruction at which the main module stopped. A `raise SystemExit(...)` that
does not go through `sys.exit` is seen by the latter alone, with its status only where that is a constant.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from argus_core import wire

UNKNOWN: Final = -1
"""The process ended by a SystemExit whose status Python does not tell."""

_RETURNS: Final = ("RETURN_VALUE", "RETURN_CONST")


class ExitWatch:
    """Notes the argument of `sys.exit`, and the frame of the main module.

    The frame holds nothing that would not live as long anyway: its variables are the module's.

    Args:
        main: frame of the main module; None where it is not on the stack.
    """

    def __init__(self, main: FrameType | None = None) -> None:
        self._main = main
        self._told: object = None
        self._was_told = False

    def wrap(self, exit_: Callable[..., Any]) -> Callable[..., Any]:
        """In place of `sys.exit`."""

        @functools.wraps(exit_)
        def noting_exit(status: Any = None, /) -> Any:
            if threading.current_thread() is threading.main_thread():  # else it ends a thread only
                self._told, self._was_told = status, True
            exit_(status)

        return noting_exit

    def status(self) -> int:
        """To be called while the interpreter ends."""
        uncaught = getattr(sys, "last_value", None)
        stopped = self._stopped_at()
        if stopped in _RETURNS:
            return 0  # whatever was raised in between was caught
        if isinstance(uncaught, KeyboardInterrupt):
            return wire.INTERRUPTED
        if uncaught is not None:
            return 1
        if self._was_told:
            return code(self._told)
        return 0 if stopped is None else self._constant()

    def _stopped_at(self) -> str | None:
        """Name of the main module's last instruction; None where its frame is not known."""
        main = self._main
        if main is None or main.f_lasti < 0:
            return None
        return dis.opname[main.f_code.co_code[main.f_lasti]]

    def _constant(self) -> int:
        """The argument of a `raise SystemExit(constant)` in the main module."""
        assert self._main is not None
        before: list[dis.Instruction] = []
        for instruction in dis.get_instructions(self._main.f_code):
            if instruction.offset == self._main.f_lasti:
                break
            if instruction.opname not in ("PRECALL", "CALL", "CALL_FUNCTION", "PUSH_NULL", "CACHE"):
                before.append(instruction)
        last = [(one.opname, one.argval) for one in before[-2:]]
        named = ("LOAD_NAME", "SystemExit")
        if last[-1:] == [named]:
            return 0
        if last[:1] == [named] and last[1][0] == "LOAD_CONST":
            return code(last[1][1])
        return UNKNOWN


def code(status: object) -> int:
    """What a shell sees of a SystemExit's argument."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def main_frame() -> FrameType | None:
    """Frame of the main module, where it is on this thread's stack."""
    names = vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_globals is names and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return frame
