"""Whether code of ours is being traced: to a compiler the answer is a constant, and it sees no more of us."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, SimpleNamespace
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


def skip_our_code(dynamo: Any) -> None:
    """What a compiled function of the user's calls beside its graph is no frame for dynamo where it is ours.

    Nothing of it is asked when we run. What dynamo traces within such a function it traces as before; so do
    our public functions, which a user may compile themselves.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(("argus_training.", "argus_core.")):
            for one in list(vars(module).values()):
                for defined in list(vars(one).values()) if isinstance(one, type) else [one]:
                    function = getattr(defined, "__func__", getattr(defined, "fget", defined))
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        _skip(function.__code__, dynamo.eval_frame.skip_code)


def _skip(code: CodeType, skip_code: Callable[[CodeType], object]) -> None:
    """And what is defined within."""
    skip_code(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _skip(constant, skip_code)
