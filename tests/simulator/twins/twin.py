"""The simulated twin of a real program that was recorded: its shape and its magnitudes, nothing else.

What is taken over is how long each rank's own work takes in either half, and how much of the time it
communicates in the even one, in which no rank is slow. Who waits for whom, how long, and where that is told,
is the simulator's.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

from tools.generate_frameworks import FIGURES

from argus_core import wire
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.framework_hooks import framework_hooks
from argus_simulator.engine.job import JobStep
from argus_simulator.engine.settings import HostSettings, ModelSettings, NoiseSettings
from argus_simulator.lab import Scenario
from argus_simulator.lab.scenario import TopologySettings
from argus_simulator.producers import waits_of_phases

HALVES: Final = ("even", "uneven")
"""Of a program: in the second one rank 1 is slow."""
STEP_S: Final = 2.0
LAYERS: Final = 8
"""So many that the copy of a batch, which is in no phase, is short beside them."""
QUIET: Final = NoiseSettings(
    step_cv=0, kernel_cv=0, rank_cv=0, host_cv=0, body_cv=0, launch_cv=0, loader_cv=0, outlier_probability=0
)
RANKS: Final = 2
_LEAST, _MOST, _BISECTIONS = 0.001, 100.0, 14
"""Lengths of transfers, as multiples of the usual."""
_TRANSFERS: Final = "communication"
_OWN: Final = ("data", "forward", "backward", "optimizer")
_APART: Final = ("all_gather_single", "reduce_scatter_single")
"""Not on the stream of the computation, on a GPU."""
WAITED: Final = "waited"
"""Communication and phases in which a wait may remain: gloo blocks the host, and a GPU its stream."""

Shares = dict[str, float]
"""Of the iteration, by phase of the rank's own work; `WAITED` is one of them."""


@dataclass(frozen=True)
class Twin:
    """A recorded program (docs/frameworks.json), and what is simulated of it."""

    program: str
    framework: str
    topology: TopologySettings
    microbatches: int = 1
    overlap: bool = True
    """Whether the host goes on while gradients and parameters travel."""

    @functools.cached_property
    def recorded(self) -> Mapping[str, Any]:
        programs: dict[str, Any] = json.loads(FIGURES.read_text())["programs"]
        of: Mapping[str, Any] = programs[self.program]
        return of

    @property
    def may_wait(self) -> frozenset[str]:
        """Phases of its own work in which hooks say that a wait may remain."""
        return frozenset(self.recorded["waits"].split())

    def real_shares(self, half: str) -> list[Shares]:
        """By rank, of the iteration that was recorded."""
        return self._together(self._real(half))

    def shares(self, half: str) -> list[Shares]:
        """The same of what the simulator makes of it."""
        return self._together(self._twin(self._scenario(self._model, self._faults(half))))

    def scenario(self, *, onset_step: int) -> Scenario:
        """Steps of about 2 s; rank 1 is slow from `onset_step` on."""
        even, uneven = self._faults("even"), self._faults("uneven")
        before = [dataclasses.replace(fault, end_step=onset_step) for fault in even] if onset_step else []
        return self._scenario(
            self._model, [*before, *(dataclasses.replace(fault, onset_step=onset_step) for fault in uneven)]
        )

    def series(self) -> set[tuple[str, str, str]]:
        """Phase, kind, and for whom it waits: none, others or unknown."""
        scenario = self._scenario(self._magnitudes(1.0), [])
        plan = scenario.job().next_step().plan
        told = waits_of_phases(plan, framework_hooks(plan.topology, self.framework))
        return {
            (phase, kind.name.lower(), waited(wire.waits_text(mask))) for (phase, kind), mask in told.items()
        }

    def real_series(self) -> set[tuple[str, str, str]]:
        return {(one["phase"], one["kind"], waited(one["waits"])) for one in self.recorded["signals"]}

    # -- magnitudes ------------------------------------------------------------------

    def _seconds(self, half: str, rank: int, phase: str) -> float:
        return float(self.recorded[half][rank]["phases"][phase]["seconds"])

    def _least(self, phase: str) -> float:
        return min(self._seconds(half, rank, phase) for half in HALVES for rank in range(RANKS))

    @functools.cached_property
    def _model(self) -> ModelSettings:
        """Transfers so long that the rank that communicates least does so as much as in the even half."""
        told = min(rank[_TRANSFERS] for rank in self._real("even"))
        low, high = _LEAST, _MOST
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            twin = self._twin(self._scenario(self._magnitudes(middle), self._faults("even")))
            if min(rank[_TRANSFERS] for rank in twin) < told:
                low = middle
            else:
                high = middle
        return self._magnitudes(low)

    def _magnitudes(self, communication: float) -> ModelSettings:
        forward, backward = self._least("forward compute"), self._least("backward compute")
        iteration = mean(rank["seconds"] for rank in self.recorded["even"])
        usual = ModelSettings(microbatches=self.microbatches, layers=LAYERS, overlap=self.overlap)
        lengths = self._lengths(dataclasses.replace(usual, backward=backward / forward))
        return dataclasses.replace(
            usual,
            backward=backward / forward,
            optimizer=self._least("optimizer compute") / forward * lengths["forward"] / lengths["optimizer"],
            loader_share=self._least("data host") / iteration,
            communication=communication,
            signals="hooks",
            framework=self.framework,
        )

    def _lengths(self, model: ModelSettings) -> Mapping[str, float]:
        """Seconds of passes and of the optimizer on rank 0 where the model is so."""
        return _exclusive(self._scenario(model, []).job().next_step(), 0)

    def _faults(self, half: str) -> list[Fault]:
        """How much longer each rank's own work takes in a half than the shortest of all."""
        pace = STEP_S / mean(rank["seconds"] for rank in self.recorded["even"])
        data = [
            Fault(
                mechanism="data",
                ranks=(rank,),
                seconds=pace * (self._seconds(half, rank, "data host") - self._least("data host")),
            )
            for rank in range(RANKS)
        ]
        return data + [
            Fault(
                mechanism="kernels",
                ranks=(rank,),
                phases=f"*-{phase}",
                factor=self._seconds(half, rank, f"{phase} compute") / self._least(f"{phase} compute"),
            )
            for rank in range(RANKS)
            for phase in ("forward", "backward")
        ]

    def _scenario(self, model: ModelSettings, faults: list[Fault]) -> Scenario:
        return Scenario(
            step_seconds=STEP_S,
            topology=self.topology,
            model=model,
            host=HostSettings(gc_chance=0.0),
            noise=QUIET,
            faults={str(number): fault for number, fault in enumerate(faults)},
        )

    # -- shares ------------------------------------------------------------------

    def _real(self, half: str) -> list[Shares]:
        return [
            _of_iteration(
                {key.partition(" ")[0]: of["seconds"] for key, of in rank["phases"].items()}, rank["seconds"]
            )
            for rank in self.recorded[half]
        ]

    def _twin(self, scenario: Scenario) -> list[Shares]:
        job = scenario.job()
        job.next_step()
        done = job.next_step()
        iterations = (done.end_ns - done.start_ns) / 1e9
        return [_of_iteration(_exclusive(done, rank), float(iterations[rank])) for rank in range(RANKS)]

    def _together(self, ranks: list[Shares]) -> list[Shares]:
        """With the phases in which a wait may remain under `WAITED`."""
        found = []
        for shares in ranks:
            own = {
                phase: share for phase, share in shares.items() if phase not in (_TRANSFERS, *self.may_wait)
            }
            found.append({**own, WAITED: sum(shares.values()) - sum(own.values())})
        return found


def _of_iteration(seconds: Mapping[str, float], iteration: float) -> Shares:
    shares: Shares = dict.fromkeys((*_OWN, _TRANSFERS), 0.0)
    for phase, own in seconds.items():
        shares[phase if phase in _OWN else _TRANSFERS] += own / iteration
    return shares


def _exclusive(done: JobStep, rank: int) -> Mapping[str, float]:
    """Seconds of each phase that lie in no other, on the stream of the computation."""
    seconds: dict[str, float] = defaultdict(float)
    for span in done.spans_of(rank):
        phase = done.plan.span_texts[span["phase_id"] - 1]
        if phase not in _APART:
            seconds[phase] += span["duration_ns"] / 1e9 - float(span["nested_seconds"])
    return seconds


def waited(text: str) -> str:
    """In a world of two ranks every dimension has the same two."""
    return text if text in ("none", "unknown") else "others"


TWINS: Final = (
    Twin("DDP, spawned", "ddp", TopologySettings(dp=2)),
    Twin("FSDP2", "fsdp2", TopologySettings(dp=2), overlap=False),
    Twin("DTensor", "fsdp2", TopologySettings(dp=1, tp=2)),
    Twin("pipelining", "pipelining", TopologySettings(dp=1, pp=2), microbatches=4),
    Twin("Megatron, tp", "megatron", TopologySettings(dp=1, tp=2), microbatches=2),
    Twin("Megatron, pp", "megatron", TopologySettings(dp=1, pp=2), microbatches=4),
    Twin("Megatron, ep", "megatron-allgather", TopologySettings(dp=2, ep=2), microbatches=2),
)
