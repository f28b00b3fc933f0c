"""From a recording (a Kineto or nsys file, an event log) to a window of one rank."""

from __future__ import annotations

import numpy as np

from argus_exporter.kernels.streams import label_streams
from argus_exporter.place.topology import RoutingTable
from argus_exporter.replay.recording import RankRecording
from argus_exporter.traces.collectives import collective_phases, dimensions_of
from argus_exporter.traces.window import TraceWindow


def window_of_recording(recording: RankRecording) -> TraceWindow:
    """The whole recording as one window. Times stay as recorded, be it since an event log's own origin."""
    identity, spans, iterations = recording.identity, recording.spans, recording.iterations
    texts = dict(enumerate(recording.texts))
    table = RoutingTable(identity)
    groups = [
        table.process_group(texts[phase], texts[group]).name
        for phase, group in zip(spans["phase_id"].tolist(), spans["group_id"].tolist(), strict=True)
    ]
    kernels, streams = recording.kernels, label_streams(recording.kernels, texts)
    dimensions = dimensions_of(kernels, texts, identity, spans, groups, {})
    derived, derived_groups = collective_phases(kernels, texts, dimensions, iterations, table)
    return TraceWindow(
        identity=identity,
        begin_ns=recording.begin_ns,
        end_ns=recording.end_ns,
        first_step=int(iterations["step"].min()) if len(iterations) else None,
        last_step=int(iterations["step"].max()) if len(iterations) else None,
        texts=texts,
        kernels=kernels,
        streams=streams,
        spans=np.concatenate([spans, derived]),
        groups=[*groups, *derived_groups],
        iterations=iterations,
    )
