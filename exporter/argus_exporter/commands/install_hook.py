"""`argus-exporter install-hook`: a .pth file by which a Python environment attaches ARGUS by itself.

PYTHONPATH, by which `run` attaches, is lost where a launcher empties the environment (ssh, sudo, `env -i`) or
starts Python with -E or -I. A .pth file in site-packages runs then too. It attaches only where an exporter's
socket, or the file of settings beside it, is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.errors import UserError
from argus_core.replaced_file import replace_text
from argus_core.settings_file import SUFFIX
from argus_training import boot_directory

PTH: Final = "argus_hook.pth"
MODULE: Final = "argus_hook.py"
_OLDEST_PYTHON: Final = (3, 9)
_ANSWER_LIMIT_S: Final = 60.0
"""How long an interpreter may take to say where its packages are: it may start from a cold network disk."""
_MARK: Final = '"""Written by `argus-exporter install-hook`'

_HOOK: Final = (
    _MARK
    + """; taken out by `argus-exporter install-hook --remove`.

Python runs this at each start, because argus_hook.pth says so. It has ARGUS attach to a process that
imports torch, where an exporter's socket or its file of settings is there; else it does nothing.
\"\"\"

import os
import sys

BOOT = {boot!r}
SOCKET = {socket!r}


def _sockets():
    environ, user = os.environ, os.getuid()
    if environ.get("ARGUS_SOCKET"):
        return [environ["ARGUS_SOCKET"]]
    runtime = [environ.get("XDG_RUNTIME_DIR"), "/run/user/%d" % user]
    private = [folder + "/argus/exporter.sock" for folder in runtime if folder]
    others = ["/tmp/argus-%d/exporter.sock" % user, "/run/argus/exporter.sock"]
    return ([SOCKET] if SOCKET else []) + private + others


def _attach():
    if os.environ.get("ARGUS_DISABLE", "").strip().lower() in ("1", "true", "yes", "on"):
        return
    for socket in _sockets():
        if os.path.exists(socket) or os.path.exists(socket + {suffix!r}):
            break
    else:
        return
    sys.path.insert(0, BOOT)
    try:
        import _argus_boot
    finally:
        sys.path.remove(BOOT)
    _argus_boot.start(socket)


try:
    if sys.version_info >= {oldest!r}:
        _attach()
except ImportError:  # ARGUS was uninstalled
    pass
except Exception as error:  # a start of Python is never disturbed
    sys.stderr.write("argus: not attached, the process goes on without it: %r\\n" % (error,))
"""
)


@dataclass(frozen=True)
class Environment:
    """A Python environment, as its interpreter describes it."""

    python: str
    version: str
    folder: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes argus_hook.pth and argus_hook.py into the site-packages of a Python environment. From then "
        "on its processes attach ARGUS when they import torch, while an exporter's socket or the file of "
        "settings beside it is there, whatever a launcher did to their variables. ARGUS_DISABLE=1 is kept to."
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        help="interpreter of the environment (default: the one that runs this)",
    )
    parser.add_argument(
        "--socket",
        type=Path,
        help="socket of the exporter where no ARGUS_SOCKET is left (default: looked for in the private "
        "folders of the user who trains and in /run/argus)",
    )
    parser.add_argument("--remove", action="store_true", help="take the hook out again")


def run(options: argparse.Namespace) -> int:
    """Write or remove both files, and print what was done and where."""
    environment = _environment(options.python)
    try:
        _refuse_others(environment.folder / MODULE)
        done = _remove(environment.folder) if options.remove else _install(environment.folder, options.socket)
    except OSError as error:
        raise UserError(
            f"{environment.folder} cannot be written to ({error.strerror}): run this as its owner, or name "
            "the interpreter of another environment with --python"
        ) from error
    print(f"{done} {environment.folder} ({environment.python}, Python {environment.version})")
    return 0


def hook(socket: Path | None) -> str:
    """Text of the module."""
    return _HOOK.format(
        boot=str(boot_directory()),
        socket=str(socket.absolute()) if socket else "",
        suffix=SUFFIX,
        oldest=_OLDEST_PYTHON,
    )


def _environment(python: Path) -> Environment:
    """Raises:
    UserError: there is no such interpreter, it is none, or it is too old.
    """
    ask = (
        "import json, site, sys, sysconfig; pure = sysconfig.get_path('purelib')\n"
        "folders = site.getsitepackages()\n"
        "folder = pure if pure in folders else folders[0]\n"
        "print(json.dumps([folder, list(sys.version_info[:3])]))"
    )
    try:
        answer = subprocess.run(
            [python, "-I", "-c", ask],
            env={**os.environ, "ARGUS_DISABLE": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=_ANSWER_LIMIT_S,
        ).stdout
        folder, version = json.loads(answer)
    except OSError as error:
        raise UserError(f"--python {python} cannot be run: {error.strerror}") from error
    except (subprocess.SubprocessError, ValueError) as error:
        raise UserError(
            f"--python {python} is no Python interpreter that says where its packages are"
        ) from error
    shown = ".".join(map(str, version))
    if tuple(version) < _OLDEST_PYTHON:
        needed = ".".join(map(str, _OLDEST_PYTHON))
        raise UserError(f"--python {python} is Python {shown}; allowed: {needed} or newer")
    return Environment(str(python), shown, Path(folder))


def _refuse_others(module: Path) -> None:
    """Raises:
    UserError: a file of this name is there that we did not write.
    """
    if module.exists() and not module.read_text(errors="replace").startswith(_MARK):
        raise UserError(f"{module} was not written by this command: move it away first")


def _install(folder: Path, socket: Path | None) -> str:
    # The module first: a Python that starts in between must not find a .pth file without it.
    wrote = [_write(folder / MODULE, hook(socket)), _write(folder / PTH, f"import {Path(MODULE).stem}\n")]
    return f"{PTH} and {MODULE} {'written into' if any(wrote) else 'were already in'}"


def _write(path: Path, text: str) -> bool:
    """Whether there was anything to do."""
    if path.exists() and path.read_text() == text:
        return False
    replace_text(path, text, mode=0o644)
    return True


def _remove(folder: Path) -> str:
    there = [name for name in (PTH, MODULE) if (folder / name).exists()]
    for name in there:  # the .pth file first
        (folder / name).unlink()
    Path(importlib.util.cache_from_source(str(folder / MODULE))).unlink(missing_ok=True)
    return f"{' and '.join(there)} removed from" if there else "no hook in"
