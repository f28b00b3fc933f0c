"""Samples as series: the top leaf frames of a rank, chosen with hysteresis, and `other` for the rest.

A compiler has thousands of leaves, none of them in many samples: all that it does is one leaf, its entry.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

from argus_exporter.stacks.folded import Folded, Stack, frame_label

OTHER: Final = "other"
THREADS_LIMIT: Final = 16
"""Distinct thread labels of a rank, beside `other`: a job may name its threads as it likes."""
_CANDIDATES_LIMIT: Final = 512
_MEMORY: Final = 0.9
"""Weight of the past at each window: a frame is judged by its share of about the last ten."""
_CHALLENGE: Final = 1.5
"""So much larger must a share be to take the place of a published frame: series should not come and go."""
_COMPILER_ENTRY: Final = re.compile(
    r"(?:.*[.])?_?compile(?:_(?:fx|fx_inner|graph|kernel|model|module|program))? "
    r"[(](?!(?:re|regex|sre_compile|jinja2)(?:[.].*)?[)]).*[)]"
)
"""Dynamo's, Inductor's, Triton's, CuTe's and whose else are named so, as in `compileFrames` of the mixin.

Neither regular expressions and templates nor what calls compiled code, such as `compile_wrapper`.
"""


class Leaf(NamedTuple):
    """The labels of a series: which thread, and its innermost frame or the entry of a compiler."""

    thread: str
    frame: str


class StackTotals:
    """Sample counts of one rank: at most `top_frames` leaves, and one `other` a thread."""

    def __init__(self, top_frames: int) -> None:
        self.top_frames = top_frames
        self.counts: Counter[Leaf] = Counter()
        """Samples since the leaf was published; what is published now and nothing else."""
        self.samples = 0
        self._threads: set[str] = set()
        self._shares: dict[Leaf, float] = {}

    def add(self, folded: Folded) -> None:
        """Count a window's stacks."""
        window: Counter[Leaf] = Counter()
        for stack, count in folded.items():
            window[Leaf(self._thread(stack.thread), telling_frame(stack))] += count
        total = window.total()
        if not total:
            return
        self.samples += total
        self._judge(window, total)
        self._choose()
        for leaf, count in window.items():
            self.counts[leaf if leaf in self.counts else Leaf(leaf.thread, OTHER)] += count

    def _thread(self, name: str) -> str:
        if name not in self._threads:
            if len(self._threads) >= THREADS_LIMIT:
                return OTHER
            self._threads.add(name)
        return name

    def _judge(self, window: Counter[Leaf], total: int) -> None:
        """Bring the remembered share of every leaf up to date; forget the smallest of too many."""
        shares = {leaf: share * _MEMORY for leaf, share in self._shares.items()}
        for leaf, count in window.items():
            shares[leaf] = shares.get(leaf, 0.0) + (1 - _MEMORY) * count / total
        if len(shares) > _CANDIDATES_LIMIT:
            largest = sorted(shares, key=shares.__getitem__, reverse=True)[:_CANDIDATES_LIMIT]
            shares = {leaf: shares[leaf] for leaf in largest}
        self._shares = shares

    def _choose(self) -> None:
        """Fill free places with the largest leaves; a published one yields only to a much larger one."""
        published = {leaf for leaf in self.counts if leaf.frame != OTHER}
        waiting = sorted(self._shares.keys() - published, key=lambda leaf: (self._shares[leaf], leaf))
        waiting = [leaf for leaf in waiting if leaf.frame != OTHER]
        while waiting:
            challenger = waiting.pop()
            if len(published) >= self.top_frames:
                weakest = min(published, key=lambda leaf: (self._shares.get(leaf, 0.0), leaf))
                if self._shares[challenger] <= _CHALLENGE * self._shares.get(weakest, 0.0):
                    return
                published.remove(weakest)
                del self.counts[weakest]
            published.add(challenger)
            self.counts[challenger] = 0


def telling_frame(stack: Stack) -> str:
    """Label of the frame that a stack is counted under: its innermost, or where it enters a compiler."""
    for frame in stack.frames:
        if entry := _compiler_entry(frame):
            return entry
    return frame_label(stack.frames[-1]) if stack.frames else OTHER


@lru_cache(maxsize=16_384)
def _compiler_entry(frame: str) -> str | None:
    if "compile" not in frame:
        return None
    label = frame_label(frame)
    return label if _COMPILER_ENTRY.fullmatch(label) else None
