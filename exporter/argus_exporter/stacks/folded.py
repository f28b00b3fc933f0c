"""Folded stacks: samples counted by thread and call stack, in the format of flame graph tools.

Source: `py-spy record -f raw -t`: a line a stack, `thread (17526): MainThread;outer (file.py:3);inner
(file.py:9) 29`. Every line comes from another process: it may be anything, and there may be any number.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from argus_core import wire

DEPTH_LIMIT: Final = 384
"""Frames kept of a stack, the innermost ones: a recursion must not become a trace of its own.

A compiler that traces a model has ten frames for each level of its modules; where it began must be
among them.
"""
STACKS_LIMIT: Final = 4096
"""Distinct stacks kept of a window; 10 s at 10 Hz of 32 threads cannot have more than 3,200."""
TEXT_LIMIT: Final = 256
"""Characters of a thread's or a frame's name."""
_PACKAGE_FOLDERS: Final = ("site-packages/", "dist-packages/")
_COUNT_LIMIT: Final = 1_000_000_000
UNNAMED_THREAD: Final = "unnamed"

_THREAD = re.compile(r"thread \((?:0x)?[0-9A-Fa-f]+\)(?:: ?(?P<name>.*))?", re.ASCII)
_SERIAL = re.compile(r"[-_ ]*\d+(?:[-_]\d+)*")
_LINE_NUMBER = re.compile(r":\d+\)$")
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*)\)")


class Stack(NamedTuple):
    """One thread's call stack, outermost frame first; frames are `function (file:line)`."""

    thread: str
    frames: tuple[str, ...]


Folded = Mapping[Stack, int]
"""Samples by stack."""

Sink = Callable[[tuple[str, int], int, int, Folded], None]
"""Takes a window's stacks: the rank's key, begin and end of the window in Unix nanoseconds, the samples.

Called on the exporter's event loop: it must be quick, and what it raises is logged.
"""


class Parsed(NamedTuple):
    """What a text of folded stacks held."""

    folded: Counter[Stack]
    samples: int
    unread: int
    """Lines that are no folded stack, and stacks beyond the limit."""


def parse(text: str) -> Parsed:
    """Read folded stacks. What cannot be read is counted, never raised."""
    folded: Counter[Stack] = Counter()
    samples = unread = 0
    for line in text.splitlines():
        path, _, count_text = line.rpartition(" ")
        parts = path.split(";")
        count = (
            int(count_text) if count_text.isascii() and count_text.isdigit() and len(count_text) < 11 else 0
        )
        if not 0 < count <= _COUNT_LIMIT or len(parts) < 2:
            unread += bool(line.strip())
            continue
        thread = _THREAD.fullmatch(parts[0])
        name = thread_name(thread["name"] or "") if thread else UNNAMED_THREAD
        frames = parts[1:] if thread else parts
        stack = Stack(name, tuple(_printable(frame) for frame in frames[-DEPTH_LIMIT:]))
        if stack not in folded and len(folded) >= STACKS_LIMIT:
            unread += 1
            continue
        folded[stack] += count
        samples += count
    return Parsed(folded, samples, unread)


@functools.lru_cache(maxsize=256)  # a rank has few threads, and they come with every sample
def thread_name(name: str) -> str:
    """A thread's name without serial numbers: `ThreadPoolExecutor-0_3` is every thread of every pool.

    Names are the user's, and those with numbers in them (`Thread-17 (worker)`) would be series without end.
    """
    return _SERIAL.sub("", _printable(name)).strip() or UNNAMED_THREAD


def frame_label(frame: str) -> str:
    """`function (module)` for a frame `function (package/module.py:12)`: lines move with every edit."""
    match = _FRAME.fullmatch(_LINE_NUMBER.sub(")", frame))
    if match is None:
        return frame
    return f"{match['function']} ({module_of(match['file'])})"


def module_of(file: str) -> str:
    """`torch.nn.modules.linear` for `torch/nn/modules/linear.py`; a package for its `__init__.py`."""
    for folder in _PACKAGE_FOLDERS:  # py-spy cuts a path at the import root, or one folder above it
        file = file.rpartition(folder)[2]
    dotted = file.removesuffix(".py").removesuffix("/__init__").strip("/")
    return dotted.replace("/", ".")


def _printable(text: str) -> str:
    return wire.decode_text(text[:TEXT_LIMIT].encode("utf-8", "replace"))
