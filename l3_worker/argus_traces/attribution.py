"""What the links of the chain cost, by who and what: the accounts from which blame is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_traces.clocks import Alignment
from argus_traces.intervals import covered, spans_of, union
from argus_traces.operations import COMMUNICATION, COMPUTE, HOST, MEMORY
from argus_traces.path import Link, Model
from argus_traces.tables import Spans

GPU_COMPUTE, GPU_TRANSFER, LINK_SLOW = "gpu-compute", "gpu-transfer", "link-slow"
HOST_GC, HOST_JIT, DATA_INPUT, HOST_CPU = "host-gc", "host-jit", "data-input", "host-cpu"
UNDETERMINED = "undetermined"

_PAUSES: Final = (("gc", HOST_GC), ("compile", HOST_JIT), ("data", DATA_INPUT))


@dataclass
class Account:
    """What one cause at one place cost, ns. `place`: a rank's position, or the scope of an exchange."""

    cause: str
    place: int | str
    family: str = ""
    total: float = 0.0
    by_step: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    links: list[int] = field(default_factory=list)

    def add(self, link: int, step: int, excess: float) -> None:
        self.total += excess
        self.by_step[step] += excess
        self.links.append(link)

    @property
    def worst_step(self) -> tuple[int, float]:
        """(step, cost in ns) of the step that it cost most."""
        return max(self.by_step.items(), key=lambda item: item[1])


class HostTimes:
    """When each rank's host collected garbage, compiled or waited for data, on the common clock."""

    def __init__(self, of: Model, alignment: Alignment) -> None:
        self._spans: dict[tuple[int, str], Spans] = {}
        for rank, trace in enumerate(of.fleet.traces):
            for category, _ in _PAUSES[:2]:
                self._spans[rank, category] = _aligned(alignment, rank, spans_of(trace.of(category)))
            phases = trace.of("phase")
            data = np.array([trace.text(int(name)) == "data" for name in phases["name"]], bool)
            self._spans[rank, "data"] = _aligned(alignment, rank, spans_of(phases[data]))

    def cause(self, link: Link) -> str:
        """What the host was at for at least half of the time that it lost in the link."""
        spans = np.array([[link.begin, link.end]])
        for category, cause in _PAUSES:
            found = int(covered(self._spans[link.rank, category], spans)[0])
            # A data fetch is usual here: only what goes beyond the expectation explains anything.
            usual = link.expected if category == "data" else 0.0
            if found - usual >= 0.5 * link.excess:
                return cause
        return HOST_CPU


def _aligned(alignment: Alignment, rank: int, spans: Spans) -> Spans:
    return union(alignment.common(rank, spans.reshape(-1)).reshape(-1, 2))


def accounts(of: Model, links: Sequence[Link], host: HostTimes) -> list[Account]:
    """All accounts, costliest first. Signed: what was faster than expected counts against what was slower."""
    found: dict[tuple[str, int | str, str], Account] = {}
    for number, link in enumerate(links):
        cause, place, family = _booked(of, link, host)
        account = found.setdefault((cause, place, family), Account(cause, place, family))
        account.add(number, int(of.operations["step"][link.operation]), link.excess)
    return sorted(found.values(), key=lambda account: -account.total)


def _booked(of: Model, link: Link, host: HostTimes) -> tuple[str, int | str, str]:
    if link.kind == "exchange":
        exchange = of.exchanges.all[link.exchange]
        return LINK_SLOW, exchange.scope, "transfer" if exchange.transfer else "collective"
    if link.kind == "host":
        # Small deviations of launches are nobody's pause: only those that matter are looked up.
        return (host.cause(link) if link.excess > 0 else HOST_CPU), link.rank, ""
    if link.kind == "edge":
        return UNDETERMINED, link.rank, ""
    kind = int(of.operations["kind"][link.operation])
    if kind == HOST:
        name = of.fleet.strings[of.operations["name"][link.operation]]
        return (DATA_INPUT if name == "data" else HOST_CPU), link.rank, ""
    causes = {COMPUTE: GPU_COMPUTE, MEMORY: GPU_TRANSFER, COMMUNICATION: UNDETERMINED}
    return causes[kind], link.rank, ""
