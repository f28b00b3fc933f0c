"""RAS's answer in JSON, which NCCL has from 2.28.7 on.

Source: src/ras/client_support.cc of NCCL 2.28.9 and 2.30.7 (jsonWrite*, rasDumpCommsToJSON).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.report import (
    Absence,
    AbsentRank,
    Communicator,
    Place,
    PresentRank,
    Report,
    Stage,
    checked_host,
    levels,
)
from argus_exporter.ras.versions import Version

_IN_PROGRESS: Final = 7
"""ncclInProgress: init is under way."""
_MOST_FUNCTIONS: Final = 16
"""NCCL counts five; a larger table is not NCCL's."""
_FUNCTION: Final = re.compile(r"[A-Za-z]\w{0,31}")
_COMMA_LEFT_OUT: Final = re.compile(r'(?<=\d)(?=\n\s*"\w+":)')
"""2.28.7 to 2.28.9 write none between a missing rank's nvml_dev and its status (fixed in 2.29.2)."""


def parse_json(text: str) -> Report:
    """Read an answer.

    Raises:
        RasFailed: it is no JSON, even with the comma that 2.28.7 to 2.28.9 leave out, or not RAS's.
    """
    answer = _decoded(text)
    try:
        found = [_communicator(one) for one in answer["communicators"]]
        ras = answer.get("ras", {})
        return Report(
            nccl_version=str(Version.parse(_text(answer["nccl_version"]))),
            # An entry of size 0 is of a communicator that is just being made (NVIDIA/nccl issue 2346).
            communicators=tuple(one for one in found if one.size > 0),
            communicators_count=_number(answer["communicators_count"]),
            timeouts=_number(ras.get("timeouts_count", 0)),
            collected_s=_seconds(ras.get("collection_time_sec", 0.0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RasFailed(f"the answer is JSON, but none of NCCL's RAS: {_why(error)}") from error


def _decoded(text: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        try:
            answer = json.loads(_COMMA_LEFT_OUT.sub(",", text))
        except (ValueError, RecursionError) as error:
            raise RasFailed(f"the answer is no JSON ({len(text)} characters): {error}") from error
    if not isinstance(answer, dict):
        raise RasFailed(f"the answer is JSON, but none of NCCL's RAS: a {type(answer).__name__}")
    return answer


def _communicator(entry: Mapping[str, Any]) -> Communicator:
    counts: dict[str, dict[int, int]] = {}
    for one in entry["ranks"]:
        for function, count in one["collective_counts"].items():
            counts.setdefault(_function(function), {})[_number(one["rank"])] = _number(count)
    if len(counts) > _MOST_FUNCTIONS:
        raise ValueError(f"{len(counts)} functions are counted")
    return Communicator(
        hash=int(_text(entry["hash"]), 16),
        secondary=_text(entry.get("secondary_hash", "")),
        size=_number(entry["size"]),
        present=tuple(_present(one) for one in entry["ranks"]),
        absent=tuple(_absent(one) for one in entry["missing_ranks"]),
        launches={function: levels(by_rank) for function, by_rank in counts.items()},
    )


def _present(entry: Mapping[str, Any]) -> PresentRank:
    status = entry["status"]
    init, wrong = _number(status["init_state"]), _number(status["async_error"])
    return PresentRank(
        rank=_number(entry["rank"]),
        place=_place(entry),
        stage=_stage(status, init),
        init_error=0 if init == _IN_PROGRESS else init,
        async_error=0 if wrong == _IN_PROGRESS else wrong,
    )


def _stage(status: Mapping[str, Any], init: int) -> Stage:
    # In this order, as NCCL's own text has it: ncclCommAbort sets the flag of ncclCommDestroy too.
    if status["abort_flag"]:
        return Stage.ABORT
    if status["finalize_called"] or status["destroy_flag"]:
        return Stage.FINALIZE
    return Stage.RUNNING if init == 0 else Stage.INIT


def _absent(entry: Mapping[str, Any]) -> AbsentRank:
    status = entry["status"]
    # A dead process is unresponsive too.
    absence = (
        Absence.DEAD
        if status["considered_dead"]
        else Absence.UNRESPONSIVE
        if status["unresponsive"]
        else Absence.MISSING
    )
    return AbsentRank(_number(entry["rank"]), _place(entry), absence)


def _place(entry: Mapping[str, Any]) -> Place:
    host, pid, gpu = _text(entry["host"]), entry["pid"], entry["cuda_dev"]
    if not isinstance(pid, int) or not isinstance(gpu, int):
        raise TypeError(f"pid {pid!r} and device {gpu!r} are no numbers")
    # What RAS does not know is "unknown" or empty, and -1.
    known = "" if host in ("", "unknown") else checked_host(host)
    return Place(known, pid if pid > 0 else None, gpu if gpu >= 0 else None)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError(f"{str(value)[:40]} is no count")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{str(value)[:40]} are no seconds")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _function(name: str) -> str:
    if not _FUNCTION.fullmatch(name):
        raise ValueError(f"{name!r} is no function")
    return name


def _why(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
