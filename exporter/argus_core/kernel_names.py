"""Short, stable identifiers for GPU kernels, and what their names say about them.

A demangled CUTLASS or ATen name runs to thousands of characters; Prometheus labels should not. The short id
depends on the full name alone, never on which other kernels a rank happened to run, so that the same kernel
has the same id on every rank.
"""

from __future__ import annotations

import hashlib
import re

NAME_LIMIT = 256
"""Longest full name published in `argus_kernel_info` and carried on the wire, in bytes."""

_ID_LIMIT = 64
_COLLECTIVE = re.compile(r"^(?:void )?(?:nccl|rccl|mscclpp?)(?:Dev)?Kernel", re.IGNORECASE)
_MEMORY = re.compile(r"^mem(?:cpy|set)(?![a-z])", re.IGNORECASE)
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_:.\-]+")


def is_collective(name: str) -> bool:
    """Whether the kernel (full name or id) is a communication kernel of NCCL, RCCL or MSCCL.

    Both spellings count: `ncclKernel_*` until NCCL 2.18 and `ncclDevKernel_*` since.
    """
    return _COLLECTIVE.match(name) is not None


def is_memory_operation(name: str) -> bool:
    """Whether the record (full name or id) is a copy or a memory set rather than a kernel."""
    return _MEMORY.match(name) is not None


def kernel_id(name: str) -> str:
    """Label value for the kernel called `name` (demangled): readable, at most 64 + 9 characters.

    Return type, namespaces, template and call arguments are cut; a name that lost anything in this gets eight
    hex digits of the SHA-256 of the full name, so that two instantiations never share an id.
    """
    short = _strip_brackets(name.strip())
    short = short.rsplit(" ", 1)[-1] if not is_memory_operation(name) else short
    short = short.rsplit("::", 1)[-1] or short
    short = _NOT_IN_ID.sub("_", short).strip("_")[:_ID_LIMIT] or "kernel"
    if short == name:
        return short
    if is_memory_operation(name):
        return _NOT_IN_ID.sub("_", name.replace("->", "to").strip()).strip("_")[:_ID_LIMIT]
    return f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _strip_brackets(name: str) -> str:
    """Drop everything inside <...> and (...), keeping `(anonymous namespace)::f` as `f`."""
    kept: list[str] = []
    depth = 0
    for character in name:
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip()
