"""A cycle's findings for people, and as JSON. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from argus_l3_worker.cycle import CycleReport
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import Verdict, culprits

_NAME_WIDTH = 44
_NOT_JUDGED_ROWS = 20


def table(report: CycleReport) -> str:
    """What was judged, what was found, and what was left out with the reason."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CycleReport) -> Iterator[str]:
    when = datetime.fromtimestamp(report.time, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    yield f"L3 at {when}: {report.windows_judged} windows judged in {report.seconds:.1f} s"
    for judgement in report.judgements:
        yield ""
        yield (
            f"job {judgement.training_job}, role {judgement.role}: {len(judgement.ranks)} ranks, "
            f"{judgement.window}, {len(judgement.pairs)} kernels compared, {len(judgement.not_compared)} not"
        )
        yield from _rank_rows(judgement)
        for kernel, stream, reason in judgement.not_compared[:5]:
            yield f"  not compared: {kernel} on {stream}: {reason}"
        if len(judgement.not_compared) > 5:
            yield f"  not compared: {len(judgement.not_compared) - 5} more (--json lists all)"
    if report.abstentions or report.not_judged:
        yield ""
    for abstention in report.abstentions:
        yield (
            f"abstain: job {abstention.training_job}, role {abstention.role}: {abstention.reason}: "
            f"{abstention.detail}"
        )
    for rank in report.not_judged[:_NOT_JUDGED_ROWS]:
        yield f"not judged: role {rank.role}, rank {rank.rank}: {rank.reason}"
    if len(report.not_judged) > _NOT_JUDGED_ROWS:
        yield f"not judged: {len(report.not_judged) - _NOT_JUDGED_ROWS} more ranks (--json lists all)"
    for left_out in report.left_out:
        yield f"left out: job {left_out.training_job}: {left_out.modes} modes {left_out.reason}"
    for shift in report.group_shifts:
        where = f"{shift.coordinate} {shift.value}" if shift.value else "ranks with nothing in common"
        yield (
            f"group shift: job {shift.training_job}, {shift.role}, kernel {shift.kernel}: {where} "
            f"({len(shift.ranks)} of {shift.compared} ranks) {_percent(shift.shift)}"
        )
    yield ""
    if not report.verdicts:
        yield "no anomaly" if report.judgements else "no anomaly: nothing was judged"
        return
    rows = [("JOB", "RANK", "VERDICT", "CAUSE", "TEAM", "SHIFT", "WINDOWS", "KERNEL", "STREAM")]
    order = sorted(report.verdicts, key=lambda v: (v.training_job, len(v.rank), v.rank, -abs(v.shift)))
    rows += [
        (
            verdict.training_job,
            verdict.rank,
            verdict.verdict,
            verdict.cause,
            verdict.team,
            _percent(verdict.shift),
            f"{verdict.windows}/{verdict.looked_at}",
            verdict.kernel[:_NAME_WIDTH],
            verdict.stream,
        )
        for verdict in order
    ]
    yield from _aligned(rows)
    yield ""
    yield f"culprits: {', '.join(f'rank {rank}' for rank in culprits(report.verdicts)) or 'none'}"


def _rank_rows(judgement: RoleJudgement) -> Iterator[str]:
    """The ranks that moved most, both ways; a fleet's table would be too long."""
    flagged = dict.fromkeys(judgement.ranks, 0)
    for pair in judgement.pairs:
        for index in np.flatnonzero(pair.beyond_fence):
            flagged[judgement.ranks[pair.ranks[index]]] += 1
    order = np.argsort(-np.abs(np.nan_to_num(judgement.rank_shift)), kind="stable")[:8]
    rows = [("  RANK", "COMPUTE SHIFT", "BEYOND W1 FENCE")]
    for position in order:
        rank = judgement.ranks[position]
        rows.append(
            (
                f"  {rank}",
                _percent(judgement.rank_shift[position]),
                f"{flagged[rank]} of {len(judgement.pairs)}",
            )
        )
    yield from _aligned(rows)


def _percent(log_shift: float) -> str:
    return "unknown" if np.isnan(log_shift) else f"{np.expm1(log_shift):+.1%}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def as_json(report: CycleReport) -> str:
    """The whole report as one JSON object; shifts are ratios (0.1 is 10 % slower), NaN is null."""
    content = {
        "time": report.time,
        "windows_judged": report.windows_judged,
        "seconds": round(report.seconds, 3),
        "delivered": report.delivered,
        "culprits": culprits(report.verdicts),
        "verdicts": [_with_ratio(verdict) for verdict in report.verdicts],
        "group_shifts": [_with_ratio(shift) for shift in report.group_shifts],
        "abstentions": [vars(abstention) for abstention in report.abstentions],
        "not_judged": [vars(rank) for rank in report.not_judged],
        "left_out": [vars(left_out) for left_out in report.left_out],
        "roles": [_role(judgement) for judgement in report.judgements],
    }
    return json.dumps(content, indent=2)


def _with_ratio(found: Verdict | GroupShift) -> dict[str, Any]:
    others = {name: value for name, value in vars(found).items() if name != "shift"}
    return {**others, "shift_ratio": _ratio(found.shift)}


def _role(judgement: RoleJudgement) -> dict[str, Any]:
    return {
        "training_job": judgement.training_job,
        "role": judgement.role,
        "last_step": judgement.window.last_step,
        "steps": judgement.window.steps,
        "ranks": {
            rank: _ratio(shift) for rank, shift in zip(judgement.ranks, judgement.rank_shift, strict=True)
        },
        "kernels": [
            {
                "kernel": pair.kernel,
                "stream": pair.stream,
                "kind": pair.kind,
                "w1_fence_seconds": None if pair.w1 is None else _number(pair.w1.fence_seconds),
                "ranks": {
                    judgement.ranks[position]: {
                        "w1_seconds": None if pair.w1 is None else _number(pair.w1.seconds[index]),
                        "shift_ratio": _ratio(pair.shift[index]),
                        "share": _number(pair.share[index]),
                        "evidence_ratio": _ratio(pair.evidence[index]),
                    }
                    for index, position in enumerate(pair.ranks)
                },
            }
            for pair in judgement.pairs
        ],
        "not_compared": [
            {"kernel": kernel, "stream": stream, "reason": reason}
            for kernel, stream, reason in judgement.not_compared
        ],
    }


def _ratio(log_shift: float) -> float | None:
    return _number(float(np.expm1(log_shift)))


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None
