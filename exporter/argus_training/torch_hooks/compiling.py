"""Whether code of ours is being traced: to a compiler the answer is a constant, and it sees no more of us."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

_NEVER_EXPORTING: Final = SimpleNamespace(_is_compiling_flag=False)
"""Stands for `torch.compiler` where a torch has no such flag, or another. No class of ours: it gets into
pickles of the user's classes (`inert.py`)."""


def compiling(torch: Any) -> tuple[Callable[[], bool], Any]:
    """Ask the first whether dynamo traces, and the second's `_is_compiling_flag` whether a model is exported.

    The two answers that `torch.compiler.is_compiling` gives, without its three calls.
    """
    compiler = torch.compiler
    if hasattr(compiler, "is_dynamo_compiling") and hasattr(compiler, "_is_compiling_flag"):
        return compiler.is_dynamo_compiling, compiler
    return compiler.is_compiling, _NEVER_EXPORTING
