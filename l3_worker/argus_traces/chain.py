"""From the symptom back to the root cause, as the few sentences that a person needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core.kernel_names import kernel_id
from argus_traces.attribution import DATA_INPUT, HOST_GC, HOST_JIT
from argus_traces.blame import Blame
from argus_traces.path import Link
from argus_traces.proof import Finding

_HOPS: Final = 7
# Waits and excesses below this share of the step are left out of the story.
_TELLING: Final = 0.01


@dataclass(frozen=True)
class Hop:
    """One sentence of the chain; seconds. `waited`: how long the first comer waited."""

    rank: int
    text: str
    seconds: float
    expected_seconds: float
    waited_seconds: float
    root: bool


def chain(blame: Blame, finding: Finding) -> list[Hop]:
    """The hops of the step that lost most, symptom first, root cause last."""
    of = blame.model
    steps = of.operations["step"]
    numbers = [n for n, link in enumerate(blame.links) if int(steps[link.operation]) == finding.step]
    roots = set(finding.links).intersection(numbers)
    if not roots:
        return []
    # The links that lost the time: a rank's many good links in the step are not the cause.
    costly = max(blame.links[n].excess for n in roots)
    roots = {n for n in roots if blame.links[n].excess >= 0.25 * costly}
    first, last = min(roots), max(roots)
    symptom = max(
        (n for n in numbers if n <= first and blame.links[n].kind == "exchange"),
        key=lambda n: _waited(blame, blame.links[n]),
        default=first,
    )
    told = [n for n in numbers if symptom <= n <= last]
    hops = [
        _hop(blame, finding, [blame.links[n] for n in group], any(n in roots for n in group))
        for group in _grouped(blame, told)
    ]
    return _shortened(hops, blame.step_seconds)


def _grouped(blame: Blame, numbers: Sequence[int]) -> list[list[int]]:
    """Runs of links of one rank and kind; exchanges that lead to another rank, or were slow, stand alone.

    Collectives in which the rank itself came last, as it does in each of its layers, belong to its run.
    """
    groups: list[list[int]] = []
    last: tuple[str, int] | None = None
    least = _TELLING * blame.step_seconds
    for number in numbers:
        link = blame.links[number]
        if (
            link.kind == "exchange"
            and number != numbers[0]
            and _waited(blame, link) + link.excess / 1e9 < least
        ):
            continue
        own = ("host" if link.kind == "host" else "device", link.rank)
        if link.kind == "exchange" and (last != own or link.excess >= _TELLING * blame.step_seconds * 1e9):
            groups.append([number])
            last = None
        elif last == own or (link.kind == "edge" and last is not None and last[1] == link.rank):
            groups[-1].append(number)
        else:
            groups.append([number])
            last = own
    return groups


def _waited(blame: Blame, link: Link) -> float:
    """How long the first member was there before the last came, seconds."""
    of = blame.model
    members = list(of.exchanges.all[link.exchange].members)
    starts = of.operations["start"][members]
    return float(starts.max() - starts.min()) / 1e9


def _hop(blame: Blame, finding: Finding, links: Sequence[Link], root: bool) -> Hop:
    of = blame.model
    first = links[0]
    seconds = sum(link.end - link.begin for link in links) / 1e9
    expected = sum(link.expected for link in links) / 1e9
    name = of.fleet.name(first.rank)
    waited = 0.0
    if first.kind == "exchange":
        waited = _waited(blame, first)
        text = _exchange_text(blame, first, waited, seconds, expected)
    elif first.kind == "host":
        worst = max(links, key=lambda link: link.excess)
        doing = {HOST_GC: "collected garbage", HOST_JIT: "compiled", DATA_INPUT: "waited for data"}.get(
            finding.cause if root else "", "did not launch"
        )
        text = (
            f"{name}: the host {doing} for {_ms(seconds)} before {_operation_text(blame, worst.operation)}; "
            f"the GPU lost {_ms(seconds - expected)} by it"
        )
    else:
        count = sum(link.kind == "operation" for link in links)
        took = f"took {_ms(seconds)} (usual {_ms(expected)})"
        text = (
            f"{name}: {count} kernels in a row {took}; most was lost in {_costliest(blame, links)}"
            if count > 1
            else f"{name}: {_operation_text(blame, first.operation)} {took}"
        )
    return Hop(of.fleet.traces[first.rank].window.rank, text, seconds, expected, waited, root)


def _costliest(blame: Blame, links: Sequence[Link]) -> str:
    """The kernel and phase that lost most of the run."""
    of = blame.model
    lost: dict[tuple[int, int], float] = defaultdict(float)
    where: dict[tuple[int, int], int] = {}
    for link in links:
        one = of.operations[link.operation]
        key = (int(one["name"]), int(one["phase"]))
        lost[key] += link.excess
        where[key] = link.operation
    key = max(lost, key=lambda key: lost[key])
    return f"{_operation_text(blame, where[key], microbatch=False)} ({_ms(lost[key] / 1e9)})"


def _exchange_text(blame: Blame, link: Link, waited: float, seconds: float, expected: float) -> str:
    of = blame.model
    exchange = of.exchanges.all[link.exchange]
    members = list(exchange.members)
    waiter = members[int(np.argmin(of.operations["start"][members]))]
    waiting = of.fleet.traces[int(of.operations["rank"][waiter])].window.rank
    late = of.fleet.traces[link.rank].window.rank
    text = f"{exchange.label}: rank {waiting} waited {_ms(waited)} for rank {late}"
    if seconds - expected > 0.25 * expected:
        text += f", then the transfer took {_ms(seconds)} (usual {_ms(expected)})"
    return text


def _operation_text(blame: Blame, operation: int, *, microbatch: bool = True) -> str:
    of = blame.model
    one = of.operations[operation]
    name = kernel_id(of.fleet.strings[one["name"]])
    phase = of.fleet.strings[one["phase"]] if one["phase"] >= 0 else ""
    inside = f" of {phase}" if phase and phase != name else ""
    number = f", microbatch {one['microbatch']}" if microbatch and one["microbatch"] >= 0 else ""
    return f"{name}{inside}{number}"


def _shortened(hops: list[Hop], step_seconds: float) -> list[Hop]:
    least = _TELLING * step_seconds
    kept = [
        hop
        for position, hop in enumerate(hops)
        if position == 0 or hop.root or hop.waited_seconds + hop.seconds - hop.expected_seconds >= least
    ]
    while len(kept) > _HOPS:
        # The dullest but the symptom: long waits stay, and so does what lost most.
        kept.remove(min(kept[1:], key=lambda hop: hop.waited_seconds + hop.seconds - hop.expected_seconds))
    return kept


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1e3
    if abs(milliseconds) >= 10_000:
        return f"{seconds:.1f} s"
    return f"{milliseconds:.0f} ms" if abs(milliseconds) >= 10 else f"{milliseconds:.2g} ms"
