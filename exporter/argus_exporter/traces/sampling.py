"""Which windows are uploaded without anybody asking.

Every exporter of a job draws alike, from the job, the window and the rank, without talking to the others: so
the windows of the ranks whose turn it is show the same steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

from argus_exporter.traces.config import SamplingConfig
from argus_exporter.traces.segment_index import RankKey


def is_chosen(key: RankKey, number: int, ratio: float) -> bool:
    """Whether it is the rank's turn in window `number`: a share `ratio` of ranks, drawn anew each time."""
    digest = hashlib.sha256(f"{key[0]}\0{number}\0{key[1]}".encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "little") < ratio * 2.0**64


@dataclass
class Sampler:
    """Says which windows are due. `config` may change while it runs."""

    config: SamplingConfig
    _seen: dict[RankKey, int] = field(default_factory=dict)

    def due(self, key: RankKey, last_step: int) -> tuple[int, int] | None:
        """First and last step of a window that has become complete and is to be uploaded.

        Args:
            last_step: the rank's last finished step.
        """
        config = self.config
        if not config.every_steps:
            return None
        number = (last_step + 1 - config.steps) // config.every_steps
        before = self._seen.get(key)
        self._seen[key] = number
        # A rank's first window may have begun before we saw it.
        if before is None or number <= before or not is_chosen(key, number, config.ratio):
            return None
        first = number * config.every_steps
        return first, first + config.steps - 1

    def keep(self, keys: Collection[RankKey]) -> None:
        """Forget all other ranks."""
        for gone in self._seen.keys() - set(keys):
            del self._seen[gone]
