"""Files to recordings: which format a file has, and the one line that says why it cannot be used."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from argus_exporter.replay.event_log import FIRST_KEYS, parse_event_log
from argus_exporter.replay.kineto import parse_kineto
from argus_exporter.replay.recording import (
    RankRecording,
    RecordingError,
    align,
    clean_text,
    refuse_duplicates,
)

_GZIP: Final = b"\x1f\x8b"
_FIRST_KEY: Final = re.compile(rb'\s*\{\s*"([^"\\]{1,32})"\s*:')
_SHORTEST_TOKEN: Final = 8
"""What JSON breaks off in, such as `fals` or `-Infin`, is shorter than this."""
_FORMATS: Final = (
    "allowed: a PyTorch profiler trace (a JSON object with traceEvents) or an event log (docs/event-log.md), "
    "plain or gzip"
)

Progress = Callable[[int, Path], None]
"""Called with the place in the list before a file is read."""


def read_files(
    files: Sequence[Path],
    *,
    job: str | None = None,
    assume_ranks: bool = False,
    progress: Progress | None = None,
) -> list[RankRecording]:
    """Recordings of all files, ascending by rank, aligned in time.

    Args:
        files: traces of one rank each, or event logs of any number of ranks.
        job: training job; default: what an event log says, else the folder of the first file.
        assume_ranks: number the traces 0, 1, ... in the order given, whatever they say themselves.
        progress: told of each file before it is read.

    Raises:
        RecordingError: the first file that cannot be used, and why.
    """
    fallback_job = clean_text(files[0].absolute().parent.name, 64) or "replay"
    recordings: list[RankRecording] = []
    for place, path in enumerate(files):
        if progress is not None:
            progress(place, path)
        rank = place if assume_ranks else None
        recordings += parse_bytes(_content(path), path, job=job, fallback_job=fallback_job, rank=rank)
    if assume_ranks:
        recordings = [_of_world(recording, len(files)) for recording in recordings]
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
    """Recordings of one file's decompressed content, whose format is told by its first key."""
    if not content.strip():
        raise RecordingError(f"{path}: is empty; {_FORMATS}")
    first = _FIRST_KEY.match(content)
    if first and first[1].decode("utf-8", "replace") in FIRST_KEYS:
        if rank is not None:
            raise RecordingError(f"{path}: an event log names its ranks; leave out --assume-ranks")
        return parse_event_log(io.BytesIO(content), path, job, fallback_job)
    trace = _decode(content, path)
    if isinstance(trace, list):  # the array form of the Chrome trace format
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise RecordingError(f"{path}: has no list traceEvents; {_FORMATS}")
    events = trace.pop("traceEvents")
    return [parse_kineto(trace, events, path, job or fallback_job, rank)]


def read_with_progress(
    files: Sequence[Path], *, job: str | None, assume_ranks: bool, stream: TextIO = sys.stderr
) -> list[RankRecording]:
    """`read_files`; on a terminal, with one line that names the file being read, cleared at the end."""

    def show(place: int, path: Path) -> None:
        stream.write(f"\r\x1b[Kreading {place + 1}/{len(files)} {path.name}")
        stream.flush()

    if not stream.isatty():
        return read_files(files, job=job, assume_ranks=assume_ranks)
    try:
        return read_files(files, job=job, assume_ranks=assume_ranks, progress=show)
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _of_world(recording: RankRecording, size: int) -> RankRecording:
    identity = dataclasses.replace(recording.identity, world_size=size)
    return dataclasses.replace(recording, identity=identity)


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise RecordingError(f"{path}: is a folder; name its files, for example {path}/*.json.gz")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {why}") from error
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"{path}: truncated or damaged gzip ({error}); copy the file again") from error
    except MemoryError as error:
        raise RecordingError(f"{path}: does not fit into memory once decompressed") from error


def _decode(content: bytes, path: Path) -> object:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        remaining = error.doc[error.pos :].strip()
        where = f"line {error.lineno}, column {error.colno}"
        begun = error.doc.lstrip().startswith(("{", "["))
        if begun and (len(remaining) < _SHORTEST_TOKEN or error.msg.startswith("Unterminated")):
            raise RecordingError(
                f"{path}: truncated: the JSON ends too early at {where}; copy the file again"
            ) from error
        raise RecordingError(f"{path}: not JSON: {error.msg} at {where}; {_FORMATS}") from error
    except RecursionError as error:
        raise RecordingError(f"{path}: nested too deeply; {_FORMATS}") from error
    except ValueError as error:  # not a Unicode text, or an integer of thousands of digits
        raise RecordingError(f"{path}: not JSON: {str(error)[:80]}; {_FORMATS}") from error
    except MemoryError as error:
        raise RecordingError(f"{path}: does not fit into memory once parsed") from error
