"""When everything happens in one step: launches, queues, streams, and collectives that end together.

    start = max(launch + latency, ends of what it needs, stream free)
    collective: end = latest arrival + body, for all members
    receive:    end = max(own arrival, end of the send)

Times are seconds since the start of the job. The nodes of a level are worked out together; what a row of
kernels adds to the time at which it may begin is known beforehand, so that a node costs the same whether it
has one kernel or ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_simulator.engine.plan import Bools, Floats, Plan

LATENCY_S: Final = 4e-6
"""From the launch on the host to the earliest start on the device."""
GAP_S: Final = 2e-6
"""Between one kernel and the next of its stream."""
SYNC_S: Final = 20e-6


@dataclass
class Load:
    """What the work of one step costs; seconds. C rows of K kernels, M communications, N nodes, R ranks.

    Attributes:
        ready: when the host of each rank has its batch, shape (R,).
        duration: of kernels, shape (C, K).
        launch: what the host does before and for the launch of each kernel, shape (C, K).
        comm_launch, comm_body: of communications, shape (M,).
        delay: between what a node needs and its start, shape (N,).
        sync: nodes after which the host waits for the device, and what that costs beyond, shape (N,).
    """

    ready: Floats
    duration: Floats
    launch: Floats
    comm_launch: Floats
    comm_body: Floats
    delay: Floats
    sync: Bools
    sync_cost: Floats


@dataclass
class Times:
    """When it happens, seconds. `host`: before a node is launched; `free`: earliest start by dependencies."""

    host: Floats
    host_end: Floats
    free: Floats
    arrival: Floats
    end: Floats
    offset: Floats
    """From `host` to the launch of each kernel, shape (C, K)."""
    behind: Floats
    """Work of a row up to and with each kernel, shape (C, K)."""
    late: Floats
    """How much later than `host` that work can begin at least, shape (C, K)."""

    def kernel_ends(self, plan: Plan) -> Floats:
        """Of the kernels in rows, shape (C, K)."""
        node = plan.row_node
        ends: Floats = self.behind + np.maximum(self.free[node, None], self.host[node, None] + self.late)
        return ends


def run_step(plan: Plan, load: Load) -> Times:
    """Work out one step."""
    nodes, ranks = len(plan.rank), len(load.ready)
    offset = np.cumsum(load.launch, axis=1)
    busy = np.where(load.duration > 0, load.duration + GAP_S, 0.0)
    behind = np.cumsum(busy, axis=1)
    late = np.maximum.accumulate(offset + LATENCY_S - (behind - busy), axis=1)
    work, lateness, launching = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    work[plan.row_node], lateness[plan.row_node] = behind[:, -1], late[:, -1]
    launching[plan.row_node] = offset[:, -1]
    work[plan.comm] = load.comm_body
    lateness[plan.comm] = load.comm_launch + LATENCY_S
    launching[plan.comm] = load.comm_launch

    host, host_end = np.empty(nodes), np.empty(nodes)
    free, arrival, end = np.empty(nodes), np.empty(nodes), np.empty(nodes)
    host[:ranks] = host_end[:ranks] = load.ready
    free[:ranks] = arrival[:ranks] = end[:ranks] = load.ready
    synchronised = bool(load.sync.any())
    for level in plan.levels:
        here = slice(level.begin, level.end)
        began = np.maximum(host_end[plan.before[here]], end[plan.queue[here]])
        able = np.maximum.reduce(end[plan.needs[:, here]]) + load.delay[here]
        came = np.maximum(able, began + lateness[here])
        done = came + work[here]
        if level.receives < level.collectives:
            receives = slice(level.receives - level.begin, level.collectives - level.begin)
            done[receives] = np.maximum(came[receives] + GAP_S, end[level.sends] + LATENCY_S)
        if level.collectives < level.end:
            first = level.collectives - level.begin
            latest = np.maximum.reduceat(came[first:], level.starts)
            done[first:] = latest.repeat(level.sizes) + work[level.collectives : level.end]
        launched = began + launching[here]
        if synchronised:
            waits = load.sync[here]
            launched = np.where(waits, np.maximum(launched, done) + load.sync_cost[here], launched)
        host[here], free[here], arrival[here], end[here] = began, able, came, done
        host_end[here] = launched
    return Times(host, host_end, free, arrival, end, offset, behind, late)


def step_ends(plan: Plan, times: Times) -> Floats:
    """When the host of each rank knows that its step is done, shape (R,)."""
    device = times.end[plan.nodes_of].max(axis=1)
    host = times.host_end[plan.nodes_of].max(axis=1)
    ends: Floats = np.maximum(device, host) + SYNC_S
    return ends
