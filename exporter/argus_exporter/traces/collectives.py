"""Communication as the GPU did it: collectives by NCCL kernels become phases of source `kernel`.

The same phases, groups and rules as in the series (`communicators`): a stream whose dimension is not known
gives none. They tie the kernels of ranks that communicate together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import collective_phase
from argus_core.kernel_records import KernelArray
from argus_exporter.kernels.communicators import CollectiveSpan, find_dimensions
from argus_exporter.kernels.pairs import find_pairs, stream_keys
from argus_exporter.place.topology import DIMENSIONS, Identity, RoutingTable
from argus_exporter.replay.recording import SPAN_DTYPE

Array = NDArray[np.void]


def dimensions_of(
    kernels: KernelArray,
    texts: Mapping[int, str],
    identity: Identity,
    spans: Array,
    groups: Sequence[str],
    routing: Mapping[str, str],
) -> dict[int, str]:
    """Parallel dimension by stream key, where it is known; arguments as of `TraceWindow`."""
    evidence = []
    for span, group in zip(spans.tolist(), groups, strict=True):
        begin, duration, _, _, _, kind, source, _, _ = span
        dimension = group.partition(":")[0]
        if kind == wire.Kind.COMM and dimension in DIMENSIONS:
            on_device = source == wire.Source.EVENT
            evidence.append(CollectiveSpan(begin, begin + duration, dimension, on_device))
    return find_dimensions(kernels, find_pairs(kernels), texts, identity, evidence, routing)


def collective_phases(
    kernels: KernelArray,
    texts: dict[int, str],
    dimensions: Mapping[int, str],
    iterations: Array,
    table: RoutingTable,
) -> tuple[Array, list[str]]:
    """Spans (SPAN_DTYPE) of the collectives of streams with a dimension, and the group of each.

    Args:
        texts: gets the names of the phases.
        iterations: ITERATION_DTYPE ascending by start; a collective outside of all has step 0.
    """
    phase_of = {
        name_id: collective_phase(texts[name_id]) for name_id in np.unique(kernels["name_id"]).tolist()
    }
    ids = {text: name_id for name_id, text in texts.items()}
    keys = stream_keys(kernels)
    chosen = np.isin(keys, list(dimensions)) & np.isin(
        kernels["name_id"], [name_id for name_id, phase in phase_of.items() if phase]
    )
    some, keys = kernels[chosen], keys[chosen]
    spans = np.zeros(len(some), SPAN_DTYPE)
    spans["start_ns"], spans["duration_ns"] = some["start_ns"], some["duration_ns"]
    spans["kind"], spans["source"] = wire.Kind.COMM, wire.Source.KERNEL
    if len(iterations):
        starts = iterations["start_ns"].astype(np.int64)
        place = np.searchsorted(starts, some["start_ns"].astype(np.int64), side="right") - 1
        spans["step"] = iterations["step"][np.maximum(place, 0)]
    groups = []
    for index, (name_id, key) in enumerate(zip(some["name_id"].tolist(), keys.tolist(), strict=True)):
        phase = phase_of[name_id] or ""
        if phase not in ids:
            ids[phase] = max(texts, default=0) + 1
            texts[ids[phase]] = phase
        spans["phase_id"][index] = ids[phase]
        groups.append(table.process_group(phase, dimensions[key]).name)
    return spans, groups
