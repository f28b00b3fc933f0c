"""The answer of `argus-l3-worker trace`: text to read at 3 a.m., and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from argus_traces.blame import Blame
from argus_traces.chain import chain
from argus_traces.summary import Summary, UnlikeFunction

_TOP: Final = 5


def text(
    blame: Blame | None,
    summaries: Sequence[Summary],
    unlike: Sequence[UnlikeFunction] = (),
    *,
    details: bool,
) -> str:
    """What is wrong first, why second, each rank's time last. `details`: all phases and functions."""
    lines = (
        _verdict(blame)
        if blame is not None
        else ["One rank: give the traces of several to find who waits for whom."]
    )
    lines += ["", *_ranks(summaries), *_unlike(unlike)]
    for summary in summaries if details else ():
        lines += ["", *_rank(summary)]
    return "\n".join(lines) + "\n"


def _verdict(blame: Blame) -> list[str]:
    spread = f"{blame.alignment.spread_ns / 1e3:.0f} us"
    of = blame.model.fleet
    lines = []
    if not blame.findings:
        lines.append(
            f"Nothing to blame: no rank, link or host explains a loss worth naming in "
            f"these {blame.seconds:.2f} s."
        )
    for number, finding in enumerate(blame.findings):
        title = "ROOT CAUSE" if number == 0 else "also"
        ranks = ", ".join(str(rank) for rank in finding.ranks)
        where = f"link of {finding.group} (ranks {ranks})" if finding.group else f"rank {ranks}"
        lines += [
            f"{title}: {finding.cause}, {where}; team {finding.team}",
            f"  costs {finding.cost_ratio:.1%} of the time ({finding.cost_seconds * 1e3:.0f} ms of "
            f"{blame.seconds:.2f} s), most in step {finding.step}: {finding.step_seconds * 1e3:.0f} ms",
            f"  proof: {finding.evidence}",
        ]
        hops = chain(blame, finding)
        if hops:
            lines.append("  from symptom to cause:")
            lines += [f"    {'=>' if hop.root else '->'} {hop.text}" for hop in hops]
    used = blame.alignment
    if used.hosts > 1:
        lines += [
            "",
            f"Clocks of {used.hosts} hosts aligned by {used.used} common ends; what remains: {spread}.",
        ]
    lines += [f"Note: {note}." for note in blame.notes]
    lines.append(f"{len(of.traces)} ranks, step {blame.step_seconds * 1e3:.0f} ms.")
    return lines


def _ranks(summaries: Sequence[Summary]) -> list[str]:
    width = max((len(summary.name) for summary in summaries), default=4)
    lines = [f"{'rank':<{width}}  GPU busy  comm s  hidden  between steps  waiting  host idle  most critical"]
    for one in summaries:
        voids = (
            f"{one.voids.inter_step:>13.1%}  {one.voids.minority:>7.1%}  {one.voids.host:>9.1%}"
            if one.voids
            else f"{'-':>13}  {'-':>7}  {'-':>9}"
        )
        top = f"{one.betas[0].function} {one.betas[0].beta:.0%}" if one.betas else "-"
        lines.append(
            f"{one.name:<{width}}  {one.busy_ratio:>8.1%}  {one.communication:>6.2f}  "
            f"{one.overlap_ratio:>6.0%}  {voids}  {top}"
        )
    return lines


def _unlike(found: Sequence[UnlikeFunction]) -> list[str]:
    if not found:
        return []
    return [
        "Critical for longer than on the others (EROICA's patterns; a cross-check, no verdict):",
        *(
            f"  rank {one.rank}: {one.function} ({one.category}) {one.beta:.1%} of the time, the others "
            f"{one.usual:.1%}"
            for one in found[:_TOP]
        ),
    ]


def _rank(one: Summary) -> list[str]:
    lines = [
        f"{one.name}: {one.seconds:.3f} s",
        "  phase                     kind     source     count  total s  median ms  max ms",
    ]
    lines += [
        f"  {phase.phase:<25} {phase.kind:<8} {phase.source:<8} {phase.count:>7} {phase.total:>8.3f} "
        f"{phase.median * 1e3:>10.2f} {phase.longest * 1e3:>7.1f}"
        for phase in one.phases
    ]
    lines += ["  stream                    kernels  busy s  share"]
    lines += [
        f"  {stream.stream:<25} {stream.count:>7} {stream.busy:>7.3f}  {stream.busy_ratio:>5.1%}"
        for stream in one.streams
    ]
    lines += ["  beta (share of time on the critical path)      class"]
    lines += [f"  {beta.beta:>6.1%}  {beta.function:<40} {beta.category}" for beta in one.betas[: 2 * _TOP]]
    return lines


def as_json(blame: Blame | None, summaries: Sequence[Summary], unlike: Sequence[UnlikeFunction] = ()) -> str:
    """The same for programs."""
    found: dict[str, Any] = {
        "ranks": [asdict(one) | {"overlap_ratio": one.overlap_ratio} for one in summaries],
        "unlike": [asdict(one) for one in unlike],
    }
    if blame is not None:
        found |= {
            "findings": [
                {key: value for key, value in asdict(finding).items() if key != "links"}
                | {"chain": [asdict(hop) for hop in chain(blame, finding)]}
                for finding in blame.findings
            ],
            "seconds": blame.seconds,
            "step_seconds": blame.step_seconds,
            "clocks": {
                "hosts": blame.alignment.hosts,
                "ends_compared": blame.alignment.used,
                "spread_seconds": blame.alignment.spread_ns / 1e9,
            },
            "notes": list(blame.notes),
        }
    return json.dumps(found, indent=2)
