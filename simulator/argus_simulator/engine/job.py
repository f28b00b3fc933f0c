"""The simulated job: computes each step of all ranks, with noise and faults, as records without an epoch.

Time is simulated and starts at 0; whoever plays the job adds the epoch and the clocks of the hosts.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_simulator.engine import noise as noise_
from argus_simulator.engine.clockwork import Load, Times, run_step, step_ends
from argus_simulator.engine.compile import compile_plan
from argus_simulator.engine.damage import Damage, Damages, StepState, hosts_of, state_of
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.noise import Noise, RankNoise
from argus_simulator.engine.plan import Bools, Floats, Ints, Plan
from argus_simulator.engine.schedule import Extras
from argus_simulator.engine.settings import ClockSettings, HostSettings, ModelSettings, NoiseSettings
from argus_simulator.topology import Topology

_BETWEEN_STEPS = 0.003
"""Host work between two steps (logging, schedulers), as a share of the step."""
_GC_SHARE = 0.004, 0.012
"""Length of a healthy garbage collection, as shares of the step."""
_CALIBRATIONS = 12
TOKENS_A_MICROBATCH = 4096
NEVER = np.int64(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class JobShape:
    """What a healthy job is."""

    topology: Topology
    step_seconds: float
    model: ModelSettings = ModelSettings()  # noqa: RUF009  (frozen)
    host: HostSettings = HostSettings()  # noqa: RUF009
    noise: NoiseSettings = NoiseSettings()  # noqa: RUF009
    clocks: ClockSettings = ClockSettings()  # noqa: RUF009


@dataclass(frozen=True)
class HostPause:
    """The main thread of a rank stood still: a garbage collection, a compilation, or neither."""

    rank: int
    kind: str
    start_ns: int
    duration_ns: int
    frames: str = ""


@dataclass
class JobStep:
    """What all ranks did in one step. Times count from the start of the job, in ns.

    Attributes:
        start_ns, end_ns, data_end_ns: of each rank's iteration and of its wait for data, shape (R,); `NEVER`
            where there is no end.
        launched: gives `kernels`, and where those of each rank end, shape (R,).
        spans: `SPAN_DTYPE` by rank; ids count `plan.span_texts` from 1.
        span_ends: where the spans of each rank end.
        on_stream: spans that the stream of the computation tells of, shape (spans,).
        device_end_ns: when the device of each rank has done all of the step, shape (R,).
        hung: somebody never ends this step: what has no end is not in the records.
        times: in seconds, of all nodes.
        slow, lost: hops between hosts, as in `Damage`.
    """

    step: int
    plan: Plan
    start_ns: NDArray[np.int64]
    data_end_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    launched: Callable[[], tuple[NDArray[np.void], Ints]]
    spans: NDArray[np.void]
    span_ends: Ints
    on_stream: Bools
    device_end_ns: NDArray[np.int64]
    pauses: list[HostPause]
    tokens: Floats
    state: StepState
    hung: bool
    times: Times
    frames: dict[tuple[int, str], str]
    slow: dict[tuple[str, int, int], float]
    lost: dict[int, tuple[int, int]]

    @property
    def kernels(self) -> NDArray[np.void]:
        """`KERNEL_DTYPE` by rank in order of launch; `name_id` counts `plan.names` from 1."""
        return self._launched[0]

    def kernels_of(self, rank: int) -> NDArray[np.void]:
        records, ends = self._launched
        return records[ends[rank - 1] if rank else 0 : ends[rank]]

    @cached_property
    def _launched(self) -> tuple[NDArray[np.void], Ints]:
        """Made for who asks: of a job whose kernels nobody observes nobody does."""
        return self.launched()

    def spans_of(self, rank: int) -> NDArray[np.void]:
        return self.spans[self._own_spans(rank)]

    def stream_spans_of(self, rank: int) -> NDArray[np.void]:
        """Those that the stream of the computation tells of."""
        own = self._own_spans(rank)
        return self.spans[own][self.on_stream[own]]

    def _own_spans(self, rank: int) -> slice:
        return slice(int(self.span_ends[rank - 1]) if rank else 0, int(self.span_ends[rank]))


class Job:
    """Computes steps in order.

    Args:
        shape: the healthy job.
        faults: what is wrong with it.
        seed: of all noise.
        noise_streams: which noise each rank has; default: its own number. Lets a test relabel ranks.
    """

    def __init__(
        self, shape: JobShape, faults: Sequence[Fault], seed: int, noise_streams: Sequence[int] | None = None
    ) -> None:
        self.shape, self.faults, self.seed = shape, tuple(faults), seed
        ranks = shape.topology.ranks
        self._streams = tuple(noise_streams) if noise_streams is not None else tuple(range(ranks))
        self._noise = Noise(seed, shape.noise, self._streams, hosts_of(shape.topology))
        self._plans: dict[Extras, tuple[Plan, Damages, Ints]] = {}
        self._now = np.zeros(ranks)
        self._step = 0
        usual = self._plan(Extras())[0]
        _refuse_unknown_phases(self.faults, usual.phases)
        launches = np.diff(usual.rank_ends, prepend=0)
        self._launch_cost = shape.host.launch_share * shape.step_seconds / float(launches.max())
        self._unit = self._calibrate(usual)

    @property
    def step(self) -> int:
        """Number of the step that comes next."""
        return self._step

    def jump(self, step: int, seconds: float = 0.0) -> None:
        """Go on at another step, after a pause of the whole job: a restart."""
        self._step = step
        self._now = np.full(len(self._now), float(np.max(self._now)) + seconds)

    def next_step(self) -> JobStep:
        """The next step of every rank."""
        step = self._step
        state = state_of(self.faults, step)
        plan, damages, leaders = self._plan(
            Extras(state.serial, state.minority_share, state.activity == "evaluation")
        )
        damage = damages.of_step(step)
        draws = self._noise.of_step(step, np.diff(plan.rank_ends, prepend=0))
        load, pauses, begun = self._load(plan, damage, draws, leaders, state)
        times = run_step(plan, load)
        ends = step_ends(plan, times)
        done = self._record(plan, damage, load, times, begun, ends, state, pauses)
        self._now = ends + state.extra_seconds
        self._step += 1
        return done

    # -- what the step costs ------------------------------------------------------------------

    def _load(
        self, plan: Plan, damage: Damage, draws: list[RankNoise], leaders: Ints, state: StepState
    ) -> tuple[Load, list[tuple[int, int, float, str, str]], Floats]:
        shape, levels = self.shape, self.shape.noise
        order, rows = plan.order, plan.units.size
        kernel = np.concatenate([one.kernel for one in draws])
        chance = np.concatenate([one.chance for one in draws])
        own = np.repeat(
            self._noise.rank_factor * noise_.lognormal(np.array([one.step for one in draws]), levels.step_cv),
            np.diff(plan.rank_ends, prepend=0),
        )
        slots = rows + len(plan.comm)
        normal, unusual, rank_factor = np.zeros(slots), np.ones(slots), np.ones(slots)
        normal[order], unusual[order], rank_factor[order] = kernel, self._noise.outliers(chance), own

        duration = np.empty(slots)
        duration[:rows] = plan.units.ravel() * self._unit * state.factor * rank_factor[:rows]
        if levels.shape_cv > 0:
            duration[:rows] *= self._shapes(plan)
        duration[:rows] *= noise_.lognormal(normal[:rows], levels.kernel_cv)
        duration[rows:] = plan.body[plan.comm] * self._unit
        duration[rows:] *= noise_.lognormal(normal[rows:][leaders], levels.body_cv)
        duration *= np.where(
            np.arange(slots) < rows, unusual, np.append(unusual[:rows], unusual[rows:][leaders])
        )
        harm = damage.duration
        duration[:rows] *= harm[:rows]
        # A slow link slows the exchange whoever of its members is asked.
        duration[rows:] *= harm[rows:]

        launch = np.zeros(slots)
        launch[order] = self._launch_cost * noise_.lognormal(
            np.concatenate([one.launch for one in draws]), levels.launch_cv
        )
        launch *= damage.launch
        pauses = self._pauses(plan, damage, draws)
        for _, slot, seconds, _, _ in pauses:
            launch[slot] += seconds
        between = _BETWEEN_STEPS * shape.step_seconds
        wait = shape.model.loader_share * shape.step_seconds
        begun = self._now + between
        loader = wait * noise_.lognormal(np.array([one.loader for one in draws]), levels.loader_cv)
        load = Load(
            begun + loader + damage.loader, duration[:rows].reshape(plan.units.shape),
            launch[:rows].reshape(plan.units.shape), launch[rows:], duration[rows:], damage.delay,
            damage.sync, damage.sync_cost,
        )  # fmt: skip
        return load, pauses, begun

    def _pauses(
        self, plan: Plan, damage: Damage, draws: list[RankNoise]
    ) -> list[tuple[int, int, float, str, str]]:
        """(rank, slot, seconds, kind, frames), healthy collections among them."""
        found = [(one.rank, one.slot, one.seconds, one.kind, one.frames) for one in damage.pauses]
        begin = 0
        for rank, (one, end) in enumerate(zip(draws, plan.rank_ends.tolist(), strict=True)):
            chance, place, length = one.pause.tolist()
            if chance < self.shape.host.gc_chance:
                slot = int(plan.order[begin + int(place * (end - begin))])
                low, high = _GC_SHARE
                found.append((rank, slot, (low + length * (high - low)) * self.shape.step_seconds, "gc", ""))
            begin = end
        return found

    def _shapes(self, plan: Plan) -> Floats:
        """Sizes of microbatches: all ranks of a replica see the same."""
        topology, levels = self.shape.topology, self.shape.noise
        count = int(plan.microbatch.max()) + 2
        factors = np.ones((topology.ranks, count))
        for rank in range(topology.ranks):
            first = topology.rank_at({"dp": topology.coordinates(rank)["dp"], "tp": 0, "pp": 0})
            random = noise_.of_fault(self.seed, 0xFFF, self._streams[first], self._step)
            factors[rank, 1:] = noise_.lognormal(random.standard_normal(count - 1), levels.shape_cv)
        of_row = factors[plan.rank[plan.row_node], plan.microbatch[plan.row_node] + 1]
        return np.repeat(of_row, plan.units.shape[1])

    # -- what the records say ------------------------------------------------------------------

    def _record(
        self, plan: Plan, damage: Damage, load: Load, times: Times, begun: Floats, ends: Floats,
        state: StepState, pauses: list[tuple[int, int, float, str, str]],
    ) -> JobStep:  # fmt: skip
        row_starts = times.kernel_ends(plan) - load.duration
        # A phase begins with its first kernel and not when that could have begun.
        begins = times.arrival.copy()
        begins[plan.row_node] = np.where(plan.present[:, 0], row_starts[:, 0], times.arrival[plan.row_node])
        begins[: len(begun)] = begun
        span_start, span_end = begins[plan.span_first], times.end[plan.span_last].max(axis=1)
        # A wait begins when the stream has come there, and the host; what it waits for may begin later still.
        waits = plan.span_after[:, 0] >= 0
        came = np.maximum(times.end[plan.span_after].max(axis=1), times.host[plan.span_first])
        span_start[waits] = came[waits]
        span_end = np.maximum(span_start, span_end)
        _one_after_another(plan, span_start, span_end)
        complete, span_ends = _kept(np.isfinite(span_end), plan.span_ends)
        spans = plan.spans.copy() if complete is None else plan.spans[complete].copy()
        on_stream = (plan.spans["source"] == wire.Source.EVENT) & ~plan.span_apart
        first_ns = _ns(span_start, complete)
        spans["start_ns"], spans["duration_ns"] = first_ns, _ns(span_end, complete) - first_ns
        spans["step"] = self._step
        with np.errstate(invalid="ignore"):  # what never begins has no length
            seconds = span_end - span_start
        spans["nested_seconds"] = _nested(plan, seconds, complete)
        return JobStep(
            self._step, plan, _ns(self._now, None), _or_never(load.ready), _or_never(ends),
            lambda: _kernels(plan, load, times), spans, span_ends,
            on_stream if complete is None else on_stream[complete],
            _or_never(times.end[plan.nodes_of].max(axis=1)), self._host_pauses(plan, load, times, pauses),
            damage.work * TOKENS_A_MICROBATCH * self.shape.model.microbatches, state, damage.hung, times,
            damage.frames, damage.slow, damage.lost,
        )  # fmt: skip

    @staticmethod
    def _host_pauses(
        plan: Plan, load: Load, times: Times, pauses: list[tuple[int, int, float, str, str]]
    ) -> list[HostPause]:
        found = []
        launches = _launches(plan, load, times) if pauses else np.empty(0)
        for rank, slot, seconds, kind, frames in pauses:
            until = float(launches[slot])
            if np.isfinite(until):
                start = round((until - seconds) * 1e9)
                found.append(HostPause(rank, kind, start, round(until * 1e9) - start, frames))
        return found

    # -- plans ------------------------------------------------------------------

    def _plan(self, extras: Extras) -> tuple[Plan, Damages, Ints]:
        known = self._plans.get(extras)
        if known is None:
            plan = compile_plan(self.shape.topology, self.shape.model, self.shape.host, extras)
            damages = Damages(plan, self.faults, self.seed, self._streams)
            known = self._plans[extras] = plan, damages, self._leaders(plan)
        return known

    def _leaders(self, plan: Plan) -> Ints:
        """Whose noise a communication has: of the member with the lowest stream, as relabelling keeps it."""
        streams = np.array(self._streams)[plan.rank[plan.comm]]
        exchange = plan.exchange[plan.comm]
        leaders = np.arange(len(plan.comm))
        for number in range(len(plan.group_of_exchange)):
            own = np.flatnonzero(exchange == number)
            leaders[own] = own[np.argmin(streams[own])]
        return leaders

    def _calibrate(self, plan: Plan) -> float:
        """Seconds of a unit, such that a step without noise lasts as long as it should."""
        target = self.shape.step_seconds
        ranks = self.shape.topology.ranks
        shape = plan.units.shape
        begun = np.full(ranks, (_BETWEEN_STEPS + self.shape.model.loader_share) * target)
        none: Bools = np.zeros(len(plan.rank), np.bool_)
        zeros = np.zeros(len(plan.rank))
        launch = np.where(plan.present, self._launch_cost, 0.0)
        unit = target / float(plan.body[plan.rank == 0].sum())
        for _ in range(_CALIBRATIONS):
            load = Load(
                begun, (plan.units * unit).reshape(shape), launch, np.full(len(plan.comm), self._launch_cost),
                plan.body[plan.comm] * unit, zeros, none, zeros,
            )  # fmt: skip
            length = float(step_ends(plan, run_step(plan, load)).max())
            unit *= (target - float(begun[0])) / (length - float(begun[0]))
        return unit


def _launches(plan: Plan, load: Load, times: Times) -> Floats:
    """When each slot is launched: the kernels of the rows, and then the communications."""
    rows = times.host[plan.row_node, None] + times.offset
    return np.concatenate((rows.ravel(), times.host[plan.comm] + load.comm_launch))


def _kernels(plan: Plan, load: Load, times: Times) -> tuple[NDArray[np.void], Ints]:
    """Records of a step, and where those of each rank end."""
    row_ends, comm = times.kernel_ends(plan), plan.comm
    flat_end = np.concatenate((row_ends.ravel(), times.end[comm]))
    flat_start = np.concatenate(((row_ends - load.duration).ravel(), times.arrival[comm]))
    there = np.concatenate((load.duration.ravel() > 0, np.ones(len(comm), np.bool_)))[plan.order]
    start, end = flat_start[plan.order], flat_end[plan.order]
    launch = _launches(plan, load, times)[plan.order]
    kept, ends = _kept(there & np.isfinite(end), plan.rank_ends)
    records = np.zeros(len(plan.order) if kept is None else int(kept.sum()), KERNEL_DTYPE)
    names = np.concatenate((plan.name.ravel(), plan.comm_name))[plan.order]
    start_ns, end_ns = _ns(start, kept), _ns(end, kept)
    records["start_ns"], records["duration_ns"] = start_ns, np.maximum(end_ns - start_ns, 1)
    records["issue_ns"] = start_ns - _ns(launch, kept)
    for field, column in (
        ("name_id", names + 1), ("stream", plan.stream), ("operation", plan.operation),
        ("kilobytes", plan.kilobytes),
    ):  # fmt: skip
        records[field] = column if kept is None else column[kept]
    return records, ends


def _one_after_another(plan: Plan, start: Floats, end: Floats) -> None:
    """Divide what a rank waits for its loader among the batches that it asks for; one may never come."""
    asked = np.flatnonzero((plan.spans["source"] == wire.Source.HOST) & np.isfinite(end))
    if not len(asked):
        return
    number = plan.spans["microbatch"][asked].astype(np.intp)
    each = (end[asked] - start[asked]) / (number.max() + 1)
    start[asked] += number * each
    end[asked] = start[asked] + each


def _nested(plan: Plan, seconds: Floats, kept: Bools | None) -> Floats:
    """Seconds of each span that lie in spans within it."""
    inner = (plan.span_within >= 0) & np.isfinite(seconds)
    nested = np.bincount(plan.span_within[inner], seconds[inner], minlength=len(seconds)).astype(float)
    return nested if kept is None else nested[kept]


def _kept(wanted: Bools, ends: Ints) -> tuple[Bools | None, Ints]:
    """Which records are there (None: all), and where those of each rank end."""
    if wanted.all():
        return None, ends
    counts = np.concatenate(([0], np.cumsum(wanted)))
    return wanted, counts[ends]


def _or_never(seconds: Floats) -> NDArray[np.int64]:
    finite = np.isfinite(seconds)
    return np.where(finite, _ns(np.where(finite, seconds, 0.0), None), NEVER)


def _ns(seconds: Floats, kept: Bools | None) -> NDArray[np.int64]:
    chosen = seconds if kept is None else seconds[kept]
    return np.rint(chosen * 1e9).astype(np.int64)


def _refuse_unknown_phases(faults: Sequence[Fault], phases: Sequence[str]) -> None:
    """A fault that meets no phase of the job would change nothing, and say nothing of it.

    Raises:
        ValueError: such a fault.
    """
    for fault in faults:
        if fault.mechanism == "hang" and fault.phases == "data":
            continue  # the batch never comes
        if not any(fnmatch.fnmatchcase(phase, fault.phases) for phase in phases):
            raise ValueError(
                f"{fault.mechanism}: phases {fault.phases!r} is no phase of this job; "
                f"allowed: a glob on one of {', '.join(sorted(filter(None, phases)))}"
            )
