"""Every ARGUS_* variable that the producer reads, declared once: parsing, warnings and docs read this table.

A wrong value never stops a training process: it is said once on stderr, and the default is used.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from argus_core import settings_file
from argus_core.process_environment import THREADS, alone

PREFIX: Final = "ARGUS_"
HOOKS: Final = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "collectives",
    "gc",
    "profiler",
    "compilation",
    "checkpoint",
    "traced",
    "mesh",
    "groups",
    "layers",
    "deepspeed",
    "generation",
    "lightning",
    "megatron",
)


@dataclass(frozen=True)
class Variable:
    """One environment variable; `type` is bool, int, str or tuple (comma-separated, of `allowed`)."""

    name: str
    type: type
    default: Any
    help: str
    minimum: int = 0
    allowed: tuple[str, ...] = ()


TABLE: Final = (
    Variable("ARGUS_DISABLE", bool, False, "switch all of ARGUS off in the training process"),
    Variable("ARGUS_DISABLE_PHASES", bool, False, "switch the phases channel off"),
    Variable("ARGUS_DISABLE_KERNELS", bool, False, "switch the kernels channel off"),
    Variable(
        "ARGUS_DISABLE_STACKS",
        bool,
        False,
        "take no stacks inside the process; py-spy from outside is the exporter's to switch",
    ),
    Variable(
        "ARGUS_DISABLE_HOOKS",
        tuple,
        (),
        "phase hooks to leave out, comma-separated: " + ", ".join(HOOKS),
        allowed=HOOKS,
    ),
    Variable(
        "ARGUS_DISABLE_CUDA_EVENTS", bool, False, "time GPU phases on the host clock, not with CUDA events"
    ),
    Variable("ARGUS_SOCKET", str, "", "socket of the exporter; default: a private folder of the user"),
    Variable("ARGUS_JOB", str, "", "name of the training job; default: from the scheduler or the script"),
    Variable(
        "ARGUS_NODE", str, "", "name of the host; default: its own, which in a container is not the machine's"
    ),
    Variable(
        "ARGUS_MODEL",
        str,
        "",
        "what this job trains, such as llama-70b-8k: runs of one model, backend and size are compared; a "
        "change of what a step does needs another name",
    ),
    Variable(
        "ARGUS_BACKEND", str, "", "software that it trains with, such as megatron-0.12; see ARGUS_MODEL"
    ),
    Variable(
        "ARGUS_PARALLEL",
        str,
        "",
        "parallel sizes in Megatron's order, such as tp=2,pp=4,cp=2; dp is the rest, which ep and cp divide",
    ),
    Variable(
        "ARGUS_TRACED_PYTHON_API",
        str,
        "",
        "functions to time as phases of their own, such as torch.cuda@synchronize,torch@Tensor.item",
    ),
    Variable(
        "ARGUS_WARMUP_ITERATIONS", int, 3, "first iterations that count as warm-up: no verdicts from them"
    ),
    Variable(
        "ARGUS_FLUSH_MILLISECONDS",
        int,
        1000,
        "records wait at most this long",
    ),
    Variable(
        "ARGUS_STACKS",
        str,
        "auto",
        "who samples this rank's stacks: auto: py-spy from outside, and the process itself while py-spy is "
        "refused; inprocess: the process itself; off: nobody inside",
        allowed=("auto", "inprocess", "off"),
    ),
    Variable(
        "ARGUS_PTRACER",
        str,
        "off",
        "under Yama's ptrace_scope 1, let py-spy read this process: exporter: the exporter on our socket and "
        "its children; any: every process of this user",
        allowed=("off", "exporter", "any"),
    ),
    Variable(
        "ARGUS_KERNELS_FALLBACK",
        bool,
        False,
        "where libargus_cupti.so is missing, record kernels with cupti-python: it holds the GIL meanwhile",
    ),
    Variable("ARGUS_DEBUG", bool, False, "say on stderr what was attached"),
    Variable("ARGUS_PRODUCER_PID", int, 0, "set by ARGUS itself: the process that reports for this rank"),
    Variable(
        "ARGUS_COMMAND_INCLUDE",
        str,
        "",
        "kernels only of processes whose command line matches this POSIX extended regular expression",
    ),
    Variable("ARGUS_COMMAND_EXCLUDE", str, "", "no kernels of processes whose command line matches this"),
    Variable(
        "ARGUS_ISSUE_LATENCY",
        str,
        "sampled",
        "record kernel launches too, for start minus launch per kernel; sampled: in one second of ten, the "
        "same on all ranks; 1: always; 0: never",
        allowed=("sampled", "1", "0"),
    ),
    Variable("ARGUS_CUPTI_LIBRARY", str, "", "libcupti to use; default: the one that is mapped, or by name"),
    Variable(
        "ARGUS_CUPTI_BUFFERS", int, 32, "buffers that CUPTI fills; more CUDA threads need more", minimum=2
    ),
    Variable("ARGUS_CUPTI_BUFFER_KIBIBYTES", int, 1024, "size of such a buffer", minimum=16),
    Variable(
        "ARGUS_RECORD", str, "", "record CUPTI's raw buffers into this path, with .rank<rank> behind it"
    ),
    Variable(
        "ARGUS_NEXT_INJECTION",
        str,
        "",
        "another injection library, which ours loads and initialises behind it",
    ),
    Variable(
        "ARGUS_KERNELS_COST",
        int,
        1,
        "per cent of the training's time that kernels may cost, by what a record was measured to cost; "
        "0: whatever they cost",
        minimum=0,
    ),
    Variable("ARGUS_RECORD_MEBIBYTES", int, 64, "such a recording ends at this size", minimum=1),
    Variable(
        "ARGUS_NCCL",
        bool,
        False,
        "have NCCL load libargus_nccl.so: collectives by communicator; off until it has met several GPUs",
    ),
    Variable(
        "ARGUS_NCCL_EVENTS",
        str,
        "network",
        "what libargus_nccl asks NCCL for; network: calls, launches, network steps; calls: no network steps",
        allowed=("network", "calls"),
    ),
    Variable(
        "ARGUS_NEXT_PROFILER",
        str,
        "",
        "another profiler plugin of NCCL, which ours loads and passes events on to",
    ),
    Variable("ARGUS_NCCL_PAGE", str, "", "set by ARGUS itself: memory in which libargus_nccl counts"),
    Variable(
        "ARGUS_WATCHDOG_SECONDS",
        int,
        30,
        "kernels that stay away so long while steps go on have CUPTI taken back; 0: never",
    ),
)

READ_BY_INJECTOR: Final = (
    "ARGUS_DISABLE",
    "ARGUS_DISABLE_KERNELS",
    "ARGUS_SOCKET",
    "ARGUS_JOB",
    "ARGUS_FLUSH_MILLISECONDS",
    "ARGUS_DEBUG",
    "ARGUS_PRODUCER_PID",
    "ARGUS_COMMAND_INCLUDE",
    "ARGUS_COMMAND_EXCLUDE",
    "ARGUS_ISSUE_LATENCY",
    "ARGUS_CUPTI_LIBRARY",
    "ARGUS_CUPTI_BUFFERS",
    "ARGUS_CUPTI_BUFFER_KIBIBYTES",
    "ARGUS_RECORD",
    "ARGUS_RECORD_MEBIBYTES",
    "ARGUS_KERNELS_COST",
    "ARGUS_NEXT_INJECTION",
)
"""What native/injector reads as well; its header of names and defaults is generated from the table."""

READ_BY_NCCL: Final = (
    "ARGUS_DISABLE",
    "ARGUS_DEBUG",
    "ARGUS_NCCL",
    "ARGUS_NCCL_EVENTS",
    "ARGUS_NEXT_PROFILER",
    "ARGUS_NCCL_PAGE",
)
"""What native/nccl reads as well."""

RETIRED: Final = {
    "ARGUS_EVENT_POOL": "4096 CUDA events may be in flight",
}
"""Variables of before, and what became of them."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


@dataclass(frozen=True)
class Settings:
    """The parsed table; fields are the variables' names without prefix, in lower case."""

    disable: bool
    disable_phases: bool
    disable_kernels: bool
    disable_stacks: bool
    disable_hooks: tuple[str, ...]
    disable_cuda_events: bool
    socket: str
    job: str
    node: str
    model: str
    backend: str
    parallel: str
    traced_python_api: str
    warmup_iterations: int
    flush_milliseconds: int
    stacks: str
    ptracer: str
    kernels_fallback: bool
    debug: bool
    producer_pid: int
    command_include: str
    command_exclude: str
    issue_latency: str
    cupti_library: str
    cupti_buffers: int
    cupti_buffer_kibibytes: int
    record: str
    next_injection: str
    kernels_cost: int
    record_mebibytes: int
    nccl: bool
    nccl_events: str
    next_profiler: str
    nccl_page: str
    watchdog_seconds: int


def read(environ: Mapping[str, str], file: str = "") -> tuple[Settings, list[str]]:
    """Settings of an environment, and a sentence for each value that cannot be used or looks mistyped.

    Args:
        environ: variables; they win over the file.
        file: path of more of them, see `argus_core.settings_file`; empty: none.
    """
    filed, warnings = settings_file.read(file) if file else ({}, [])
    environ = {**filed, **environ}

    def shown(name: str) -> str:
        # The boot may have put the file's values into the environment already: they are still the file's.
        return f"{name} in {file}" if name in filed and filed[name] == environ[name] else name

    values: dict[str, Any] = {}
    for variable in TABLE:
        field = variable.name.removeprefix(PREFIX).lower()
        values[field] = variable.default
        if variable.name in environ:
            try:
                values[field] = _parse(variable, environ[variable.name])
            except ValueError as error:
                default = ",".join(variable.default) if variable.type is tuple else variable.default
                warnings.append(
                    f"{shown(variable.name)} is {environ[variable.name]!r}; allowed: {error}; "
                    f"using {default!r}"
                )
    names = [variable.name for variable in TABLE]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in names:
            continue
        if name in RETIRED:
            warnings.append(f"{shown(name)} is no variable any more: {RETIRED[name]}")
            continue
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.9)
        # Other components have variables of their own: only what is almost one of ours is worth a word.
        # The file is ours alone.
        if close or name in filed:
            meant = f"; did you mean {close[0]}?" if close else ""
            warnings.append(f"{shown(name)} is no variable of ARGUS{meant}")
    return Settings(**values), warnings


def place(environ: MutableMapping[str, str], file: str) -> str:
    """Put the file's settings into the environment, for what reads only that: libargus_cupti, children.

    Returns:
        A sentence where that cannot be done any more; empty: it is done, or there is nothing to do.
    """
    filed, _ = settings_file.read(file)
    missing = {name: value for name, value in filed.items() if name not in environ}
    if missing and not alone():
        unread = [name for name in missing if name in READ_BY_INJECTOR]
        return f"kernels are recorded without {', '.join(unread)} of {file}: {THREADS}" if unread else ""
    environ.update(missing)
    return ""


def _parse(variable: Variable, text: str) -> Any:
    text = text.strip()
    if variable.type is bool:
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError("1 or 0")
    if variable.type is int:
        if not text.isdecimal() or int(text) < variable.minimum:
            raise ValueError(f"a whole number of {variable.minimum} or more")
        return int(text)
    if variable.type is tuple:
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        if not set(items) <= set(variable.allowed):
            raise ValueError(f"a comma-separated list of {', '.join(variable.allowed)}")
        return items
    if variable.allowed and text not in variable.allowed:
        raise ValueError(" or ".join(variable.allowed))
    return text
