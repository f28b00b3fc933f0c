"""What NCCL 2.28.9 called by version 5 of its interface: beside what the fake calls, and played to ours.

Accepted: the fake is one rank without a communicator of its own for transfers, which torch makes; it does one
operation over the network after another where NCCL has several under way, with four steps in each. It repeats
starts of receives and waits for a peer, as NCCL does where a try fails: none did here, so it is told not to.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from bench.gpu_day.nccl_ranks import CALLED, ELEMENTS, ROUNDS

from argus_core.nccl_page import Communicator
from native.builds import Build
from native.nccl_host import call
from recorded.files import nccl_events

KINDS: Final = {
    0x1: "Group",
    0x2: "Coll",
    0x4: "P2p",
    0x8: "ProxyOp",
    0x10: "ProxyStep",
    0x100: "GroupApi",
    0x200: "CollApi",
    0x400: "P2pApi",
    0x800: "KernelLaunch",
}
NETWORK: Final = {"ProxyOp", "ProxyStep"}
STATES: Final = (8, 20, 9, 10, 11, 12)
"""Of a step, in the order of `nccl_page.Peer`."""
MEMBERS: Final = ("function", "sequence", "count", "peer", "step")
FLOAT32: Final = 4
Event = dict[str, Any]


@dataclass(frozen=True)
class Grammar:
    """How NCCL calls a plugin, whatever a program has it do."""

    parents: frozenset[tuple[str, str, str]]
    """Kinds of event and parent, and whether the parent has stopped when the event starts."""
    calls: frozenset[tuple[str, str]]
    """Kind of an event and the calls that it has: start, states, stop."""
    groups: frozenset[tuple[str, ...]]
    """Calls on the program's thread from a group's start to its stop, in order."""
    threads: frozenset[tuple[str, ...]]
    """Kinds that one thread tells of one communicator."""
    told: frozenset[tuple[str, str]]
    """Members that are ever set in the descriptor of a kind."""
    sequences: frozenset[tuple[str, bool]]
    """Of each function that is numbered, whether each communicator counts it from 0 on."""


def grammar(*ranks: Sequence[Event]) -> Grammar:
    parents, calls, groups, threads, told, sequences = (set() for _ in range(6))
    for events in ranks:
        started = {event["event"]: event for event in events if event["call"] == "s"}
        parents |= _parents(events, started)
        calls |= {(kind, " ".join(each)) for kind, each in _calls(events, started).values()}
        groups |= set(_groups(events, started))
        threads |= _threads(events, started)
        numbers = defaultdict(list)
        for event in started.values():
            told |= {(_kind(event), name) for name in MEMBERS if event[name]}
            if event["type"] == 0x2:
                numbers[event["communicator"], event["function"]].append(event["sequence"])
        sequences |= {(name, each == list(range(len(each)))) for (_, name), each in numbers.items()}
    return Grammar(*map(frozenset, (parents, calls, groups, threads, told, sequences)))


def _kind(event: Event) -> str:
    return KINDS[event["type"]]


def _call(event: Event) -> str:
    return str(event["state"]) if event["call"] == "r" else {"s": "start", "e": "stop"}[event["call"]]


def _parents(events: Sequence[Event], started: dict[int, Event]) -> set[tuple[str, str, str]]:
    found, stopped = set(), set()
    for event in events:
        if event["call"] == "e":
            stopped.add(event["event"])
        elif event["call"] == "s":
            parent = event["parent"]
            of = _kind(started[parent]) if parent else "none"
            found.add((_kind(event), of, "stopped" if parent in stopped else "open"))
    return found


def _calls(events: Sequence[Event], started: dict[int, Event]) -> dict[int, tuple[str, list[str]]]:
    of: dict[int, tuple[str, list[str]]] = {number: (_kind(event), []) for number, event in started.items()}
    for event in events:
        of[event["event"]][1].append(_call(event))
    return of


def _groups(events: Sequence[Event], started: dict[int, Event]) -> Iterator[tuple[str, ...]]:
    open_: dict[int, list[str]] = {}
    for event in events:
        kind, thread = _kind(started[event["event"]]), event["thread"]
        if kind in NETWORK:
            continue
        if (kind, event["call"]) == ("GroupApi", "s"):
            assert thread not in open_
            open_[thread] = []
        open_[thread].append(f"{kind} {_call(event)}")
        if (kind, event["call"]) == ("GroupApi", "e"):
            yield tuple(open_.pop(thread))
    assert not open_


def _threads(events: Sequence[Event], started: dict[int, Event]) -> set[tuple[str, ...]]:
    kinds = defaultdict(set)
    of: dict[tuple[int, bool], set[int]] = defaultdict(set)
    for event in events:
        begun = started[event["event"]]
        network = _kind(begun) in NETWORK
        kinds[event["thread"]].add(_kind(begun) if network else "the program's calls")
        of[begun["communicator"], network].add(event["thread"])
    assert {len(threads) for threads in of.values()} == {1}
    return {tuple(sorted(each)) for each in kinds.values()}


def test_the_fake_nccl_calls_as_the_real_one_does(plain: Build, tmp_path: Path) -> None:
    """Kinds, parents, order, threads, states and empty members: nothing that the other has not."""
    written = tmp_path / "events"
    call(
        plain,
        tmp_path,
        5,
        *("init:1", "attempts:1", f"calls:{ROUNDS}"),
        ARGUS_NEXT_PROFILER=plain.event_recorder,
        RECORD_NCCL_EVENTS=written,
    )
    fake = grammar([json.loads(line) for line in written.read_text().splitlines()])
    real = grammar(nccl_events(0), nccl_events(1))
    assert fake == real
    assert ("Group", "none", "open") in real.parents
    assert ("ProxyOp", "Coll", "stopped") in real.parents
    assert ("ProxyStep", "start 8 20 9 stop") in real.calls
    assert {name for name, _ in real.sequences} == set(CALLED)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_real_nccl_called_is_what_the_page_counts(injector: Build, tmp_path: Path, rank: int) -> None:
    """20 rounds on two communicators, as the ranks called them (bench/gpu_day/nccl_ranks.py)."""
    events = nccl_events(rank)
    file = tmp_path / "called"
    file.write_text("\n".join(_lines(events)))
    page = call(injector, tmp_path, 5, "replay", FAKE_EVENTS=file).page
    world, pair = page.communicators
    transfer = "Send" if rank == 0 else "Recv"
    assert _counted(world) == {name: (times, times, times) for name, times in CALLED.items()}
    assert _counted(pair) == {transfer: (ROUNDS, ROUNDS, ROUNDS)}
    sizes = {one.function: one.bytes for one in (*world.operations, *pair.operations)}
    whole, half = 2 * ELEMENTS * FLOAT32, ELEMENTS * FLOAT32
    assert sizes == {
        "AllReduce": ROUNDS * (half + whole),
        "AllGather": ROUNDS * half,
        "ReduceScatter": ROUNDS * half,
        transfer: ROUNDS * half,
    }
    assert (world.launches, pair.launches) == (4 * ROUNDS, ROUNDS)
    for one in (world, pair):
        (peer,) = one.peers
        assert peer.rank == 1 - rank
        assert peer.steps == _steps(events, one.hash)
        assert peer.open == peer.oldest == (0,) * 6
    assert not page.dropped_events + page.stale_events + page.unknown_events + page.foreign_events


def _counted(communicator: Communicator) -> dict[str, tuple[int, int, int]]:
    return {one.function: (one.count, one.sequence, one.finished) for one in communicator.operations}


def _steps(events: Sequence[Event], communicator: int) -> tuple[int, ...]:
    """By state: steps of a communicator that left it."""
    of = {event["event"]: event["communicator"] for event in events if event["call"] == "s"}
    states = Counter(
        event["state"] for event in events if event["call"] == "r" and of[event["event"]] == communicator
    )
    return tuple(states[state] for state in STATES)


def _lines(events: Sequence[Event]) -> Iterator[str]:
    """For the action `replay` of native/nccl/testing/actions.cpp; calls of the API say what they are for."""
    asked = {one["parent"]: one for one in events if one["call"] == "s" and one["type"] in (0x2, 0x4)}
    for event in events:
        what = asked.get(event["event"], event) if event["type"] in (0x200, 0x400) else event
        peer = what["peer"] if what["type"] in (0x4, 0x8) else -1
        told = (what["function"] or "-", what["sequence"], what["count"], peer, event["step"])
        named = (event[name] for name in ("call", "event", "parent", "communicator", "type", "state"))
        yield " ".join(map(str, (*named, *told)))
