"""Small files of our own recording, for tests: CUPTI's raw buffers, and a Perfetto file of one step.

They lie in gpu-day/fixtures and are not committed by themselves: whoever commits one says which machine
it is of.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from argus_exporter.errors import ArgusExporterError
from argus_exporter.kernels.streams import label_streams
from argus_exporter.place.topology import Identity
from argus_exporter.traces.encode import encode
from argus_exporter.traces.window import TraceWindow
from bench.gpu_day.observe import Observed
from bench.gpu_day.step import Day


def keep_recording(day: Day, recording: Path) -> str:
    """The raw buffers that ARGUS_RECORD wrote, for `training_app replay:PATH`."""
    made = recording.with_name(f"{recording.name}.rank0")
    kept = day.fixtures / "kernels.rank0"
    shutil.copyfile(made, kept)
    return _described(kept)


def keep_trace(day: Day, seen: Observed, part: str = "before") -> str:
    """As the exporter would upload it."""
    kernels = seen.kernels(part)
    names = seen.connection.names
    begin, end = seen.told["stretches"][part]
    window = TraceWindow(
        identity=Identity("gpu-day", 0, world_size=1),
        begin_ns=begin,
        end_ns=end,
        texts=names,
        kernels=kernels,
        streams=label_streams(kernels, names),
    )
    kept = day.fixtures / "kernels.perfetto-trace"
    try:
        kept.write_bytes(encode(window))
    except ArgusExporterError as error:  # the package perfetto is not installed
        return f"{kept.name}: {error}"
    return _described(kept)


def _described(path: Path) -> str:
    return f"{path.name}, {path.stat().st_size} bytes"
