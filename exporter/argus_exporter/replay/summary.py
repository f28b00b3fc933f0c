"""What recordings say, as a table for people and as JSON for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argus_core import wire
from argus_core.kernel_names import is_collective, kernel_id
from argus_core.kernel_records import KernelArray
from argus_core.modes import ModeConfig, Modes, find_modes
from argus_exporter.kernels.pairs import find_pairs
from argus_exporter.kernels.streams import label_streams
from argus_exporter.replay.recording import RankRecording, clean_text

_CROSS_RANK_PAIRS = 10


@dataclass(frozen=True)
class PhaseSummary:
    phase: str
    kind: str
    count: int
    mean_seconds: float


@dataclass(frozen=True)
class PairSummary:
    """One (kernel, stream) pair of one rank. `share` is of the rank's kernel time; p50 over all events."""

    kernel: str
    name: str
    stream: str
    count: int
    seconds: float
    share: float
    p50_seconds: float
    modes: Modes | None
    """None below the top pairs."""


@dataclass(frozen=True)
class RankSummary:
    rank: int
    source: str
    training_job: str
    steps: int
    iteration_mean_seconds: float | None
    kernel_events: int
    kernel_pairs: int
    kernel_seconds: float
    collective_seconds: float
    phases: tuple[PhaseSummary, ...]
    pairs: tuple[PairSummary, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """One pair across ranks: medians of its duration, and who has the longest.

    For a collective the longest median is no sign of slowness: who arrives last waits least. Nor is it where
    the ranks have different numbers of events, since then they ran different work.
    """

    kernel: str
    stream: str
    collective: bool
    same_counts: bool
    ranks: int
    p50_min_seconds: float
    p50_max_seconds: float
    ratio: float
    slowest_rank: int


def summarise_rank(recording: RankRecording, top: int) -> RankSummary:
    """Counts, means, and the modes of the `top` pairs by time."""
    kernels = recording.kernels
    seconds = kernels["duration_ns"].astype(np.float64) / 1e9
    durations = recording.iterations["duration_ns"].astype(np.float64) / 1e9
    pairs = tuple(_pairs(recording, top))
    return RankSummary(
        rank=recording.rank,
        source=clean_text(str(recording.source), 4096),
        training_job=recording.identity.training_job,
        steps=len(durations),
        iteration_mean_seconds=float(durations.mean()) if len(durations) else None,
        kernel_events=len(kernels),
        kernel_pairs=len(pairs),
        kernel_seconds=float(seconds.sum()),
        collective_seconds=float(seconds[recording.collective].sum()),
        phases=tuple(_phases(recording)),
        pairs=pairs,
        notes=recording.notes,
    )


def spreads(summaries: Sequence[RankSummary], limit: int = _CROSS_RANK_PAIRS) -> list[Spread]:
    """The pairs with most time over all ranks, of those that two ranks or more have."""
    by_pair: dict[tuple[str, str], list[tuple[int, PairSummary]]] = {}
    for summary in summaries:
        for pair in summary.pairs:
            by_pair.setdefault((pair.kernel, pair.stream), []).append((summary.rank, pair))
    shared = [ranks for ranks in by_pair.values() if len(ranks) > 1]
    shared.sort(key=lambda ranks: -sum(pair.seconds for _, pair in ranks))
    result = []
    for ranks in shared[:limit]:
        medians = [pair.p50_seconds for _, pair in ranks]
        slowest, pair = ranks[int(np.argmax(medians))]
        least = min(medians)
        result.append(
            Spread(
                kernel=pair.kernel,
                stream=pair.stream,
                collective=is_collective(pair.name),
                same_counts=len({pair.count for _, pair in ranks}) == 1,
                ranks=len(ranks),
                p50_min_seconds=least,
                p50_max_seconds=max(medians),
                ratio=max(medians) / least if least > 0 else float("inf"),
                slowest_rank=slowest,
            )
        )
    return result


def as_json(summaries: Sequence[RankSummary]) -> dict[str, Any]:
    """Base units; the infinite ratio of a median of 0 becomes null, which JSON can say."""
    across = [dataclasses.asdict(spread) for spread in spreads(summaries)]
    for spread in across:
        spread["ratio"] = spread["ratio"] if np.isfinite(spread["ratio"]) else None
    return {"ranks": [dataclasses.asdict(summary) for summary in summaries], "across_ranks": across}


def as_text(summaries: Sequence[RankSummary], top: int) -> str:
    """Tables: ranks, top kernels of each rank, spread across ranks."""
    blocks = ["\n".join(_rank_table(summaries))]
    blocks += ["\n".join(_rank_block(summary, top)) for summary in summaries]
    across = spreads(summaries)
    if across:
        blocks.append("\n".join(_spread_table(across)))
    return "\n\n".join(blocks)


def _pairs(recording: RankRecording, top: int) -> Iterator[PairSummary]:
    kernels: KernelArray = recording.kernels
    if not len(kernels):
        return
    found = find_pairs(kernels)
    durations = kernels["duration_ns"].astype(np.float64) / 1e9
    seconds = found.seconds
    total = float(seconds.sum())
    labels = label_streams(kernels, dict(enumerate(recording.texts)))
    config = ModeConfig(tick_seconds=recording.tick_seconds)
    for place, index in enumerate(np.argsort(-seconds, kind="stable")):
        name = recording.texts[int(found.name_id[index])]
        own = durations[found.index == index]
        yield PairSummary(
            kernel=kernel_id(name),
            name=name,
            stream=labels[int(found.stream[index])],
            count=len(own),
            seconds=float(seconds[index]),
            share=float(seconds[index]) / total if total else 0.0,
            p50_seconds=float(np.median(own)),
            modes=find_modes(own, config) if place < top else None,
        )


def _phases(recording: RankRecording) -> Iterator[PhaseSummary]:
    spans = recording.spans
    for phase_id, kind in dict.fromkeys(zip(spans["phase_id"].tolist(), spans["kind"].tolist(), strict=True)):
        own = spans["duration_ns"][(spans["phase_id"] == phase_id) & (spans["kind"] == kind)]
        mean = float(own.astype(np.float64).mean()) / 1e9
        yield PhaseSummary(recording.texts[phase_id], wire.Kind(kind).name.lower(), len(own), mean)


def _rank_table(summaries: Sequence[RankSummary]) -> list[str]:
    rows = [("rank", "steps", "iteration", "events", "pairs", "kernel time", "NCCL time", "job", "file")]
    for s in summaries:
        mean = "-" if s.iteration_mean_seconds is None else duration(s.iteration_mean_seconds)
        totals = duration(s.kernel_seconds), duration(s.collective_seconds)
        counts = f"{s.kernel_events:,}", f"{s.kernel_pairs:,}"
        rows.append((str(s.rank), f"{s.steps:,}", mean, *counts, *totals, s.training_job, s.source))
    return _table(rows, left=(7, 8))


def _rank_block(summary: RankSummary, top: int) -> list[str]:
    lines = [f"rank {summary.rank}"]
    lines += [f"  note: {note}" for note in summary.notes]
    if summary.phases:
        means = ", ".join(f"{p.phase} {duration(p.mean_seconds)}" for p in summary.phases)
        lines.append(f"  phases (mean): {means}")
    rows = [("share", "events", "stream", "kernel", "modes: events x p50 (p99)")]
    rows += [
        (f"{pair.share:.1%}", f"{pair.count:,}", pair.stream, pair.kernel, _modes(pair.modes))
        for pair in summary.pairs[:top]
    ]
    if len(rows) > 1:
        lines += [f"  {line}" for line in _table(rows, left=(2, 3, 4))]
    return lines


def _modes(modes: Modes | None) -> str:
    if modes is None:
        return ""
    parts = [f"{mode.count:,} x {duration(mode.p50)} ({duration(mode.p99)})" for mode in modes.modes]
    parts += [f"{modes.tail_events:,} in the tail"] if modes.tail_events else []
    parts += [f"{modes.dropped:,} of 0 s"] if modes.dropped else []
    return ", ".join(parts)


def _spread_table(across: Sequence[Spread]) -> list[str]:
    rows = [("ranks", "shortest p50", "longest p50", "ratio", "rank", "stream", "kernel", "")]
    for s in across:
        hint = "" if s.same_counts else "different numbers of events"
        hint = "collective: who comes last waits least" if s.collective else hint
        medians = duration(s.p50_min_seconds), duration(s.p50_max_seconds)
        rows.append((str(s.ranks), *medians, f"{s.ratio:.3f}", str(s.slowest_rank), s.stream, s.kernel, hint))
    return ["across ranks", *(f"  {line}" for line in _table(rows, left=(5, 6, 7)))]


def _table(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def duration(seconds: float) -> str:
    """Three digits and a unit, for people."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return (
                f"{seconds / factor:.3g} {unit}"
                if seconds < factor * 999.5
                else f"{seconds / factor:.0f} {unit}"
            )
    return f"{seconds * 1e9:.3g} ns" if seconds else "0 s"
