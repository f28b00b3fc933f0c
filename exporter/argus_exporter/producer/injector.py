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
from typing import Final, NamedTuple

from argus_exporter.producer import settings

SLOT: Final = "CUDA_INJECTION64_PATH"
_NAME: Final = "libargus_cupti.so"
_NEEDED: Final = re.compile(rb"\0GLIBC_(\d+)\.(\d+)")


class Unfit(NamedTuple):
    """Why a process cannot load the library: the reason of its channel, and a sentence."""

    reason: str
    detail: str


def library_path() -> Path | None:
    """The installed library; None where the package was installed without a compiler.

    In a wheel it lies in argus_core, beside the compiled numerics; an editable install keeps what it
    compiled in site-packages.
    """
    package = Path(__file__).resolve().parents[2] / "argus_core"
    installed = (sysconfig.get_path(key) for key in ("platlib", "purelib"))
    for folder in (package, *(Path(path) / "argus_core" for path in installed)):
        if (folder / _NAME).is_file():
            return folder / _NAME
    return None


def unfit(library: Path) -> Unfit | None:
    """Why this process cannot load the library; None where it can. The file is read, and never loaded.

    CUDA is not to meet a library that does not load: whether it then starts is not said anywhere.
    """
    try:
        needed = max(((int(a), int(b)) for a, b in _NEEDED.findall(library.read_bytes())), default=(0, 0))
    except OSError as error:
        return Unfit("missing", f"{library} cannot be read ({error.strerror})")
    try:
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):  # musl
        words = []
    have = tuple(map(int, words[1].split(".")[:2])) if len(words) == 2 else (0, 0)
    if have >= needed:
        return None
    here = "here is glibc {}.{}".format(*have) if any(have) else "here is another C library"
    return Unfit("glibc", "{} needs glibc {}.{}, {}".format(library, *needed, here))


def place(environ: MutableMapping[str, str], library: Path | None) -> Unfit | None:
    """In the training process, before CUDA comes up: name our library to CUDA if it can be loaded here.

    A slot that names ours and was filled elsewhere, such as outside of this container, is emptied if not.

    Args:
        environ: changed in place.
        library: from `library_path`.

    Returns:
        Why this process has no kernels; None where it has, or where the slot is another tool's.
    """
    slot = environ.get(SLOT, "")
    if slot and Path(slot).name != _NAME:
        return None
    ours = Path(slot) if slot else library
    if ours is None:
        return None
    why = unfit(ours)
    if why is None:
        environ[SLOT] = str(ours)
    else:
        environ.pop(SLOT, None)
    return why


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
    why = unfit(library)
    if why is not None:
        return {}, f"no kernels: {why.detail}"
    return {SLOT: str(library)}, ""
