"""From a recording (a Kineto or nsys file, an event log) to a window of one rank."""

from __future__ import annotations

from argus_exporter.replay.recording import RankRecording
from argus_exporter.streams import label_streams
from argus_exporter.topology import RoutingTable
from argus_exporter.traces.window import TraceWindow


def window_of_recording(recording: RankRecording) -> TraceWindow:
    """The whole recording as one window. Times stay as recorded, be it since an event log's own origin."""
    identity, spans, iterations = recording.identity, recording.spans, recording.iterations
    texts = dict(enumerate(recording.texts))
    routing = RoutingTable(identity)
    return TraceWindow(
        identity=identity,
        begin_ns=recording.begin_ns,
        end_ns=recording.end_ns,
        first_step=int(iterations["step"].min()) if len(iterations) else None,
        last_step=int(iterations["step"].max()) if len(iterations) else None,
        texts=texts,
        kernels=recording.kernels,
        streams=label_streams(recording.kernels, texts),
        spans=spans,
        groups=[
            routing.group_of_phase(texts[phase], texts[group]).name
            for phase, group in zip(spans["phase_id"].tolist(), spans["group_id"].tolist(), strict=True)
        ],
        iterations=iterations,
    )
