"""Which NCCL may be asked, and what is wrong with the others.

Source: NCCL's tags 2.24.3 to 2.30.7 (src/ras) and the issues of github.com/NVIDIA/nccl that are named below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from argus_exporter.ras.errors import RasRefused


@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read NCCL's own writing, such as 2.28.9 or 2.28.9+cuda13.0.

        Raises:
            ValueError: it is none.
        """
        found = re.match(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\d)", text)
        if found is None:
            raise ValueError(f"{text[:40]!r} is no version of NCCL")
        return cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


WITH_RAS: Final = Version(2, 24, 0)
WITH_JSON: Final = Version(2, 28, 7)
"""The first that answers in JSON; 2.28.3 was the release before it."""

_DEFECTS: Final = (
    (
        WITH_RAS,
        Version(2, 27, 3),
        "a question while it makes communicators crashes the job (issues 1669, 1718)",
    ),
    (Version(2, 27, 3), Version(2, 27, 4), "jobs crashed that were asked again and again (issue 1762)"),
    (
        Version(2, 27, 7),
        Version(2, 27, 8),
        "RAS crashes the job by itself; only NCCL_RAS_ENABLE=0 helps (issue 1996)",
    ),
    (
        Version(2, 27, 4),
        WITH_JSON,
        "it answers in text only, and writing that text has crashed jobs (issue 2346)",
    ),
)
"""First version, the one after the last, and what happens; the first line that fits is told."""


def defect(version: Version) -> str:
    """What asking this version can do to a job; "" where nothing is known against it."""
    return next((what for first, after, what in _DEFECTS if first <= version < after), "")


def refuse_unsafe(version: Version) -> None:
    """Raises:
    RasRefused: the version has no RAS, or asking it could harm the job.
    """
    if version < WITH_RAS:
        raise RasRefused(f"NCCL {version} has no RAS; it came with 2.24")
    if what := defect(version):
        raise RasRefused(
            f"NCCL {version} is not asked: {what}; 2.28.7 and newer are, and --unsafe asks it all the same"
        )
