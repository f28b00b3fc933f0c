"""libargus_cupti: where it is, and what a process needs to be observed by it.

CUDA loads the library that CUDA_INJECTION64_PATH names when it comes up (cuInit). That is one slot for one
library: where somebody has taken it, it is left alone, and ARGUS_NEXT_INJECTION can chain theirs behind ours.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from argus_training import settings

SLOT: Final = "CUDA_INJECTION64_PATH"
_NAME: Final = "libargus_cupti.so"
_NEEDED: Final = re.compile(rb"\0GLIBC_(\d+)\.(\d+)")


def library_path() -> Path | None:
    """The installed library; None where the package was installed without a compiler.

    In a wheel it lies in argus_core, beside the compiled numerics; an editable install keeps what it
    compiled in site-packages.
    """
    package = Path(__file__).resolve().parents[1] / "argus_core"
    installed = (sysconfig.get_path(key) for key in ("platlib", "purelib"))
    for folder in (package, *(Path(path) / "argus_core" for path in installed)):
        if (folder / _NAME).is_file():
            return folder / _NAME
    return None


def unfit(library: Path) -> tuple[str, str]:
    """Why this process cannot load the library: a word for the channel, and a sentence. Empty: it can.

    CUDA is not to meet a library that does not load: whether it then starts is not said anywhere.
    """
    try:
        needed = max(((int(a), int(b)) for a, b in _NEEDED.findall(library.read_bytes())), default=(0, 0))
    except OSError as error:
        return "missing", f"{library} cannot be read ({error.strerror})"
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl
        libc = ""
    have = re.match(r"glibc (\d+)\.(\d+)", libc)
    if have is not None and (int(have[1]), int(have[2])) >= needed:
        return "", ""
    return "glibc", "{} needs glibc {}.{}, here is {}".format(library, *needed, libc or "another C library")


def place(environ: MutableMapping[str, str], library: Path | None) -> tuple[str, str]:
    """In the training process, before CUDA comes up: name our library to CUDA, or say why not, as `unfit`.

    A slot that was filled elsewhere, such as outside of this container, is emptied where ours cannot be
    loaded; another tool's is left alone.
    """
    ours = Path(environ.get(SLOT) or library or "")
    if ours.name != _NAME:
        return "", ""
    reason, why = unfit(ours)
    if reason:
        environ.pop(SLOT, None)
    elif environ.get(SLOT) != str(ours):  # setenv moves what another thread may be reading
        environ[SLOT] = str(ours)
    return reason, why


def environment(environ: Mapping[str, str], library: Path | None) -> tuple[dict[str, str], str]:
    """Variables to add to a command's environment, and a word on why there are none (empty: there are).

    Args:
        environ: the environment of the command as it stands.
        library: from `library_path`.
    """
    wanted, _ = settings.read(environ)
    if wanted.disable or wanted.disable_kernels:
        return {}, "kernels are switched off"
    if library is None:
        return {}, "libargus_cupti.so is not installed: no kernels (install with a C++ compiler at hand)"
    taken = environ.get(SLOT, "")
    if taken and Path(taken) != library:
        return {}, (
            f"{SLOT} is taken by {taken}: no kernels (to have both, unset it and set "
            f"ARGUS_NEXT_INJECTION={taken})"
        )
    reason, why = unfit(library)
    if reason:
        return {}, f"no kernels: {why}"
    return {SLOT: str(library)}, ""
