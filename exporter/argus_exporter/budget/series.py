"""How many series each family of the catalogue has for a fleet. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from argus_core import catalogue
from argus_core.catalogue import Family
from argus_exporter.kernels.anatomy import PARTS


@dataclass(frozen=True)
class Fleet:
    """What is watched, and how closely. Numbers of one rank unless they say otherwise.

    Attributes:
        ranks: of all jobs that one Prometheus holds.
        ranks_per_host: that share an exporter.
        phases: named phases; each is counted in one group.
        layers: (layer, micro-batch) pairs that are sampled, three of each kind of layer; 0: none.
        groups: comparison groups, such as those of dp, tp and pp.
        pairs: (kernel, stream) pairs published, `kernels.top_pairs`; 0: no kernel channel.
        modes: of a pair, on average. Real traces have 34 to 87 % of pairs with two or more.
        frames: (thread, frame) pairs of stacks; 0: no stacks.
        replicas: L3 workers; 0: none.
        nccl: communicators that go over the network, published with sequences and peers; 0: no ARGUS_NCCL.
        step_samples: whether argus_iteration_seconds is written, one sample a step.
        long_steps: whether steps take 25 s and more.
    """

    ranks: int
    ranks_per_host: int = 8
    phases: int = 12
    layers: int = 6
    groups: int = 3
    pairs: int = 20
    modes: float = 2.0
    frames: int = 12
    replicas: int = 2
    nccl: int = 0
    step_samples: bool = False
    long_steps: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in ("ranks", "ranks_per_host", "phases", "groups", "modes") else 0
            if value < least:
                raise ValueError(f"{field.name} is {value!r}; allowed: {least} or more")

    @property
    def channels(self) -> int:
        return 1 + (self.pairs > 0) + (self.frames > 0)


_GENERATIONS: Final = 3
_COMPILERS: Final = 1
_VOIDS: Final = 2
_DIVIDED: Final = 3
"""Phases of kind compute on a GPU: forward, backward and optimizer, each waiting for one group."""
_LAUNCHED: Final = 2
"""Classes of kernels with launch times: compute and comm."""
_QUANTILES: Final = 3
"""Of a summary that has any."""


_OPERATIONS: Final = 2
"""Functions of NCCL that a group uses: AllGather and ReduceScatter of FSDP, Send and Recv of a pipeline."""
_SIZES: Final = 2
"""Classes of size in a group."""
_NCCL_WAITS: Final = 5
"""Of the two peers of a ring, one is sent to and one received from."""

_NCCL_OLDEST: Final = 2
"""Of a ring, what the oldest step of its channels waits for: a send and a receive."""


def _nccl_groups(fleet: Fleet) -> int:
    return min(fleet.groups, fleet.nccl)


def _divided(fleet: Fleet) -> int:
    return min(_DIVIDED, fleet.phases) * (fleet.pairs > 0)


A_RANK: Final[Mapping[str, Callable[[Fleet], float]]] = {
    catalogue.RANK_INFO.name: lambda _: 1,
    catalogue.RANK_UP.name: lambda _: 1,
    catalogue.RANK_NUMBER.name: lambda _: 1,
    catalogue.RANK_OVERDUE.name: lambda _: 1,
    "argus_group_expected_ranks": lambda fleet: fleet.groups,
    "argus_activity": lambda _: 1,
    "argus_iteration_duration_seconds": lambda _: 1,
    "argus_iteration_seconds": lambda fleet: fleet.step_samples,
    # Of a job on a host, and of one of its ranks.
    catalogue.JOB_WORLD_SIZE.name: lambda fleet: 1 / fleet.ranks_per_host,
    catalogue.JOB_LAST_ITERATION.name: lambda fleet: 1 / fleet.ranks_per_host,
    catalogue.JOB_USUAL_ITERATION.name: lambda fleet: 1 / fleet.ranks_per_host,
    catalogue.RANK_LEAD.name: lambda fleet: 1 / fleet.ranks_per_host,
    "argus_iteration_duration_seconds_squared_total": lambda fleet: 1 / fleet.ranks_per_host,
    "argus_iteration_window_min_seconds": lambda fleet: 1 / fleet.ranks_per_host,
    "argus_iteration_window_max_seconds": lambda fleet: 1 / fleet.ranks_per_host,
    "argus_iteration_last_step": lambda _: 1,
    "argus_iteration_last_timestamp_seconds": lambda _: 1,
    "argus_phase_duration_seconds": lambda fleet: fleet.phases,
    "argus_phase_info": lambda fleet: fleet.phases,
    "argus_phase_gpu_seconds_total": lambda fleet: len(PARTS) * _divided(fleet),
    "argus_phase_gpu_spans_total": lambda fleet: _divided(fleet),
    "argus_phase_exposed_seconds_total": lambda fleet: _divided(fleet),
    "argus_iteration_gpu_seconds_total": lambda fleet: len(PARTS) * (fleet.pairs > 0),
    "argus_phase_window_max_seconds": lambda fleet: fleet.phases,
    "argus_phase_recent_seconds": lambda fleet: (fleet.phases + _divided(fleet)) * fleet.long_steps,
    "argus_phase_recent_spans_per_second": lambda fleet: (fleet.phases + _divided(fleet)) * fleet.long_steps,
    "argus_layer_duration_seconds": lambda fleet: fleet.layers,
    # Seen at a scrape if it is open at that moment; over two hours all of them.
    "argus_phase_open_timestamp_seconds": lambda fleet: fleet.phases,
    "argus_phase_gpu_timestamp_seconds": lambda _: 1,
    # Only of an overdue iteration, all ranks of the job at once.
    "argus_collective_sequence": lambda fleet: fleet.groups,
    "argus_collective_operation_sequence": lambda fleet: fleet.groups,
    "argus_collective_started_sequence": lambda fleet: fleet.groups,
    "argus_collective_completed_sequence": lambda fleet: fleet.groups,
    # Off by default, and of the memory that it counts in no more than 8 communicators.
    "argus_nccl_info": lambda fleet: fleet.nccl > 0,
    "argus_nccl_dropped_total": lambda fleet: fleet.nccl > 0,
    "argus_nccl_collectives_total": lambda fleet: _OPERATIONS * _nccl_groups(fleet),
    "argus_nccl_bytes_total": lambda fleet: _OPERATIONS * _nccl_groups(fleet),
    "argus_nccl_sized_collectives_total": lambda fleet: _SIZES * _nccl_groups(fleet),
    "argus_nccl_launch_seconds": _nccl_groups,
    "argus_nccl_kernel_seconds": lambda fleet: _OPERATIONS * _nccl_groups(fleet),
    "argus_nccl_bus_bytes_total": lambda fleet: _SIZES * _nccl_groups(fleet),
    "argus_nccl_bus_seconds_total": lambda fleet: _SIZES * _nccl_groups(fleet),
    "argus_nccl_network_seconds": lambda fleet: _OPERATIONS * _nccl_groups(fleet),
    "argus_nccl_entered_sequence": lambda fleet: _OPERATIONS * fleet.nccl,
    "argus_nccl_finished_sequence": lambda fleet: _OPERATIONS * fleet.nccl,
    "argus_nccl_network_wait_seconds_total": lambda fleet: _NCCL_WAITS * fleet.nccl,
    "argus_nccl_network_sent_bytes_total": lambda fleet: fleet.nccl,
    "argus_nccl_network_steps_waiting": lambda fleet: _NCCL_WAITS * fleet.nccl,
    # Of a job that stands still, of one communicator.
    "argus_nccl_network_oldest_timestamp_seconds": lambda fleet: _NCCL_OLDEST * (fleet.nccl > 0),
    "argus_work_units_total": lambda _: 1,
    "argus_work_recent_units_per_step": lambda fleet: fleet.long_steps,
    "argus_kernel_mode_events": lambda fleet: fleet.pairs * fleet.modes,
    "argus_kernel_mode_p50_seconds": lambda fleet: fleet.pairs * fleet.modes,
    "argus_kernel_mode_p99_seconds": lambda fleet: fleet.pairs * fleet.modes,
    "argus_kernel_tail_events": lambda fleet: fleet.pairs,
    "argus_kernel_window_last_step": lambda fleet: fleet.pairs > 0,
    "argus_kernel_window_steps": lambda fleet: fleet.pairs > 0,
    "argus_kernel_launches_total": lambda fleet: fleet.pairs,
    "argus_kernel_duration_seconds_total": lambda fleet: fleet.pairs,
    "argus_kernel_cutoff_ratio": lambda fleet: fleet.pairs > 0,
    "argus_kernel_coverage_ratio": lambda fleet: fleet.pairs > 0,
    "argus_kernel_info": lambda fleet: fleet.pairs,
    "argus_gc_pause_seconds": lambda _: _GENERATIONS,
    "argus_compile_seconds": lambda _: _COMPILERS,
    "argus_stack_samples_total": lambda fleet: fleet.frames,
    "argus_stack_sampling_hertz": lambda fleet: fleet.frames > 0,
    "argus_stack_sampler_cpu_seconds_total": lambda fleet: fleet.frames > 0,
    "argus_issue_latency_seconds": lambda fleet: _LAUNCHED * (fleet.pairs > 0),
    "argus_void_seconds_total": lambda fleet: _VOIDS * (fleet.pairs > 0),
    "argus_channel_up": lambda fleet: fleet.channels,
    # One reason where a channel is off.
    "argus_channel_info": lambda fleet: 3 - fleet.channels,
    "argus_records_total": lambda fleet: fleet.channels,
    # None on a healthy rank; a reason or two.
    "argus_records_dropped_total": lambda _: 1,
    "argus_producer_cpu_seconds_total": lambda fleet: fleet.channels,
}
"""Label sets of each family of the exporter on one rank; a summary's series are counted from these."""

PER_JOB: Final = frozenset(
    {
        "argus_job_info",
        "argus_rank_stopped",  # of who is stopped, else none
        # Of a job that stands still 164 at most, else none.
        "argus_nccl_ras_answer_timestamp_seconds",
        "argus_nccl_ras_absent_processes",
        "argus_nccl_ras_rank_absent",
        "argus_nccl_ras_rank_lacking_launches",
        "argus_nccl_ras_rank_error",
    }
)
"""Families of the exporter that a rank does not multiply."""

# Its shift and its rhythm; what a kernel that deviates adds is of some ranks alone.
_WORKER_A_RANK: Final = 2
_HOST: Final = 120
"""Of an exporter itself: states and durations of its collectors, traces, process and scrape series."""


def of_family(family: Family, fleet: Fleet) -> float:
    """Series of one family of the exporter on one rank."""
    names = len(family.sample_names) + (_QUANTILES - 1 if family.quantiles else 0)
    return A_RANK[family.name](fleet) * names


def exported(fleet: Fleet) -> dict[str, float]:
    """Series that exporters and workers give Prometheus for the whole fleet, by source."""
    kernel = {f.name for f in catalogue.CATALOGUE if f.name.startswith(("argus_kernel_", "argus_void_"))}
    stack = {f.name for f in catalogue.CATALOGUE if f.name.startswith("argus_stack_")}
    ours = {f.name: of_family(f, fleet) for f in catalogue.CATALOGUE if f.name in A_RANK}
    of = {
        "kernels": sum(count for name, count in ours.items() if name in kernel),
        "stacks": sum(count for name, count in ours.items() if name in stack),
        "phases and iterations": sum(
            count for name, count in ours.items() if name not in kernel and name not in stack
        ),
    }
    hosts = -(-fleet.ranks // fleet.ranks_per_host)
    worker = fleet.replicas * _WORKER_A_RANK * (fleet.pairs > 0)
    return {name: count * fleet.ranks for name, count in of.items()} | {
        "exporters themselves": float(_HOST * hosts),
        "L3 worker": float(worker * fleet.ranks),
    }
