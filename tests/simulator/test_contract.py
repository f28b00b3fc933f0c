"""Simulated producers send what the contract has, and the contract has what was recorded."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter

import numpy as np
import pytest
from tools.generate_frameworks import FIGURES

from argus_core import wire
from argus_core.link import Link
from argus_core.nccl_page import NcclPageReader
from argus_exporter.stacks.folded import frame_label
from argus_simulator import contract, kernel_symbols
from argus_simulator.contract import Entry, Sent
from argus_simulator.engine.framework_hooks import FRAMEWORKS, framework_hooks, waits
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.network import Traffic
from argus_simulator.engine.schedule import Extras, RankSchedule
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.host_page import open_spans
from argus_simulator.lab import load_scenario, shipped
from argus_simulator.nccl_memory import Memory
from argus_simulator.stacks import MainThread
from argus_simulator.topology import Topology
from recorded.files import recorded

TOPOLOGIES = (
    Topology(dp=4, tp=1, pp=1),
    Topology(dp=2, tp=2, pp=1),
    Topology(dp=2, tp=1, pp=3),
    Topology(dp=4, tp=1, pp=1, ep=2),
    Topology(dp=4, tp=2, pp=3, ep=2),
)
PLAYED = [
    *((name, topology) for name in ("megatron", "megatron-allgather") for topology in TOPOLOGIES),
    *(("fsdp2", topology) for topology in TOPOLOGIES[:2]),
    ("ddp", TOPOLOGIES[0]),
    ("pipelining", TOPOLOGIES[2]),
]


def sent(framework: str, topology: Topology) -> set[tuple[str, str, str, str]]:
    """Phase, kind, group and waits of all spans of a step."""
    model = ModelSettings(signals="hooks", framework=framework, microbatches=4)
    plan = Job(JobShape(topology, 0.5, model), (), 0).next_step().plan
    hooks = framework_hooks(topology, framework)
    found = set()
    for span in np.unique(plan.spans[["phase_id", "group_id", "kind"]]):
        phase, kind = plan.span_texts[span["phase_id"] - 1], wire.Kind(int(span["kind"]))
        group = plan.span_texts[span["group_id"] - 1] if span["group_id"] else ""
        mask = waits(phase, kind, group, topology, hooks)
        found.add((phase, kind.name.lower(), group, wire.waits_text(mask)))
    return found


def allowed(entry: Sent, topology: Topology) -> tuple[str, str, str, str]:
    large = {name for name, size in topology.sizes.items() if size > 1}
    words = set(entry.waits)
    if entry.waits == ("group",):
        words = large if entry.group == "world" else {entry.group}
    elif len(words) > 1:
        words &= large  # of dimensions that the job has
    return entry.phase, entry.kind, entry.group, ",".join(sorted(words)) or "none"


@pytest.mark.parametrize(("framework", "topology"), PLAYED, ids=str)
def test_nothing_is_sent_that_no_entry_has(framework: str, topology: Topology) -> None:
    """Phase, kind, group and waits."""
    assert sent(framework, topology) <= {allowed(entry, topology) for entry in contract.phases(framework)}


@pytest.mark.parametrize(("framework", "topology"), PLAYED, ids=str)
def test_a_page_shows_open_what_an_entry_has(framework: str, topology: Topology) -> None:
    """Of what the host is in itself: a wait of one stream for another is over at once."""
    model = ModelSettings(signals="hooks", framework=framework)
    done = Job(JobShape(topology, 0.5, model), (), 0).next_step()
    told = {(one.phase, wire.Kind[one.kind.upper()]) for one in contract.phases(framework)}
    moments = np.linspace(0, float(done.end_ns.max()) / 1e9, 400)
    seen = {key for rank in range(topology.ranks) for at in moments for key in open_spans(done, rank, at)}
    assert {"data", "forward", "backward", "optimizer"} <= {phase for phase, _ in seen}
    assert seen <= told
    assert not [phase for phase, _ in seen if phase.endswith("-wait")]
    assert not open_spans(done, 0, float(moments[-1]))


MICROBATCHES, LAYERS = 4, 2
"""More than these by one, each and both, show how the number of spans grows."""


@pytest.mark.parametrize(("framework", "topology"), PLAYED, ids=str)
def test_spans_are_as_many_in_an_iteration_as_their_entry_says(framework: str, topology: Topology) -> None:
    """Of each rank; what an entry has of layers is not sent where the job lacks the dimension."""
    told = {(one.phase, one.group): entry.cadence for one, entry in contract.phases(framework).items()}
    spans = [
        spans_of_ranks(framework, topology, MICROBATCHES + more, LAYERS + deeper)
        for more in (0, 1)
        for deeper in (0, 1)
    ]
    for rank in range(topology.ranks):
        stage = topology.coordinates(rank)["pp"]
        neighbours = (stage > 0) + (stage < topology.pp - 1)
        for phase in set().union(*(of[rank] for of in spans)):
            first, deeper, more, both = (of[rank][phase] for of in spans)
            of_layer = both - more - deeper + first
            of_microbatch = more - first - LAYERS * of_layer
            constant = first - MICROBATCHES * (of_microbatch + LAYERS * of_layer)
            units = told[phase]
            assert deeper - first == MICROBATCHES * of_layer, phase
            assert of_layer in (0, units.get("layer", 0)), phase
            expected = units.get("microbatch", 0) + neighbours * units.get("transfer", 0)
            assert of_microbatch == expected, phase
            if "warmup" in units:
                assert 0 < abs(constant) <= topology.pp, phase
            else:
                assert constant == units.get("step", 0), phase


def spans_of_ranks(
    framework: str, topology: Topology, microbatches: int, layers: int
) -> list[Counter[tuple[str, str]]]:
    """Of each rank by phase and group: spans in an iteration."""
    model = ModelSettings(signals="hooks", framework=framework, microbatches=microbatches, layers=layers)
    done = Job(JobShape(topology, 0.5, model), (), 0).next_step()
    texts = ("", *done.plan.span_texts)
    return [
        Counter((texts[span["phase_id"]], texts[span["group_id"]]) for span in done.spans_of(rank))
        for rank in range(topology.ranks)
    ]


@pytest.mark.parametrize(("framework", "topology"), PLAYED, ids=str)
def test_phases_are_timed_by_the_clock_that_their_entry_says(framework: str, topology: Topology) -> None:
    """By the host, by events on the stream of the computation, or on one beside it."""
    model = ModelSettings(signals="hooks", framework=framework)
    plan = Job(JobShape(topology, 0.5, model), (), 0).next_step().plan
    beside = {
        (marked.phase, marked.group)
        for rank in range(topology.ranks)
        for marked in RankSchedule(topology, rank, model, Extras()).marked
        if marked.apart
    }
    told = {(one.phase, one.group): entry.clock for one, entry in contract.phases(framework).items()}
    texts = ("", *plan.span_texts)
    for span in np.unique(plan.spans[["phase_id", "group_id", "source"]]):
        phase = texts[span["phase_id"]], texts[span["group_id"]]
        by_event = "own" if phase in beside else "stream"
        clocks = {wire.Source.HOST: "host", wire.Source.EVENT: by_event}
        assert clocks[wire.Source(int(span["source"]))] == told[phase], phase


def test_every_entry_is_sent_by_some_job() -> None:
    """What nobody sends would hide behind the contract."""
    for framework in FRAMEWORKS:
        names = {
            phase for name, topology in PLAYED if name == framework for phase, *_ in sent(name, topology)
        }
        assert {entry.phase for entry in contract.phases(framework)} - names <= (
            {"all_to_all_single"} if framework == "megatron-allgather" else set()
        )


def test_frameworks_are_those_of_the_contract() -> None:
    assert set(contract.frameworks()) == set(FRAMEWORKS)


def entries() -> list[Entry]:
    of_phases = [one for framework in FRAMEWORKS for one in contract.phases(framework).values()]
    return [*of_phases, *contract.kernels().values(), *contract.frames().values()]


def test_every_entry_has_its_source() -> None:
    """Programs where it was recorded, and where it is stated otherwise."""
    for entry in entries():
        assert entry.source in contract.sources()
        assert bool(entry.programs) == (entry.source == "recorded")
        assert bool(entry.origin) == (entry.source != "recorded")


def test_what_is_recorded_is_in_the_recording() -> None:
    """The same phase of the same kind, of a group or of none, and alike in whether it waits.

    In a recorded world of two ranks all dimensions are the same two.
    """
    programs = json.loads(FIGURES.read_text())["programs"]
    for framework in FRAMEWORKS:
        for one, entry in contract.phases(framework).items():
            if entry.source != "recorded":
                continue
            for program in entry.programs:
                found = [
                    signal
                    for signal in programs[program]["signals"]
                    if (signal["phase"], signal["kind"]) == (one.phase, one.kind)
                ]
                assert found, f"{program} does not send {one.phase}"
                told = {_alike(signal["waits"]) for signal in found}
                assert told == {_alike(" ".join(one.waits))}, (program, one)


SIZES = {
    "DDP": (2, 0),
    "DDP, spawned": (1, 3),
    "FSDP2": (1, 3),
    "DTensor": (1, 3),
    "pipelining": (4, 2),
    "Megatron, tp": (2, 2),
    "Megatron, pp": (4, 1),
    "Megatron, ep": (2, 2),
}
"""Microbatches, and layers of a stage, of recorded programs; with two stages where there are any."""


def test_what_is_recorded_is_as_often_in_the_recording() -> None:
    """In proportion to what its entry names; layers of other models have other blocks, but each has one."""
    programs = json.loads(FIGURES.read_text())["programs"]
    for framework in FRAMEWORKS:
        for one, entry in contract.phases(framework).items():
            for program in entry.programs:
                microbatches, layers = SIZES[program]
                units = entry.cadence
                steady = units.get("step", 0) + microbatches * (
                    units.get("microbatch", 0) + units.get("transfer", 0)
                )
                for signal in programs[program]["signals"]:
                    if (signal["phase"], signal["kind"]) != (one.phase, one.kind):
                        continue
                    for spans in filter(None, signal["spans"]):
                        in_layers = "layer" in units and spans >= microbatches * layers
                        apart = 2 if "warmup" in units else 0
                        assert in_layers or abs(spans - steady) <= apart, (program, one, spans)


def _alike(text: str) -> str:
    return text if text in ("none", "unknown") else "others"


def test_kernels_are_those_of_the_contract() -> None:
    """Also those of fleets, which take their names from the same module."""
    names = [
        value
        for name, value in vars(kernel_symbols).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    ]
    assert not [name for name in names if not name.startswith(tuple(contract.kernels()))]


def test_recorded_kernels_are_in_the_recording() -> None:
    """Of an H100, as CUPTI named them."""
    seen = recorded("kernels.rank0")
    names = [name for name, entry in contract.kernels().items() if entry.source == "recorded"]
    assert names
    for name in names:
        parts = name.removeprefix("void ").removesuffix("<").split("::")
        mangled = "_ZN" + "".join(f"{len(part)}{part}" for part in parts) + "I"
        assert mangled.encode() in seen, name


def test_frames_of_a_healthy_job_are_those_of_the_contract() -> None:
    """Innermost ones, as exporters name them; sampled so often that all are met."""
    job = load_scenario("healthy").job()
    thread, seen = MainThread(1000.0), set()
    link = Link("nowhere", lambda: pytest.fail("it does not connect"))  # type: ignore[arg-type]
    nodes: dict[int, str] = {}
    for _ in range(3):
        done = job.next_step()
        thread.sample(done, 0, float(done.end_ns[0]) / 1e9)
        for record in thread.take(link, math.inf, 0):
            if isinstance(record, wire.StackNode):
                names = {id_: text for text, id_ in link._names.items()}
                nodes[record.node_id] = names[record.frame_id]
            else:
                seen.add(frame_label(nodes[record.node_id]))
    assert len(seen) >= 4
    assert seen <= set(contract.frames())


def test_whose_queue_is_full_is_seen_in_a_launch() -> None:
    """A launch blocks in the driver, below the frame that calls it; the host waits at the end of the step."""
    scenario = load_scenario("healthy")
    scenario = dataclasses.replace(scenario, host=dataclasses.replace(scenario.host, queue=64))
    done = scenario.job().next_step()
    own = done.plan.nodes_of[0]
    launched = done.times.host_end[own].max()
    moments = np.linspace(float(done.data_end_ns[0]) / 1e9, float(done.end_ns[0]) / 1e9, 1000)
    seen = [MainThread(10.0)._stacks(done, 0, np.array([at])) for at in moments]
    waits = [frames.startswith("synchronize") for (frames,) in seen]
    assert launched > float(done.end_ns[0]) / 2e9
    assert waits == [bool(at >= launched) for at in moments]


def test_the_weakest_source_is_that_of_its_level() -> None:
    """Kernels have entries that no GPU of ours has confirmed."""
    assert contract.weakest_source("hooks") == "documented"
    assert contract.weakest_source("kernels") == "fake"
    assert contract.weakest_source("nccl") == "fake"


def test_the_memory_of_nccl_has_what_an_entry_has() -> None:
    """Every field that is not 0 in what a rank's exporter reads, of steps that end and one that hangs."""
    scenario = load_scenario("faults/hang-comm")
    job, traffic = scenario.job(), Traffic(scenario.topology.build())
    seen: set[str] = set()
    traffic.add(job.next_step())
    job.jump(scenario.faults["broken"].onset_step)
    done = job.next_step()
    for rank in (7, 8):  # one sends to another host, one receives
        memory = Memory(rank, traffic.groups(done.plan, rank))
        traffic.write(rank, memory, lambda seconds: round(1 + seconds * 1e9))
        memory.stands(traffic.waits(done)[rank], 1)
        for one in NcclPageReader(memory.descriptor).read().communicators:
            for part in (*one.operations, *one.peers):
                values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
                seen |= {name for name, value in values.items() if np.any(_numbers(value))}
    assert seen - {"function", "rank"} == set(contract.nccl()) - {"oldest_function"}


def _numbers(value: object) -> object:
    """Names of functions are no numbers."""
    return 0 if isinstance(value, tuple) and isinstance(value[0], str) else value


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("faults/")])
def test_frames_of_a_fault_are_python(name: str) -> None:
    """What a sampler without native frames sees: a function in a file, at a line."""
    for fault in load_scenario(name).faults.values():
        for frame in filter(None, fault.frames.split(";")):
            assert re.fullmatch(r"\w+ \([\w/]+\.py:\d+\)", frame)
