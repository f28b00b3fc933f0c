"""libargus_cupti: where it is, and what a command needs to be observed by it.

CUDA loads the library that CUDA_INJECTION64_PATH names when it comes up (cuInit). That is one slot for one
library: where somebody has taken it, it is left alone, and ARGUS_NEXT_INJECTION can chain theirs behind ours.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path

from argus_core.injection import NAME, SLOT, unfit
from argus_training import settings


def library_path(name: str = NAME) -> Path | None:
    """The installed library of this name; None where the package was installed without it.

    In a wheel it lies in argus_core, beside the compiled numerics; an editable install keeps what it
    compiled in site-packages.
    """
    package = Path(__file__).resolve().parents[1] / "argus_core"
    installed = (sysconfig.get_path(key) for key in ("platlib", "purelib"))
    for folder in (package, *(Path(path) / "argus_core" for path in installed)):
        if (folder / name).is_file():
            return folder / name
    return None


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
        return {}, (
            "libargus_cupti.so is not installed: no kernels (the wheel of this platform has it; built from "
            "source it takes a C++ compiler)"
        )
    taken = environ.get(SLOT, "")
    if taken and Path(taken) != library:
        return {}, (
            f"{SLOT} is taken by {taken}: no kernels (to have both, unset it and set "
            f"ARGUS_NEXT_INJECTION={taken})"
        )
    reason, why = unfit(str(library))
    if reason:
        return {}, f"no kernels: {why}"
    return {SLOT: str(library)}, ""
