"""Jobs as their exporters say them, drawn with numpy: for what the rules promise of whole histories.

A job is data-parallel; each step is data, forward, backward, optimizer and a wait in the gradients'
all-reduce, which lasts until the slowest rank has come. So who is slow waits least, as in a real job. Times
are seconds since the job began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_core.overdue import overdue_after
from argus_core.remote_write import Labels
from argus_exporter.ranks.long_steps import LongSteps, RecentMean
from argus_exporter.ranks.phases import PhaseKey
from argus_simulator.fast_play.storage import STALE, Floats, Ints

BEGIN_MS: Final = 1_700_000_000_000
PHASES: Final = {"data": 0.02, "forward": 0.3, "backward": 0.5, "optimizer": 0.08}
"""Share of a step that each takes on a healthy rank; the rest is the all-reduce itself."""
ALL_REDUCE: Final = "dp-allreduce"
"""To what changes durations it is the all-reduce itself; what is exported has the waits for others too."""
KINDS: Final = {"data": "host", ALL_REDUCE: "comm", "tp-allgather": "comm"}
UNSEEN: Final = "unseen"
"""A phase that nobody measures."""
WINDOW_S: Final = 60
FORGOTTEN_S: Final = 300
_NO_MEAN: Final = RecentMean(STALE, STALE)
Series = dict[Labels, tuple[Ints, Floats]]
Slow = Callable[[dict[str, Floats], Floats], None]
"""Changes the phases' durations, each of shape (ranks, steps), of steps that begin at times (steps,)."""


@dataclass(frozen=True)
class Job:
    """What makes a job.

    Attributes:
        groups: comparison groups of the ranks, each of so many in the order of their numbers.
        expected: ranks that each group should have; as many as there are where it is 0.
        spans: of each phase in a step, all alike.
        waits: of `forward` and `backward`, with the set of ranks that wait for one another, by rank.
        until_s: when each rank leaves without a word, by rank; for ever where it is not named.
        stops_s: when the whole job stops to make steps.
        killed_s: when all of its processes are killed; the exporters tell of them for five minutes.
        typed: the store keeps each metric's type as a label.
        first_s: when its ranks are scraped first; at different times, by chance, where it is None.
    """

    name: str
    ranks: int = 4
    slow: Slow = lambda _phases, _begins: None
    cluster: str = ""
    groups: int = 1
    expected: int = 0
    step_s: float = 2.0
    spread: float = 0.004
    lasting_s: float = 1800.0
    scrape_s: float = 15.0
    seed: int = 0
    spans: int = 1
    waits: str = "none"
    sets: Mapping[int, str] = field(default_factory=dict)
    until_s: Mapping[int, float] = field(default_factory=dict)
    stops_s: float = np.inf
    killed_s: float = np.inf
    instances: tuple[str, ...] = ("host:9877",)
    typed: bool = False
    first_s: float | None = None

    def series(self) -> Series:
        """All that the rules read of it, as scraped."""
        rng = np.random.default_rng([self.seed, self.ranks])
        number = int(self.lasting_s / self.step_s) + 1
        begins = np.arange(number) * self.step_s
        phases = {
            phase: share * self.step_s * (1 + self.spread * rng.standard_normal((self.ranks, number)))
            for phase, share in PHASES.items()
        }
        phases[ALL_REDUCE] = np.full((self.ranks, number), (1 - sum(PHASES.values())) * self.step_s)
        self.slow(phases, begins)
        transfer = phases.pop(ALL_REDUCE)
        own: Floats = np.sum(list(phases.values()), axis=0)
        step = own.max(0) + transfer.max(0)
        phases[ALL_REDUCE] = step - own
        ends = np.cumsum(step)
        ends[ends > min(self.stops_s, self.killed_s)] = np.inf
        found: Series = {}
        for rank in range(self.ranks):
            for instance in self.instances:
                first_s = rng.uniform(0, self.scrape_s) if self.first_s is None else self.first_s
                found |= self._of_rank(rank, phases, step, ends, instance, first_s)
        return found

    def _of_rank(
        self,
        rank: int,
        phases: Mapping[str, Floats],
        step: Floats,
        ends: Floats,
        instance: str,
        first_s: float,
    ) -> Series:
        until_s = min(self.lasting_s, self.until_s.get(rank, np.inf), self.killed_s + FORGOTTEN_S)
        at = np.arange(first_s, until_s, self.scrape_s)
        done = np.searchsorted(ends, at, "right")
        since = np.searchsorted(ends, at - WINDOW_S, "right")
        stamps: Ints = BEGIN_MS + np.round(1000 * np.append(at, at[-1] + self.scrape_s)).astype(np.int64)
        group = f"dp:{rank * self.groups // self.ranks}"
        members = self.ranks // self.groups
        found: Series = {}

        def add(metric: str, values: Floats | float, **labels: str) -> None:
            known = {"__name__": metric, "training_job": self.name, "rank": str(rank), "instance": instance}
            known |= {"cluster": self.cluster} if self.cluster else {}
            if self.typed and not metric.endswith("timestamp_seconds"):
                known["__type__"] = "counter" if metric.endswith(("_sum", "_count", "_total")) else "gauge"
            until_the_end = np.append(np.broadcast_to(values, at.shape), STALE)
            given = {key: value for key, value in (known | labels).items() if value}
            found[tuple(sorted(given.items()))] = stamps, until_the_end

        def total(values: Floats) -> Floats:
            return np.concatenate(([0.0], np.cumsum(values)))[done]

        def extreme(of: Callable[[Floats], float], values: Floats = step) -> Floats:
            return np.array([of(values[a:b]) if a < b else STALE for a, b in zip(since, done, strict=True)])

        add("argus_rank_up", np.where(at < self.killed_s, 1.0, 0.0))
        add("argus_rank_number", float(rank))
        add("argus_rank_lead_number", float(rank))
        place = {"node": f"node{rank // 4}", "gpu_uuid": f"GPU-{rank}"}
        add("argus_rank_info", 1.0, **place)
        add("argus_group_expected_ranks", float(self.expected or members), group=group)
        add("argus_iteration_duration_seconds_sum", total(step))
        add("argus_iteration_duration_seconds_count", done.astype(float))
        add("argus_iteration_duration_seconds_squared_total", total(step**2))
        add("argus_iteration_window_max_seconds", extreme(np.max))
        add("argus_iteration_window_min_seconds", extreme(np.min))
        last = np.where(done > 0, ends[np.maximum(done - 1, 0)], 0.0)
        add("argus_iteration_last_timestamp_seconds", BEGIN_MS / 1000 + last)
        usual = np.divide(total(step), done, out=np.full(len(at), STALE), where=done > 0)
        limit = np.array([overdue_after(mean) for mean in np.nan_to_num(usual).tolist()])
        overdue = (done == 0) | (at - last > limit)
        add("argus_rank_overdue_number", np.where(overdue, float(rank), STALE), **place)
        # As if each rank were alone on its host.
        here = {"rank": "", "instance": f"{instance}/{rank}"}
        add("argus_job_last_iteration_timestamp_seconds", BEGIN_MS / 1000 + last, **here)
        add("argus_job_usual_iteration_seconds", np.where(done >= 3, usual, STALE), **here)
        measured: dict[str, Floats] = {
            name: np.asarray(durations[rank]) for name, durations in phases.items() if name != UNSEEN
        }
        recently = self._recently(measured, step, ends, at, group)
        for phase, durations in phases.items():
            if phase == UNSEEN:
                continue
            labels = {"phase": phase, "kind": KINDS.get(phase, "compute")}
            where = labels | {"group": group, "source": "event"}
            add("argus_phase_duration_seconds_sum", total(durations[rank]), **where)
            add("argus_phase_duration_seconds_count", self.spans * done.astype(float), **where)
            longest = extreme(np.max, durations[rank] / self.spans)
            add("argus_phase_window_max_seconds", longest, **labels, group=group)
            means = recently.get(PhaseKey(phase, labels["kind"], group, "event"))
            if means:
                those = [means.get(scrape, _NO_MEAN) for scrape in range(len(at))]
                add("argus_phase_recent_seconds", np.array([one.seconds for one in those]), **where)
                spans = np.array([one.spans_per_second for one in those])
                add("argus_phase_recent_spans_per_second", spans, **where)
            mine = phase in ("forward", "backward")
            add(
                "argus_phase_info",
                1.0,
                **labels,
                waits=self.waits if mine else "none",
                **({"set": self.sets[rank]} if mine and rank in self.sets else {}),
            )
        return found

    def _recently(
        self, phases: Mapping[str, Floats], step: Floats, ends: Floats, at: Floats, group: str
    ) -> dict[PhaseKey, dict[int, RecentMean]]:
        """What its exporter says of a rank with long steps, by the number of the scrape."""
        totals = {
            PhaseKey(phase, KINDS.get(phase, "compute"), group, "event"): np.cumsum(durations)
            for phase, durations in phases.items()
        }

        def done() -> dict[PhaseKey, tuple[int, float]]:
            return {key: (self.spans * ended, float(total[ended - 1])) for key, total in totals.items()}

        long_steps, ended = LongSteps(), 0
        found: dict[PhaseKey, dict[int, RecentMean]] = defaultdict(dict)
        for scrape, now in enumerate(at.tolist()):
            while ended < len(ends) and ends[ended] <= now:
                ended += 1
                long_steps.ended(float(ends[ended - 1]), ended, float(step[ended - 1]), done, {})
            for key, mean in long_steps.means(now).items():
                found[key][scrape] = mean
        return found


def slower(rank: int | slice, factor: float, since_s: float, until_s: float = np.inf, *phases: str) -> Slow:
    """A rank, or several, whose phases of computation take longer for a time."""

    def slow(durations: dict[str, Floats], begins: Floats) -> None:
        then = (begins >= since_s) & (begins < until_s)
        for phase in phases or ("forward", "backward", "optimizer"):
            durations[phase][rank] = np.where(then, factor, 1.0) * durations[phase][rank]

    return slow


def paused(rank: int | slice, seconds: float, at_s: float, phase: str = "forward") -> Slow:
    """One step that takes longer on a rank, or on several."""

    def slow(durations: dict[str, Floats], begins: Floats) -> None:
        durations[phase][rank, np.searchsorted(begins, at_s)] += seconds

    return slow


def uneven(deviation: float) -> Slow:
    """Steps of which each rank has another share of the work, anew in each step."""

    def slow(durations: dict[str, Floats], begins: Floats) -> None:
        work = np.random.default_rng(len(begins) + 1).lognormal(0, deviation, (durations["forward"].shape))
        for phase in ("forward", "backward"):
            durations[phase] *= work

    return slow


def several(*all_of_them: Slow) -> Slow:
    def slow(durations: dict[str, Floats], begins: Floats) -> None:
        for one in all_of_them:
            one(durations, begins)

    return slow
