"""libargus_cupti and libargus_nccl in a training process: whether they load, and how CUDA and NCCL know.

CUDA loads the library that CUDA_INJECTION64_PATH names when it comes up (cuInit), NCCL the one that
NCCL_PROFILER_PLUGIN names at its first communicator. The interpreter's start
loads this module: it imports nothing that costs time.
"""

# ruff: noqa: PTH113, PTH118, PTH119, PTH123

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping

from argus_core.process_environment import THREADS

SLOT = "CUDA_INJECTION64_PATH"
NAME = "libargus_cupti.so"
REFUSED = ".refused"
"""What `argus_training.try_library` leaves beside a library that does not load in this image."""
PROFILER_SLOT = "NCCL_PROFILER_PLUGIN"
PROFILER = "libargus_nccl.so"
NEXT_PROFILER = "ARGUS_NEXT_PROFILER"
PROFILER_MEMORY = "ARGUS_NCCL_PAGE"
"""PID:DESCRIPTOR of what the plugin counts in, see `argus_core.nccl_page`."""
_VERSION = b"\0GLIBC_"


def find(folders: Iterable[str], name: str = NAME) -> str:
    """The library of this name in the first of these folders of packages that has it; empty: none has."""
    for folder in folders:
        path = os.path.join(folder, "argus_core", name)
        if os.path.isfile(path):
            return path
    return ""


def place(environ: MutableMapping[str, str], library: str, alone: bool) -> tuple[str, str]:
    """Before CUDA comes up: name our library to CUDA, or say why not, as `unfit`, and of the slot.

    A slot that was filled elsewhere, such as outside of this container, is emptied where ours cannot be
    loaded; another tool's is left alone.

    Args:
        environ: the variables of this process.
        library: path of the installed one; empty: there is none.
        alone: no other thread runs, so `environ` may be changed.
    """
    before = environ.get(SLOT, "")
    ours = before or library
    if before and library and os.path.basename(before) != NAME:
        return (
            "slot_taken",
            f"{SLOT} is taken by {before}; ARGUS_NEXT_INJECTION={before}, without it, loads both",
        )
    if os.path.basename(ours) != NAME:
        return "", ""
    reason, why = unfit(ours)
    if reason and before:
        if not alone:
            return reason, f"{why}; {SLOT} stays, as {THREADS}"
        environ.pop(SLOT)
    elif not reason and not before:
        if not alone:
            return "threads", f"{SLOT} cannot be set, as {THREADS}"
        environ[SLOT] = ours
    return reason, why


def place_profiler(environ: MutableMapping[str, str], library: str, alone: bool) -> tuple[str, str]:
    """Before NCCL comes up: name our plugin to it, with memory to count in; or say why not, as `unfit`.

    Another plugin is passed on to ours, which loads it behind itself.

    Args:
        environ: the variables of this process.
        library: path of the installed one; empty: there is none.
        alone: no other thread runs, so `environ` may be changed.
    """
    before = environ.get(PROFILER_SLOT, "")
    if not library:
        return "missing", f"{PROFILER} is not installed"
    if before.lower() == "none" or (before and "static_plugin".startswith(before.lower())):
        return "slot_taken", f"{PROFILER_SLOT} is {before}: NCCL is left without ours"
    if os.path.basename(before) == PROFILER and profiler_memory(environ) is not None:
        return "", ""
    reason, why = unfit(library)
    if not reason and not alone:
        reason, why = "threads", f"{PROFILER_SLOT} cannot be set, as {THREADS}"
    if reason:
        return reason, why
    from argus_core import nccl_page  # costs time, and only who asks for it pays

    try:
        descriptor = nccl_page.make()
    except (OSError, AttributeError) as error:
        return "no_memory", f"no memory can be shared with {PROFILER} ({error})"
    if before and os.path.basename(before) != PROFILER:
        environ[NEXT_PROFILER] = before
    environ[PROFILER_SLOT] = library
    environ[PROFILER_MEMORY] = f"{os.getpid()}:{descriptor}"
    return "", ""


def profiler_memory(environ: Mapping[str, str]) -> int | None:
    """Descriptor of the memory of `place_profiler`, where that was in this process, and before no exec."""
    owner, _, text = environ.get(PROFILER_MEMORY, "").partition(":")
    if owner != str(os.getpid()) or not text.isdecimal():
        return None
    from argus_core import nccl_page  # costs time, and only who asks for it pays

    descriptor = int(text)
    return descriptor if nccl_page.is_memory(descriptor) else None


def unfit(library: str) -> tuple[str, str]:
    """Why this process cannot load the library: a word for the channel, and a sentence. Empty: it can.

    CUDA is not to meet a library that does not load: whether it then starts is not said anywhere.
    """
    try:
        needed = needs_glibc(library)
    except OSError as error:
        return "missing", f"{library} cannot be read ({error.strerror})"
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl
        libc = ""
    kind, _, version = libc.partition(" ")
    if kind == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= needed:
        return _tried(library)
    return "glibc", "{} needs glibc {}.{}, here is {}".format(library, *needed, libc or "another C library")


def _tried(library: str) -> tuple[str, str]:
    """What a trial of it left; empty: it loads, or was not tried."""
    try:
        with open(library + REFUSED, encoding="utf-8", errors="replace") as file:
            why = file.read(300).strip()
    except OSError:
        return "", ""
    return "load", f"{library} does not load in this image: {why}"


def needs_glibc(library: str) -> tuple[int, int]:
    """The oldest glibc that loads an ELF file, from the versions of symbols that it names.

    Raises:
        OSError: it cannot be read.
    """
    with open(library, "rb") as file:
        return max(_needs(file.read()), default=(0, 0))


def _needs(content: bytes) -> Iterable[tuple[int, int]]:
    for part in content.split(_VERSION)[1:]:
        major, _, rest = part[:16].split(b"\0")[0].partition(b".")
        minor = rest.partition(b".")[0]
        if major.isdigit() and minor.isdigit():
            yield int(major), int(minor)
