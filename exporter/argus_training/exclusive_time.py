"""How much of a span lies in other spans within it, so that phases add up to the time that has passed.

Spans are told in the order in which they end, as a thread reports them: what lies within a span has been told
before it. The union of all that was told is kept as segments, and a new span covers those that lie within it.
The sum of all exclusive times is the length of the union, in whatever order spans come.
"""

from __future__ import annotations

from typing import Final

_SEGMENTS_LIMIT: Final = 512
"""Above it the older half becomes one segment: exact for a span around all of it, as around an epoch."""


class ExclusiveTime:
    """One clock: the host's time of one thread, or the GPU's of one stream. Not for several threads."""

    def __init__(self) -> None:
        self._segments: list[tuple[int, int, int]] = []
        """Begin, end and measured time of what was told: disjoint, in order."""

    def within(self, begin: int, end: int) -> int:
        """Nanoseconds of that stretch that lie in spans which were told; nothing is told by it."""
        total = 0
        for from_, to, of_these in reversed(self._segments):
            if to <= begin:
                break
            inside = min(to, end) - max(from_, begin)
            if inside > 0:
                total += of_these * inside // (to - from_)
        return total

    def nested(self, begin: int, end: int, measured: int) -> int:
        """A span is told. What of its time lies in spans that were told before it.

        Args:
            begin, end: where it lies, in ns of the clock by which spans nest.
            measured: its time, in ns: end - begin, but for one that another clock measures (CUDA events).

        Returns:
            Nanoseconds, `measured` at most. Of a span that it overlaps in part: in proportion.
        """
        segments = self._segments
        later = []
        while segments and segments[-1][0] >= end:  # told late: a backward, after the wait that ended it
            later.append(segments.pop())
        total = nested = 0
        first, last = begin, end
        while segments and segments[-1][1] > begin:
            from_, to, of_these = segments.pop()
            total += of_these
            if begin <= from_ and to <= end:
                nested += of_these
            else:
                nested += of_these * (min(to, end) - max(from_, begin)) // (to - from_)
            first, last = min(first, from_), max(last, to)
        nested = min(nested, measured)
        segments.append((first, last, total - nested + measured))
        segments.extend(reversed(later))
        if len(segments) > _SEGMENTS_LIMIT:
            older = segments[: _SEGMENTS_LIMIT // 2]
            segments[: len(older)] = [(older[0][0], older[-1][1], sum(each[2] for each in older))]
        return nested
