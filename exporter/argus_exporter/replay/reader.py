"""Files to recordings: which format a file has, and the one line that says why it cannot be used."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from argus_exporter.replay import nsys
from argus_exporter.replay.event_log import FIRST_KEYS, LINE_LIMIT, parse_event_log
from argus_exporter.replay.json_stream import JsonError, JsonStream
from argus_exporter.replay.kineto import read_kineto
from argus_exporter.replay.progress import NoProgress, Progress
from argus_exporter.replay.recording import (
    RankRecording,
    RecordingError,
    align,
    clean_text,
    refuse_duplicates,
)
from argus_exporter.replay.source import Advance, Source, damage_named

_FIRST_KEY: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"([^"\\]{1,32})"\s*:')
_FORMATS: Final = (
    "allowed: a PyTorch profiler trace (a JSON object with traceEvents) or an event log (docs/event-log.md), "
    "plain or gzip, or an Nsight Systems export to SQLite"
)


def read_files(
    files: Sequence[Path],
    *,
    job: str | None = None,
    assume_ranks: bool = False,
    progress: Progress | None = None,
) -> list[RankRecording]:
    """Recordings of all files, ascending by rank, aligned in time.

    Args:
        files: traces of one rank each, Nsight Systems exports, or event logs of any number of ranks.
        job: training job; default: what an event log says, else the folder of the first file.
        assume_ranks: number the ranks 0, 1, ... in the order given, whatever the files say themselves.
        progress: told of each file, and of the bytes read.

    Raises:
        RecordingError: the first file that cannot be used, and why.
    """
    progress = progress or NoProgress()
    fallback_job = clean_text(files[0].absolute().parent.name, 64) or "replay"
    recordings: list[RankRecording] = []
    for path in files:
        progress.begin(path)
        rank = len(recordings) if assume_ranks else None
        recordings += _read_file(path, job, fallback_job, rank, progress.advance)
    if assume_ranks:
        recordings = [_of_world(recording, len(recordings)) for recording in recordings]
    refuse_duplicates(recordings)
    return align(sorted(recordings, key=lambda recording: recording.rank))


def parse_bytes(
    content: bytes,
    path: Path,
    *,
    job: str | None = None,
    fallback_job: str = "replay",
    rank: int | None = None,
) -> list[RankRecording]:
    """Recordings of a trace or event log in memory, plain or gzip; `path` is named in errors."""
    with damage_named(path):
        return _parse(io.BytesIO(content), path, job, fallback_job, rank, lambda _: None)


def _read_file(
    path: Path, job: str | None, fallback_job: str, rank: int | None, advance: Advance
) -> list[RankRecording]:
    try:
        if path.is_dir():
            raise RecordingError(f"{path}: is a folder; name its files, for example {path}/*.json.gz")
        stream = path.open("rb", buffering=0)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {why}") from error
    with stream, damage_named(path):
        return _parse(stream, path, job, fallback_job, rank, advance)


def _parse(
    stream: IO[bytes], path: Path, job: str | None, fallback_job: str, rank: int | None, advance: Advance
) -> list[RankRecording]:
    """Recordings of one stream; its format is told by its first bytes, never by its name."""
    source = Source(stream, advance)
    if nsys.is_sqlite(source.head):
        if source.compressed:
            raise RecordingError(
                f"{path}: is a compressed SQLite file; decompress it first: gunzip -k {path}"
            )
        return nsys.read_nsys(path, job=job or fallback_job, first_rank=rank, advance=advance)
    if nsys.is_report(path, source.head):
        raise RecordingError(f"{path}: {nsys.how_to_export(path)}")
    first = _FIRST_KEY.match(source.head)
    if first and first[1].decode("utf-8", "replace") in FIRST_KEYS:
        if rank is not None:
            raise RecordingError(f"{path}: an event log names its ranks; leave out --assume-ranks")
        return parse_event_log(source.lines(LINE_LIMIT), path, job, fallback_job)
    return [_trace(JsonStream(source), path, job or fallback_job, rank)]


def _trace(json: JsonStream, path: Path, job: str, rank: int | None) -> RankRecording:
    try:
        first = json.peek()
        if not first:
            raise RecordingError(f"{path}: is empty; {_FORMATS}")
        if first in "{[":
            recording = read_kineto(json, path, job, rank)
        else:
            json.value()
            recording = None
    except JsonError as error:
        if error.truncated and first in "{[":
            raise RecordingError(
                f"{path}: truncated: the JSON ends too early at {error.where}; copy the file again"
            ) from error
        raise RecordingError(f"{path}: not JSON: {error}; {_FORMATS}") from error
    if recording is None:
        raise RecordingError(f"{path}: has no list traceEvents; {_FORMATS}")
    return recording


def _of_world(recording: RankRecording, size: int) -> RankRecording:
    identity = dataclasses.replace(recording.identity, world_size=size)
    return dataclasses.replace(recording, identity=identity)
