"""The engine against a naive twin that plays one kernel after the other, by the rules alone."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.engine.clockwork import GAP_S, LATENCY_S, Load, run_step
from argus_simulator.engine.compile import compile_plan
from argus_simulator.engine.plan import Plan
from argus_simulator.engine.schedule import Extras, RankSchedule
from argus_simulator.engine.settings import HostSettings, ModelSettings
from argus_simulator.topology import Topology
from simulator.engine.jobs import TOPOLOGIES

MODEL = ModelSettings(microbatches=3)


def random_load(plan: Plan, seed: int) -> Load:
    """Nothing is as it should be: a step in which everything is of random length."""
    random = np.random.default_rng(seed)
    nodes, ranks = len(plan.rank), plan.topology.ranks
    body = random.exponential(2e-3, int(plan.exchange.max()) + 1)
    exchange = plan.exchange[plan.comm]
    own = random.exponential(2e-3, len(plan.comm))
    return Load(
        ready=random.exponential(5e-3, ranks),
        duration=np.where(plan.present, random.exponential(1e-3, plan.units.shape), 0.0),
        launch=np.where(plan.present, random.exponential(3e-4, plan.units.shape), 0.0),
        comm_launch=random.exponential(3e-4, len(plan.comm)),
        comm_body=np.where(exchange >= 0, body[exchange], own),
        delay=random.exponential(1e-3, nodes) * (random.random(nodes) < 0.1),
        sync=random.random(nodes) < 0.05,
        sync_cost=random.exponential(1e-3, nodes),
    )


class Twin:
    """One rank's kernels at a time, until nobody can go on."""

    def __init__(self, plan: Plan, load: Load, topology: Topology) -> None:
        self.plan, self.load = plan, load
        self.schedules = [RankSchedule(topology, rank, MODEL, Extras()) for rank in range(topology.ranks)]
        self.node = [[int(n) for n in plan.nodes_of[rank]] for rank in range(topology.ranks)]
        self.end: dict[int, float] = {}
        self.host = list(load.ready)
        self.stream: dict[tuple[int, str], float] = {}
        self.arrived: dict[tuple[str, str, int], dict[int, float]] = {}
        self.sent: dict[tuple[str, str, int], float] = {}

    def run(self) -> dict[int, float]:
        """End of every node."""
        at = [0] * len(self.schedules)
        moved = True
        while moved:
            moved = False
            for rank, schedule in enumerate(self.schedules):
                while at[rank] < len(schedule.nodes) and self.step(rank, at[rank]):
                    at[rank] += 1
                    moved = True
        assert all(at[rank] == len(schedule.nodes) for rank, schedule in enumerate(self.schedules))
        return self.end

    def step(self, rank: int, position: int) -> bool:
        plan, load, node = self.plan, self.load, self.schedules[rank].nodes[position]
        index = self.node[rank][position]
        needed = [self.end[self.node[rank][need]] for need in node.needs]
        free = max([load.ready[rank], *needed, self.stream.get((rank, node.stream), 0.0)]) + load.delay[index]
        host = self.host[rank]
        if node.role in ("compute", "copy"):
            row, end = int(plan.row_of_node[index]), free
            for column in range(len(node.kernels)):
                host += load.launch[row, column]
                end = max(end, host + LATENCY_S) + GAP_S + load.duration[row, column]
        else:
            place = int(np.flatnonzero(plan.comm == index)[0])
            host += load.comm_launch[place]
            arrival = max(free, host + LATENCY_S)
            assert node.exchange is not None
            if node.role == "send":
                end = self.sent[node.exchange] = arrival + load.comm_body[place]
            elif node.role == "recv":
                if node.exchange not in self.sent:
                    return False
                end = max(arrival + GAP_S, self.sent[node.exchange] + LATENCY_S)
            else:
                together = self.arrived.setdefault(node.exchange, {})
                together[rank] = arrival
                if len(together) < len(plan.topology.members(rank, node.dimension)):
                    return False
                end = max(together.values()) + load.comm_body[place]
        if load.sync[index]:
            host = max(host, end) + load.sync_cost[index]
        self.host[rank], self.end[index], self.stream[rank, node.stream] = host, end, end
        return True


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_levels_and_rows_give_what_single_kernels_give(topology: Topology, seed: int) -> None:
    """Every node of a random step ends at the same time."""
    plan = compile_plan(topology, MODEL, HostSettings(queue=1 << 20), Extras())
    load = random_load(plan, seed)
    times = run_step(plan, load)
    for index, end in Twin(plan, load, topology).run().items():
        assert times.end[index] == pytest.approx(end, abs=1e-12)
