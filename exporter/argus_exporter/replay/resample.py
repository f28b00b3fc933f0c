"""A fleet of ranks resampled from real traces, with compute kernels of chosen ranks stretched.

No public trace has labelled slow kernels. This makes one: every rank runs the kernel sequence of one recorded
step, each duration drawn with replacement from what the real trace holds of that (kernel, stream) pair, and
the compute kernels of chosen ranks last longer by a factor. Say so where it is shown: injected into a real
trace.

The draw is a smoothed bootstrap. A trace holds a few dozen durations of a mode; a window of a minute draws
each of them a hundred times, and clustering then rightly finds a mode at every one: 25 where the trace has 4.
Source: Silverman & Young 1987, doi:10.1093/biomet/74.3.469, with their shrinkage, which keeps the variance.

The ranks step together, as in synchronous training: a step ends for all when it has ended for the slowest.
Collectives do not wait for the stretched rank, so their durations stay as recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.modes import ModeConfig, find_modes
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import (
    ITERATION_DTYPE,
    SPAN_DTYPE,
    RankRecording,
    RecordingError,
)

_SHORTEST_NS: Final = 100.0
"""A duration that the clock recorded as 0 becomes at least this."""
_LEAD_NS: Final = 10_000
"""Before the first kernel of a step: one that starts with the step would belong to the window before."""
_NORMAL_IQR: Final = 1.349

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """Recorded durations of one pair in nanoseconds, and the mode that each belongs to.

    Attributes:
        logs: their logarithms, shape (n,).
        centres: median of each one's mode, in logs.
        deviations: robust standard deviation of each one's mode, in logs; 0 where all are equal.
        bandwidths: how far a draw of each may move, in logs.
    """

    logs: Floats
    centres: Floats
    deviations: Floats
    bandwidths: Floats

    def draw(self, shape: tuple[int, ...], random: np.random.Generator, *, smooth: bool) -> Floats:
        chosen = random.integers(len(self.logs), size=shape)
        if not smooth:
            return np.exp(self.logs[chosen])
        width, centre, deviation = self.bandwidths[chosen], self.centres[chosen], self.deviations[chosen]
        shrink = np.hypot(1.0, np.divide(width, deviation, out=np.zeros(shape), where=deviation > 0))
        moved = self.logs[chosen] - centre + width * random.standard_normal(shape)
        return np.exp(centre + moved / shrink)


def make_pool(durations_ns: Floats, tick_ns: float) -> Pool:
    """Group the durations by the modes that the exporter would find, and measure each group."""
    usable = np.maximum(durations_ns, max(tick_ns / 4, _SHORTEST_NS))
    logs = np.log(usable)
    modes = find_modes(usable / 1e9, ModeConfig(tick_seconds=tick_ns / 1e9)).modes
    middles = np.log([mode.p50 * 1e9 for mode in modes])
    group = np.searchsorted((middles[:-1] + middles[1:]) / 2, logs)
    centres, deviations, bandwidths = np.empty_like(logs), np.empty_like(logs), np.empty_like(logs)
    for index in np.unique(group):
        own = group == index
        low, centre, high = np.quantile(logs[own], (0.25, 0.5, 0.75))
        deviation = (high - low) / _NORMAL_IQR
        centres[own], deviations[own] = centre, deviation
        # Silverman's rule of thumb for a Gaussian kernel.
        bandwidths[own] = 0.9 * deviation * np.count_nonzero(own) ** -0.2
    return Pool(logs, centres, deviations, bandwidths)


@dataclass(frozen=True)
class Template:
    """One step of a real trace, ready to be repeated.

    Attributes:
        recording: the trace that the step comes from, with the kernels of that step only.
        gaps_ns: idle time of its stream before each kernel; shape of `recording.kernels`.
        pair: (kernel, stream) of each kernel, as an index into `pools`.
        pools: recorded durations of each pair, from all traces.
        tick_ns: resolution of the pools' clock; draws are spread over it.
        iterations_ns: recorded durations of iterations.
    """

    recording: RankRecording
    gaps_ns: Integers
    pair: Integers
    pools: tuple[Pool, ...]
    tick_ns: float
    iterations_ns: Integers


def make_template(recordings: Sequence[RankRecording]) -> Template:
    """The step whose kernel count is the median one, of the first recording; durations from all of them.

    Raises:
        RecordingError: the first recording has no kernels.
    """
    first = recordings[0]
    if not len(first.kernels):
        raise RecordingError(f"{first.source}: has no kernels to resample")
    step, begin_ns = _typical_step(first)
    of_step = first.kernel_steps == step
    kernels = first.kernels[of_step]
    keys = [(first.texts[k["name_id"]], int(k["stream"])) for k in kernels]
    place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    pools: list[list[Floats]] = [[] for _ in place]
    for recording in recordings:
        for key, durations in _durations_by_pair(recording).items():
            if key in place:
                pools[place[key]].append(durations)
    tick_ns = max(recording.tick_seconds for recording in recordings) * 1e9
    return Template(
        recording=dataclasses.replace(first, kernels=kernels, kernel_steps=first.kernel_steps[of_step]),
        gaps_ns=_gaps(kernels["start_ns"], kernels["duration_ns"], kernels["stream"], begin_ns),
        pair=np.array([place[key] for key in keys], np.int64),
        pools=tuple(make_pool(np.concatenate(pool), tick_ns) for pool in pools),
        tick_ns=tick_ns,
        iterations_ns=first.iterations["duration_ns"].astype(np.int64),
    )


def resample(
    recordings: Sequence[RankRecording],
    *,
    ranks: int,
    steps: int,
    seed: int,
    stretch: Mapping[int, float] | None = None,
    job: str | None = None,
    first_step: int = 1,
    draw: int = 0,
    smooth: bool = True,
) -> list[RankRecording]:
    """A fleet of `ranks` ranks over `steps` steps, reproducible from `seed` (and `draw`).

    Each step of each rank has the kernels of one recorded step, in its order and on its streams; only
    durations are drawn. Ranks draw independently of each other.

    Args:
        recordings: real traces of ranks that run the same kernels.
        ranks: how many ranks to make.
        steps: iterations of each; four or more fill a window of the exporter.
        seed: of all random numbers.
        stretch: rank to the factor by which its compute kernels (no collectives, copies or sets) last longer.
        job: training job; default: that of the first recording.
        first_step: index of the first step.
        draw: number of the fleet in an endless series: same sequence, fresh draws.
        smooth: smoothed bootstrap (see the module docstring); False: only the durations of the trace.
    """
    template = make_template(recordings)
    return _resample(template, ranks, steps, seed, stretch or {}, job, first_step, draw, smooth=smooth)


def endless(
    recordings: Sequence[RankRecording],
    *,
    ranks: int,
    steps: int,
    seed: int,
    stretch: Mapping[int, float] | None = None,
    job: str | None = None,
) -> Iterator[list[RankRecording]]:
    """Fleets with fresh draws, one after another, for a player that goes on."""
    template = make_template(recordings)
    for draw in count():
        yield _resample(template, ranks, steps, seed, stretch or {}, job, 1, draw, smooth=True)


def _resample(
    template: Template,
    ranks: int,
    steps: int,
    seed: int,
    stretch: Mapping[int, float],
    job: str | None,
    first_step: int,
    draw: int,
    *,
    smooth: bool,
) -> list[RankRecording]:
    source = template.recording
    compute = source.compute
    durations = []
    for rank in range(ranks):
        drawn = _draw(template, steps, np.random.default_rng([seed, draw, rank]), smooth=smooth)
        drawn[:, compute] *= stretch.get(rank, 1.0)
        durations.append(np.rint(drawn).astype(np.int64))
    starts = [_layout(template, rank_durations) for rank_durations in durations]
    ends = [(s + d).max(axis=1) for s, d in zip(starts, durations, strict=True)]
    shared = np.random.default_rng([seed, draw, ranks])
    recorded = template.iterations_ns if len(template.iterations_ns) else np.zeros(1, np.int64)
    lengths = np.maximum(np.max(ends, axis=0) + 1, shared.choice(recorded, steps))
    begins = source.begin_ns + np.concatenate(([0], np.cumsum(lengths)[:-1]))
    iterations = np.zeros(steps, ITERATION_DTYPE)
    iterations["step"] = first_step + np.arange(steps)
    iterations["start_ns"] = begins
    iterations["duration_ns"] = lengths
    return [
        _recording(template, rank, ranks, durations[rank], starts[rank] + begins[:, None], iterations, job)
        for rank in range(ranks)
    ]


def _recording(
    template: Template,
    rank: int,
    ranks: int,
    durations: Integers,
    starts: Integers,
    iterations: NDArray[np.void],
    job: str | None,
) -> RankRecording:
    source = template.recording
    kernels = np.tile(source.kernels, len(iterations))
    kernels["start_ns"] = starts.ravel()
    kernels["duration_ns"] = durations.ravel()
    steps = np.repeat(iterations["step"], len(source.kernels))
    order = np.argsort(kernels["start_ns"], kind="stable")
    return RankRecording(
        source=source.source,
        identity=Identity(training_job=job or source.identity.training_job, rank=rank, world_size=ranks),
        texts=source.texts,
        kernels=kernels[order],
        kernel_steps=steps[order],
        spans=np.empty(0, SPAN_DTYPE),
        iterations=iterations.copy(),
    )


def _draw(template: Template, steps: int, random: np.random.Generator, *, smooth: bool) -> Floats:
    """Durations in nanoseconds, shape (steps, kernels of a step)."""
    drawn = np.empty((steps, len(template.pair)))
    for index, pool in enumerate(template.pools):
        places = np.flatnonzero(template.pair == index)
        drawn[:, places] = pool.draw((steps, len(places)), random, smooth=smooth)
    if smooth and template.tick_ns:
        # The clock counted whole ticks: spread what it rounded, so that draws are continuous like real times.
        drawn += template.tick_ns * (random.random(drawn.shape) - 0.5)
    return np.maximum(drawn, _SHORTEST_NS)


def _layout(template: Template, durations: Integers) -> Integers:
    """Starts since the begin of each step: each stream keeps its recorded idle gaps. Shape of `durations`."""
    starts = np.empty_like(durations)
    streams = template.recording.kernels["stream"]
    for stream in np.unique(streams):
        places = np.flatnonzero(streams == stream)
        length = durations[:, places] + template.gaps_ns[places]
        starts[:, places] = np.cumsum(length, axis=1) - durations[:, places]
    return starts


def _gaps(starts: Integers, durations: Integers, streams: Integers, begin_ns: int) -> Integers:
    """Idle nanoseconds of its stream before each kernel; kernels ascend by start."""
    gaps = np.zeros(len(starts), np.int64)
    for stream in np.unique(streams):
        places = np.flatnonzero(streams == stream)
        begins = starts[places].astype(np.int64)
        ends = np.maximum.accumulate(begins + durations[places].astype(np.int64))
        gaps[places] = np.maximum(begins - np.concatenate(([begin_ns], ends[:-1])), 0)
    return gaps


def _typical_step(recording: RankRecording) -> tuple[int, int]:
    """The step with the median number of kernels, and when it begins; without steps, the whole recording."""
    steps, counts = np.unique(recording.kernel_steps[recording.kernel_steps >= 0], return_counts=True)
    if not len(steps):
        return -1, recording.begin_ns
    step = int(steps[np.argsort(counts, kind="stable")[len(steps) // 2]])
    # GPU work of an asynchronous step starts long after the step: it is laid out from its own first kernel.
    return step, int(recording.kernels["start_ns"][recording.kernel_steps == step].min()) - _LEAD_NS


def _durations_by_pair(recording: RankRecording) -> dict[tuple[str, int], Floats]:
    names, streams = recording.kernels["name_id"].astype(np.uint64), recording.kernels["stream"]
    pair = names << np.uint64(32) | streams.astype(np.uint64)
    keys, inverse = np.unique(pair, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    parts = np.split(
        recording.kernels["duration_ns"][order].astype(np.float64), np.cumsum(np.bincount(inverse))[:-1]
    )
    return {
        (recording.texts[int(key >> np.uint64(32))], int(key & np.uint64(0xFFFFFFFF))): part
        for key, part in zip(keys, parts, strict=True)
    }
