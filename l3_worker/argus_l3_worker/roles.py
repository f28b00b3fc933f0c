"""Which roles are compared with one another when a whole group of ranks is looked for."""

from __future__ import annotations

import re
from typing import Final

ANY_ROLE: Final = "all"
"""Role of ranks whose `argus_rank_info` names none."""
_TENSOR: Final = re.compile(r"tp\d+")


def stage_of(role: str) -> str:
    """A role without its tensor index, `pp0.tp3` as `pp0`: ranks that should be equally fast.

    Tensor indices do the same work, and all ranks of one may be slow alike. Whatever else a role says, such
    as a GPU model or a modality, tells that its ranks are not to be compared with those of another.
    """
    return ".".join(part for part in role.split(".") if not _TENSOR.fullmatch(part)) or ANY_ROLE
