"""The rank that a file's name tells, where its content does not."""

from __future__ import annotations

import re
from typing import Final

# worker3_step_12.1694.trace.json.gz, rank-0.Apr_03.json, rank12.sqlite, trace_7.pt.trace.json, run_3.sqlite.
# At most six digits: more are a timestamp. `report1.sqlite`, the default of nsys, tells no rank.
_RANK_IN_NAME: Final = (
    re.compile(r"(?:^|[._-])worker[_-]?([0-9]{1,6})(?=[._-])"),
    re.compile(r"(?:^|[._-])rank[_-]?([0-9]{1,6})(?=[._-])"),
    re.compile(r"_([0-9]{1,6})(?:(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?|\.sqlite)$"),
)

RANK_HINT: Final = (
    "allowed: distributedInfo.rank in the trace, or a file name such as rank3.json, rank-3.*.json, "
    "worker3_*.json, *_3.json or *_3.sqlite; or pass --assume-ranks to number the files in the order given"
)


def rank_from_name(name: str) -> int | None:
    """By the habits of PyTorch's trace handlers and of `nsys profile -o NAME_%q{RANK}`; None: not told."""
    for pattern in _RANK_IN_NAME:
        match = pattern.search(name)
        if match:
            return int(match[1])
    return None
