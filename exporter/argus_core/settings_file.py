"""Settings of training processes in a file beside the exporter's socket: `ARGUS_NAME=value`, one a line.

Launchers drop variables (ssh, sudo, `env -i`, `srun --export=NONE`); the file is found by the socket's path.
A variable of the process wins over it. An operator writes it, ARGUS only reads. The interpreter's start may
load this module, so it imports nothing that costs time.
"""

from __future__ import annotations

import os
import stat

from argus_core.trust import trusted

SUFFIX = ".env"
_PREFIX = "ARGUS_"
_NOT_HERE = ("ARGUS_SOCKET", "ARGUS_PRODUCER_PID")
"""The first is how the file is found, the second is each process's own."""
_BYTES_LIMIT = 1 << 16
"""A choice: the whole table of settings with long values is a tenth of it."""


def beside(socket: str) -> str:
    """Path of the file that belongs to a socket."""
    return socket + SUFFIX


def read(path: str) -> tuple[dict[str, str], list[str]]:
    """Names and values of the file, and a sentence for what of it cannot be used. No file: nothing.

    Whoever may write it may name a library to load. So it must be a plain file of a user whom we would
    report to (`trusted`), and nobody else may write it.
    """
    try:
        text = _text(path)
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return {}, [f"{path} is not used: {why}"]
    values: dict[str, str] = {}
    warnings = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not (equals and name.startswith(_PREFIX) and name.isidentifier()):
            warnings.append(f"line {number} of {path} is {line[:80]!r}; allowed: ARGUS_NAME=value")
        elif name in _NOT_HERE:
            warnings.append(f"line {number} of {path} sets {name}, which only a variable can; not used")
        else:
            values[name] = value.strip()
    return values, warnings


def _text(path: str) -> str:
    """Raises:
    OSError: it cannot be read.
    ValueError: it may not be used; the message says why.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if not trusted(status.st_uid, path):
            raise ValueError(
                f"it belongs to user {status.st_uid}; allowed: this user, root, or a service whose folder "
                "nobody else may write to"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError(f"others may write to it; to allow it: chmod go-w {path}")
        read = os.read(descriptor, _BYTES_LIMIT + 1)
    finally:
        os.close(descriptor)
    if len(read) > _BYTES_LIMIT:
        raise ValueError(f"it has more than {_BYTES_LIMIT} bytes")
    if b"\0" in read:
        raise ValueError("it has a NUL byte")
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
