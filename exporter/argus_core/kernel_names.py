"""Short, stable identifiers for GPU kernels, and what their names say about them.

A demangled CUTLASS or ATen name runs to thousands of characters; Prometheus labels should not. The short id
depends on the full name alone, never on which other kernels a rank happened to run, so that the same kernel
has the same id on every rank.
"""

from __future__ import annotations

import hashlib
import re

_ID_LIMIT = 64
# `ncclAllReduceRingLLKernel_*` until 2.7, `ncclKernel_*` until 2.18, `ncclDevKernel_*` since; with symmetric
# memory `ncclSymDevKernel_*`, `ncclSymkDevKernel_*`, `ncclSymkRun_*`.
# Then what waits for peers without NCCL: the all-reduces of PyTorch's symmetric memory (`multimem_*`, ...),
# of vLLM, SGLang and aiter (`cross_device_*`), of FlashInfer and TensorRT-LLM; userbuffers;
# NVSHMEM. `dispatch` and `combine` alone may be anybody's: DeepEP's are known by their namespace.
# Always from the first letter of the function's name on: a GEMM with an exchange inside it computes.
_COLLECTIVE = re.compile(
    r"""(?:void\ )?(?:
    (?:nccl|rccl|mscclpp?)(?:\w*Kernel|SymkRun)
    | (?:(?:\w+|\(anonymous\ namespace\)|<unnamed>)::)*(?:
        cross_device_(?:reduce|all_gather)
        | (?:multimem_)?(?:one|two)_shot_(?:all_)?reduce_kernel
        | multimem_all_(?:reduce|gather)_kernel
        | (?:lowPrecision)?(?:one|two)shotAllreduce(?:Fusion)?Kernel
        | allreduce_(?:fusion_kernel|prototype)_
        | moeA2A(?:Dispatch|Combine)Kernel | moeAllToAllKernel
        | userbuffers_fp16_sum_
        | nvshmem | (?:barrier|sync)(?:_all)?_on_stream_kernel
        | (?P<namespaced>
            (?:deep_ep|uccl)::(?:intranode|internode|internode_ll)::(?!get_dispatch_layout)\w+
            | deep_ep::elastic::(?:(?:hybrid_)?(?:dispatch|combine)|barrier)_impl
            | hybrid_ep::(?:dispatch|combine|device_sync)_kernel
        )
    ))""",
    re.IGNORECASE | re.VERBOSE,
)
_OPERATION = re.compile(
    "cross_device_reduce|All_?Reduce|All_?Gather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll",
    re.IGNORECASE,
)
_PHASES = {
    "allreduce": "all_reduce",
    "crossdevicereduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "alltoall": "all_to_all",
}
_MEMORY = re.compile(r"^mem(?:cpy|set)(?![a-z])", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNDAMENTAL = frozenset(
    ("void", "bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "true", "false")
)
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_:.\-]+")


def is_collective(name: str) -> bool:
    """Whether the kernel (full name or id) waits for peers.

    Those of NCCL, RCCL and MSCCL in all spellings of their releases, DeepEP, NVSHMEM and custom all-reduces.
    """
    return _COLLECTIVE.match(name) is not None


def collective_phase(name: str) -> str | None:
    """Phase name of a collective kernel in the words of `torch.distributed`; None where it is none of them.

    The same words name the phases of collectives that the producer sees on the host (`all_reduce`, ...).
    Sends, receives and NCCL's all-to-all share one kernel: `send_recv`. The name tells the first operation of
    a group of them; before NCCL 2.14 it may be another one (github.com/NVIDIA/nccl/issues/714), and the
    generic kernels of RCCL tell none. DeepEP's two halves of an exchange are none of its words.
    """
    collective = _COLLECTIVE.match(name)
    if collective is None or collective["namespaced"]:
        return None
    found = _OPERATION.search(_split(name)[0])
    return _PHASES[found[0].lower().replace("_", "")] if found else None


def is_memory_operation(name: str) -> bool:
    """Whether the record (full name or id) is a copy or a memory set rather than a kernel."""
    return _MEMORY.match(name) is not None


def kernel_id(name: str) -> str:
    """Label value for the kernel called `name` (demangled): readable, at most 64 + 9 characters.

    Return type, namespaces and call arguments are cut; of the template arguments the first that names
    something stays, because `Kernel2` or `elementwise_kernel` alone say little. A name that lost anything in
    this gets eight hex digits of the SHA-256 of the full name, so that two instantiations never share an id.
    """
    if is_memory_operation(name):
        return _label(name.replace("->", "to"))[:_ID_LIMIT]
    base, arguments = _split(name)
    collective = _COLLECTIVE.match(name)
    if collective is not None and collective["namespaced"]:  # what it is, only its namespace tells
        base = collective["namespaced"]
    telling = next(filter(None, map(_telling, arguments)), "")
    short = (_label(f"{base}.{telling}" if telling else base) or "kernel")[:_ID_LIMIT]
    if short == name:
        return short
    return f"{short}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _label(text: str) -> str:
    return _NOT_IN_ID.sub("_", text.strip()).strip("_.")


def _split(name: str) -> tuple[str, list[str]]:
    """Unqualified function name and its template arguments."""
    signature = _top_level(re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name), "(")[0]
    qualified = _top_level(signature.strip(), " ")[-1]
    component = _top_level(qualified, ":")[-1] or qualified
    base, bracket, rest = component.partition("<")
    return base, _top_level(rest.rpartition(">")[0], ",") if bracket else []


def _telling(argument: str) -> str:
    """Unqualified name of a template argument; empty for numbers, fundamental types and unnamed functions."""
    base, _ = _split(argument)
    return base if _NAME.fullmatch(base) and base not in _FUNDAMENTAL else ""


def _top_level(text: str, separator: str) -> list[str]:
    """Split at `separator` outside of angle brackets, and (but for itself) of round ones."""
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        if character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth = max(depth - 1, 0)
    return [*parts, text[start:]]
