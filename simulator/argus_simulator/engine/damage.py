"""What the faults do to one step: factors, delays and pauses on top of what health would cost.

Slots are launches: the kernels of all rows, then the communications (see `Plan.order`). What is random in a
fault is drawn by (fault, rank or group, step), apart from the noise, so that it moves with its rank.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.noise import of_fault
from argus_simulator.engine.plan import Bools, Floats, Ints, Plan
from argus_simulator.engine.ring import links_of
from argus_simulator.topology import Topology


@dataclass
class Pause:
    """The launching thread stands still before the launch of a slot."""

    rank: int
    slot: int
    seconds: float
    kind: str
    frames: str = ""


@dataclass
class Damage:
    """Of one step. S slots, N nodes, R ranks."""

    duration: Floats
    launch: Floats
    delay: Floats
    sync: Bools
    sync_cost: Floats
    loader: Floats
    """Seconds more."""
    work: Floats
    """Units of work of each rank as a multiple of the usual, shape (R,)."""
    pauses: list[Pause] = field(default_factory=list)
    frames: dict[tuple[int, str], str] = field(default_factory=dict)
    """What stands on the main thread's stack, by rank and mechanism."""
    hung: bool = False
    slow: dict[tuple[str, int, int], float] = field(default_factory=dict)
    """How many times as long a hop between two hosts takes, by group and ranks at its ends."""
    lost: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The hop of a collective on which its data is lost, by number of the exchange."""


class _Target:
    """What of a plan a fault can hit."""

    def __init__(self, plan: Plan, fault: Fault) -> None:
        rows, width = plan.units.shape
        slot_node = np.concatenate((np.repeat(plan.row_node, width), plan.comm))
        names = np.concatenate((plan.name.ravel(), plan.comm_name))
        present = np.concatenate((plan.present.ravel(), np.ones(len(plan.comm), np.bool_)))
        of_phase = np.array([fnmatch.fnmatchcase(phase, fault.phases) for phase in plan.phases])
        of_name = np.array([fnmatch.fnmatchcase(name, fault.kernels) for name in plan.names])
        self.nodes: Bools = of_phase[plan.phase]
        self.nodes[: plan.topology.ranks] = False
        self.slots: Bools = present & of_phase[plan.phase[slot_node]] & of_name[names]
        self.is_comm = np.arange(len(slot_node)) >= rows * width
        self.slot_node: Ints = slot_node
        self.of_rank: dict[int, Ints] = {}
        begin = 0
        for rank, end in enumerate(plan.rank_ends.tolist()):
            if rank in fault.ranks:
                own = plan.order[begin:end]
                self.of_rank[rank] = own[self.slots[own]]
            begin = end
        self.exchanges = self._exchanges(plan, fault)

    @staticmethod
    def _exchanges(plan: Plan, fault: Fault) -> list[tuple[int, Ints, list[tuple[str, int, int]]]]:
        """(first member, slots, hops) of every process group that the fault touches."""
        found: list[tuple[int, Ints, list[tuple[str, int, int]]]] = []
        slots = len(plan.units.ravel()) + np.arange(len(plan.comm))
        exchange = plan.exchange[plan.comm]
        of_phase = np.array([fnmatch.fnmatchcase(phase, fault.phases) for phase in plan.phases])
        chosen = of_phase[plan.phase[plan.comm]]
        for number, (group, dimension) in enumerate(plan.groups):
            members = plan.topology.group_members(group, dimension)
            if fault.dimension in ("", dimension) and set(members) & set(fault.ranks):
                own = (exchange >= 0) & (plan.group_of_exchange[exchange] == number) & chosen
                hops = links_of(plan.topology, members, fault.ranks, inward=fault.inward)
                found.append((members[0], slots[own], [(group, *ends) for ends in hops]))
        if fault.dimension in ("", "pp"):
            sender = _senders(plan)[plan.comm]
            slot_of = np.full(len(plan.rank), -1)
            slot_of[plan.comm] = slots
            for rank in fault.ranks:
                own = (exchange < 0) & (plan.rank[plan.comm] == rank) & chosen
                own &= (sender != plan.comm) == fault.inward
                found.append((rank, slot_of[sender[own]], []))
        return found


def _senders(plan: Plan) -> Ints:
    """Of each node that receives the one that sends, whose length is the transfer's; of others themselves."""
    found = np.arange(len(plan.rank))
    for level in plan.levels:
        found[level.receives : level.collectives] = level.sends
    return found


class Damages:
    """All faults of a job against one plan."""

    def __init__(self, plan: Plan, faults: Sequence[Fault], seed: int, streams: Sequence[int]) -> None:
        self._plan, self._faults, self._seed, self._streams = plan, tuple(faults), seed, tuple(streams)
        self._targets = [_Target(plan, fault) for fault in faults]
        self._slots = plan.units.size + len(plan.comm)

    def of_step(self, step: int) -> Damage:
        """What is wrong in this step."""
        nodes, ranks = len(self._plan.rank), self._plan.topology.ranks
        damage = Damage(
            np.ones(self._slots), np.ones(self._slots), np.zeros(nodes), np.zeros(nodes, np.bool_),
            np.zeros(nodes), np.zeros(ranks), np.ones(ranks),
        )  # fmt: skip
        for number, (fault, target) in enumerate(zip(self._faults, self._targets, strict=True)):
            if not fault.staggered and not fault.active(step):
                continue
            apply = getattr(self, f"_{fault.mechanism}", None)
            if apply is not None:
                apply(number, fault, target, step, damage)
        return damage

    # -- what is random ------------------------------------------------------------------

    def _random(self, number: int, rank: int, step: int) -> np.random.Generator:
        return of_fault(self._seed, number, self._streams[rank], step)

    def _hits(self, number: int, fault: Fault, rank: int, step: int) -> bool:
        """Whether chance has it that this step (or cycle) of the rank is hit."""
        if fault.chance >= 1:
            return True
        at = step if fault.period_steps == 1 else (step - fault.onset_step) // fault.period_steps
        return bool(self._random(number, rank, at).random() < fault.chance)

    def _size(self, number: int, fault: Fault, rank: int, step: int) -> float:
        """Factor by which the magnitude of this hit differs from the usual."""
        if fault.scatter == 0:
            return 1.0
        normal = self._random(number, rank, step).standard_normal(2)[1]
        return float(np.exp(fault.scatter * normal))

    # -- mechanisms, by name ------------------------------------------------------------------

    def _kernels(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        for rank, slots in target.of_rank.items():
            own = slots[~target.is_comm[slots]]
            if not self._hits(number, fault, rank, step):
                continue
            if fault.share < 1:
                own = own[self._random(number, rank, step).random(len(own)) < fault.share]
            factor = 1 + (fault.factor - 1) * self._size(number, fault, rank, step)
            damage.duration[own] *= factor

    def _link(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        for leader, slots, hops in target.exchanges:
            if self._hits(number, fault, leader, step):
                damage.duration[slots] *= fault.factor
                for hop in hops:
                    damage.slow[hop] = damage.slow.get(hop, 1.0) * fault.factor

    def _pause(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        for rank, slots in target.of_rank.items():
            if fault.staggered:
                phase = int(self._random(number, rank, 0).integers(fault.period_steps))
                if not fault.active(step, phase):
                    continue
            if not self._hits(number, fault, rank, step) or not len(slots):
                continue
            at = (
                fault.position
                if fault.position >= 0
                else float(self._random(number, rank, step).random(2)[1])
            )
            slot = int(slots[min(int(at * len(slots)), len(slots) - 1)])
            seconds = fault.seconds * self._size(number, fault, rank, step)
            if seconds > 0:
                damage.pauses.append(Pause(rank, slot, seconds, fault.kind, fault.frames))

    def _launch(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        for rank, slots in target.of_rank.items():
            if self._hits(number, fault, rank, step):
                damage.launch[slots] *= fault.factor
                self._say(fault, rank, damage)

    def _data(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:  # noqa: ARG002
        for rank in fault.ranks:
            if self._hits(number, fault, rank, step):
                damage.loader[rank] += fault.seconds * self._size(number, fault, rank, step)
                self._say(fault, rank, damage)

    def _sync(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:  # noqa: ARG002
        plan = self._plan
        hit = target.nodes & np.isin(plan.rank, fault.ranks) & (plan.row_of_node >= 0)
        damage.sync |= hit
        damage.sync_cost[hit] += fault.seconds
        for rank in fault.ranks:
            self._say(fault, rank, damage)

    def _late(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        for rank in fault.ranks:
            hit = target.nodes & (self._plan.rank == rank)
            if hit.any() and self._hits(number, fault, rank, step):
                damage.delay[hit] += fault.seconds / np.count_nonzero(hit)

    def _hang(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:  # noqa: ARG002
        damage.hung = True
        for rank in fault.ranks:
            self._say(fault, rank, damage)
            if fault.phases == "data":
                damage.loader[rank] = np.inf
                continue
            own = target.of_rank[rank]
            if not len(own):
                continue
            if target.is_comm[own[0]]:
                damage.duration[self._together(own[0], target)] = np.inf
                self._loses(int(self._plan.exchange[target.slot_node[own[0]]]), fault, damage)
            else:
                damage.launch[own[0]] = np.inf  # the host stands still; what it has launched goes on

    def _loses(self, exchange: int, fault: Fault, damage: Damage) -> None:
        """Between two hosts, where the collective has any."""
        if exchange < 0:
            return
        topology = self._plan.topology
        members = topology.group_members(*self._plan.groups[self._plan.group_of_exchange[exchange]])
        for hop in links_of(topology, members, fault.ranks, inward=fault.inward):
            damage.lost[exchange] = hop

    def _together(self, slot: int, target: _Target) -> Ints:
        """Of all members of a collective, which ends for all or none; of a transfer its sender's."""
        plan = self._plan
        node = target.slot_node[slot]
        exchange = plan.exchange[node]
        if exchange < 0:
            return plan.units.size + np.flatnonzero(plan.comm == _senders(plan)[node])
        return plan.units.size + np.flatnonzero(plan.exchange[plan.comm] == exchange)

    def _work(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        amount = self._amounts(number, fault, step)
        for rank, slots in target.of_rank.items():
            own = slots[~target.is_comm[slots]]
            if fault.by == "microbatch":
                microbatch = self._plan.microbatch[target.slot_node[own]]
                inside = microbatch >= 0
                damage.duration[own[inside]] *= amount[rank][microbatch[inside]]
            else:
                damage.duration[own] *= amount[rank][0]
            if fault.unit:
                damage.work[rank] *= float(amount[rank].mean())

    def _amounts(self, number: int, fault: Fault, step: int) -> dict[int, Floats]:
        """Amount of work of each rank, as multiples of the usual; one, or one a microbatch."""
        topology = self._plan.topology
        at = step // fault.drift_steps if fault.drift_steps else 0
        count = int(self._plan.microbatch.max()) + 1 if fault.by == "microbatch" else 1
        found: dict[int, Floats] = {}
        for rank in fault.ranks:
            source = rank if fault.by in ("rank", "pool") else self._first_of_replica(rank)
            normal = self._random(number, source, at).standard_normal(count)
            found[rank] = fault.factor * np.exp(fault.scatter * normal)
        if fault.by == "pool":
            for members in topology.groups("ep").values():
                inside = [rank for rank in members if rank in found]
                mean = sum(float(found[rank][0]) for rank in inside) + len(members) - len(inside)
                for rank in inside:
                    found[rank] = found[rank] * len(members) / mean
        return found

    def _first_of_replica(self, rank: int) -> int:
        topology = self._plan.topology
        place = topology.coordinates(rank)["dp"]
        return min(
            (other for other in range(topology.ranks) if topology.coordinates(other)["dp"] == place),
            key=lambda other: self._streams[other],
        )

    def _count(self, number: int, fault: Fault, target: _Target, step: int, damage: Damage) -> None:
        """Some kernels are not there: each has its own threshold, so that more is a superset of less."""
        for rank, slots in target.of_rank.items():
            own = slots[~target.is_comm[slots]]
            missing = min(fault.scatter * float(self._random(number, rank, step).random()), 0.95)
            left_out = self._order_of_absence[own] < missing
            damage.duration[own[left_out]] = 0.0
            damage.launch[own[left_out]] = 0.0
            if fault.unit and len(own):
                damage.work[rank] *= 1 - np.count_nonzero(left_out) / len(own)

    @cached_property
    def _order_of_absence(self) -> Floats:
        place = np.zeros(self._slots)
        begin = 0
        for end in self._plan.rank_ends.tolist():
            own = self._plan.order[begin:end]
            place[own] = np.arange(len(own)) * 0.6180339887498949 % 1.0
            begin = end
        return place

    @staticmethod
    def _say(fault: Fault, rank: int, damage: Damage) -> None:
        if fault.frames:
            damage.frames[rank, fault.mechanism or ""] = fault.frames


@dataclass(frozen=True)
class StepState:
    """What faults say of a step as a whole, before any plan is chosen."""

    activity: str = "train"
    tagged: bool = True
    extra_seconds: float = 0.0
    factor: float = 1.0
    serial: bool = False
    minority_share: float = 0.0


def state_of(faults: Sequence[Fault], step: int) -> StepState:
    """Activity and structure of a step. Several faults of one kind: the last one counts."""
    state = StepState()
    for fault in faults:
        if not fault.active(step):
            continue
        if fault.mechanism == "activity":
            state = replace(
                state,
                activity=fault.activity,
                tagged=fault.tagged,
                extra_seconds=fault.seconds,
                factor=fault.factor,
            )
        elif fault.mechanism == "serial":
            state = replace(state, serial=True)
        elif fault.mechanism == "extra-kernels":
            state = replace(state, minority_share=fault.share)
    return state


def hosts_of(topology: Topology) -> NDArray[np.intp]:
    """Number of the host of each rank."""
    return np.array([topology.host_index(rank) for rank in range(topology.ranks)])
