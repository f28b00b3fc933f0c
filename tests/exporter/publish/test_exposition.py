"""Every state of an exporter is served in both text formats, to the content of their strictest readers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest as classic
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.samples import Sample

from argus_core import catalogue, nccl_page, wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.nccl_page import NcclPageReader
from argus_core.shared_page import GPU_WORD, PageReader, PageWriter, pack_recorded, recorded_word
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.kernels.config import WindowsConfig
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.place.topology_file import JobTopology, Topology
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.publish.exposition import Encoder, Exposition
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.live import Clock, LivePage
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.outcome import outcome_of
from exporter.ras.answers import Absentee, Group, Job, Member
from nccl_memory import (
    Oldest,
    write_communicator,
    write_header,
    write_kernels,
    write_operation,
    write_peer,
)

SECOND = 10**9
HOSTILE = 'a"b\\c\nd{}=,é\u2028\U0001f525\x00z'
"""What a label value must survive."""


@dataclass
class Exporter:
    """The ranks of an exporter without its sockets, and the records that a producer would send."""

    now: float = 1000.0
    ranks: RankRegistry = field(init=False)
    attachment: Attachment = field(
        default_factory=lambda: Attachment(frozenset(wire.Channel), uid=0, pid=100)
    )
    config: ExporterConfig = field(default_factory=lambda: ExporterConfig(windows=WindowsConfig(steps=1)))

    def __post_init__(self) -> None:
        self.ranks = RankRegistry(self.config, clock=lambda: self.now)

    def hello(self, rank: int = 0, job: str = "job", **identity: object) -> RankState:
        told = Identity(job, rank, **{"coordinates": {"dp": rank}, "sizes": {"dp": 8}, **identity})  # type: ignore[arg-type]
        return self.ranks.hello(told, self.attachment)

    def names(self, state: RankState, *texts: str) -> NameTable:
        table = NameTable(state.texts)
        for number, text in enumerate(texts, start=1):
            table.bind(wire.Name(number, wire.encode_name(text)))
        return table


def empty(exporter: Exporter) -> None:
    """Nobody has connected."""


def hello_only(exporter: Exporter) -> None:
    exporter.hello(role="tp0", node="gpu-1", gpu_uuid="GPU-1")


def phases(exporter: Exporter) -> None:
    state = exporter.hello()
    names = exporter.names(state, "forward", "dp-allreduce", "tokens", "mlp")
    for step in range(1, 4):
        for phase, kind in ((1, wire.Kind.COMPUTE), (2, wire.Kind.COMM)):
            for source in wire.Source:
                span = wire.Span(step * SECOND, SECOND // 2, step, phase, 0, kind, source, 0)
                records.spans(state, span.pack(), names)
        records.iteration(state, wire.Iteration(step, step * SECOND, SECOND, step, float(step), float(step)))
    records.activity(state, wire.ActivityChange(1, wire.Activity.CHECKPOINT))
    records.phase_info(state, wire.PhaseInfo(2, wire.Kind.COMM, wire.waits_mask(["tp", "dp"])), names)
    for microbatch in (0, 4, 7):
        records.layer(state, wire.Layer(1, SECOND, 3, 4, 0.25, 5, microbatch, wire.Source.EVENT), names)
    records.work(state, wire.Work(4096.0, 3), names)
    records.channel_state(state, wire.ChannelState(10**6, 3, 0, wire.Channel.PHASES, 1), names)


def long_steps(exporter: Exporter) -> None:
    """Means over the last of them, and of their work."""
    state = exporter.hello()
    names = exporter.names(state, "forward", "tokens")
    for step in range(1, 6):
        exporter.now += 90
        span = wire.Span(step * SECOND, SECOND // 2, step, 1, 0, wire.Kind.COMPUTE, wire.Source.EVENT, 0)
        records.spans(state, span.pack(), names)
        records.work(state, wire.Work(4096.0 * step, 2), names)
        ended = wire.Iteration(step, step * SECOND, 90 * SECOND, step, 90.0 * step, 8100.0 * step)
        records.iteration(state, ended)


def kernels(exporter: Exporter) -> None:
    """Complete windows of a compute and a collective kernel that tell their launches: quantiles too."""
    state = exporter.hello()
    names = exporter.names(state, "void gemm<float>(int)", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    for step in range(1, 6):
        exporter.now += 1
        ran = np.zeros(40, KERNEL_DTYPE)
        ran["start_ns"] = step * SECOND + np.arange(40) * 10**6
        ran["duration_ns"] = 50_000 + np.arange(40) % 7
        ran["issue_ns"] = 10_000
        ran["name_id"] = 1 + np.arange(40) % 2
        ran["stream"] = 7 + np.arange(40) % 2
        records.kernels(state, ran, names)
        records.iteration(
            state, wire.Iteration(step, (step + 1) * SECOND - 1, SECOND, step, float(step), float(step))
        )
    exporter.now += 60
    state.kernels.close_windows()
    assert state.kernels.window is not None


def divided(exporter: Exporter) -> None:
    """Two steps on a GPU with their marks: a phase with exposed communication, and the step between them."""
    state = exporter.hello()
    names = exporter.names(state, "gemm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "forward")
    ran = np.zeros(4, KERNEL_DTYPE)
    ran["start_ns"] = np.array([10, 11, 12, 13]) * SECOND
    ran["duration_ns"] = SECOND // 4
    ran["name_id"] = (1, 1, 2, 1)
    ran["mark"] = (wire.step_mark(1), 0, 0, wire.step_mark(2))
    records.iteration(state, wire.Iteration(2, 13 * SECOND, 3 * SECOND, 2, 6.0, 18.0))
    records.gpu_spans(state, wire.GpuSpan(2, SECOND // 4, 2 * SECOND, 3, wire.Kind.COMPUTE).pack(), names)
    records.kernels(state, ran, names)
    exporter.now += 60
    state.kernels.close_windows()
    state.kernels.anatomy.label({})


def pauses(exporter: Exporter) -> None:
    state = exporter.hello()
    names = exporter.names(state, "dynamo")
    for generation in range(3):
        records.garbage_collection(state, wire.GarbageCollection(1, 10**6, 7, 0.5, generation))
    records.compilation(state, wire.Compilation(1, 10**9, 2, 3.5, 1), names)


def stacks(exporter: Exporter) -> None:
    state = exporter.hello()
    names = exporter.names(state, "main (train.py:1)", "MainThread")
    state.stacks.node(wire.StackNode(1, 0, 1), names)
    records.stack_sample(state, wire.StackSample(time.time_ns(), 2, 1, 12), names)
    state.stacks.totals.add(state.stacks.tree.take()[2])


def asked_ras(exporter: Exporter) -> None:
    """Twice, of a job that hangs."""
    exporter.hello(world_size=4)
    (state,) = exporter.ranks
    ranks = [Member(0, 4000, 7, async_error=6), Member(1, 4001, 6)]
    report = parse_json(Job([Group(ranks, [Absentee(2, 4002, dead=True), Absentee(3, 4003)])]).json())
    state.ras = outcome_of(report, report, 1e9, world_size=4, known={4000: 0})


def open_spans(exporter: Exporter) -> None:
    page = PageWriter()
    told = Identity("job", 0, coordinates={"dp": 0}, sizes={"dp": 8})
    exporter.ranks.hello(told, exporter.attachment, LivePage(PageReader(page.fd), Clock(10**9, 10**18)))
    for name in ("forward", "x" * 60 + "1", "x" * 60 + "2"):  # the last two share a slot's name
        slot = page.phase(name, wire.Kind.COMPUTE)
        assert slot is not None
        page.words[slot] = 2 * 10**9
        page.words[GPU_WORD], page.words[GPU_WORD + 1] = slot, 2 * 10**9
    for group in ("dp", "tp", "world", "my-group"):  # this job has no tp: dp stands in
        page.enter_collective(group)
    world = page.group("world")
    assert world is not None
    page.words[recorded_word(world)] = pack_recorded(1, "all_reduce", 0, 1)


def told_by_nccl(exporter: Exporter) -> None:
    """Two ranks of a job and their communicators, of which two have members that are not known."""
    for rank in (0, 1):
        descriptor = nccl_page.make()
        write_header(
            descriptor, state=1, reason=4, table=7, nccl_version=23203, communicators=3, stale_events=2
        )
        for slot, (hash_, ranks) in enumerate(((5, 2), (6, 3), (7, 3))):
            write_communicator(
                descriptor, slot, hash=hash_, rank=rank, ranks=ranks, launches=4, launch_ns=10**6
            )
            write_operation(descriptor, slot, "AllReduce", 3, 3)
            write_kernels(descriptor, slot, "AllReduce", 3, 10**6, bus_bytes=10**9)
            stands = Oldest((1, 1, 1, 0, 0, 0), entered_ns=(1, 0), moved_ns=(1, 0))
            write_peer(descriptor, slot, 0, 1, (10**9, 2, 3, 0, 0, 0), 1, stands)
            write_peer(descriptor, slot, 1, nccl_page.OTHER_PEERS, (0, 0, 0, 1, 2, 3), 0)
        told = Identity("job", rank, world_size=2, coordinates={"dp": rank}, sizes={"dp": 2})
        page = LivePage(PageReader(PageWriter().fd), Clock(10**9, 10**18), NcclPageReader(descriptor))
        exporter.ranks.hello(told, exporter.attachment, page)


def lost(exporter: Exporter) -> None:
    phases(exporter)
    (state,) = exporter.ranks
    exporter.ranks.detach(state, exporter.attachment, said_bye=False)


def channel_down(exporter: Exporter) -> None:
    state = exporter.hello()
    names = exporter.names(state, "permission")
    records.channel_state(state, wire.ChannelState(0, 0, 1, wire.Channel.KERNELS, 0), names)
    state.channels.sender_dropped(exporter.attachment, 17)


def after_reload(exporter: Exporter) -> None:
    phases(exporter)
    topology = Topology({"job": JobTopology(sizes={"dp": 4, "tp": 2, "pp": 1})})
    exporter.ranks.reconfigure(ExporterConfig(routing={"forward": "world"}), topology)
    (state,) = exporter.ranks
    names = exporter.names(state, "forward")
    records.spans(state, wire.Span(1, SECOND, 4, 1, 0, 0, 1, 0).pack(), names)


def hostile_texts(exporter: Exporter) -> None:
    """Wherever a producer chooses a text."""
    job = wire.decode_text(wire.encode_text(HOSTILE, 64))
    state = exporter.hello(job=job, role=wire.decode_text(HOSTILE.encode()), node="n\\")
    names = exporter.names(state, HOSTILE, "", " ")
    for number in range(1, 4):
        records.spans(state, wire.Span(1, SECOND, 1, number, number, 0, 1, 0).pack(), names)
        records.layer(state, wire.Layer(1, SECOND, 1, number, 0.0, 0, 0, 1), names)
        records.work(state, wire.Work(1.0, number), names)
        records.compilation(state, wire.Compilation(1, 1, 1, 1.0, number), names)
    records.job_facts(state, wire.job_facts(wire.decode_text(HOSTILE.encode()), "n\\"))
    records.channel_state(state, wire.ChannelState(0, 0, 1, wire.Channel.STACKS, 0), names)


def extreme_numbers(exporter: Exporter) -> None:
    """The largest that fit the wire."""
    state = exporter.hello()
    names = exporter.names(state, "forward")
    most = 2**64 - 1
    records.spans(state, wire.Span(most, most, most, 1, 0, 0, 0, 65535).pack(), names)
    records.layer(state, wire.Layer(most, most, most, 1, 0.0, 65535, 65535, 0), names)
    records.iteration(state, wire.Iteration(most, most, most, most, 1.7e308, 0.0))
    records.garbage_collection(state, wire.GarbageCollection(most, most, most, 1.7e308, 0))
    state.channels.sender_dropped(exporter.attachment, most)


def several_jobs_and_ranks(exporter: Exporter) -> None:
    for job in ("a", "b"):
        for rank in range(4):
            state = exporter.hello(rank, job)
            records.iteration(state, wire.Iteration(1, SECOND, SECOND, 1, 1.0, 1.0))


STATES: tuple[Callable[[Exporter], None], ...] = (
    empty,
    hello_only,
    phases,
    long_steps,
    kernels,
    divided,
    pauses,
    stacks,
    asked_ras,
    told_by_nccl,
    open_spans,
    lost,
    channel_down,
    after_reload,
    hostile_texts,
    extreme_numbers,
    several_jobs_and_ranks,
)


def key_of(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


def none_of_ours() -> Iterator[Metric]:
    return iter(())


@pytest.fixture(params=STATES, ids=lambda state: state.__name__)
def exporter(request: pytest.FixtureRequest) -> Exporter:
    made = Exporter()
    request.param(made)
    return made


@pytest.fixture(params=[None, 0], ids=["all ranks", "one rank"])
def runner(request: pytest.FixtureRequest, exporter: Exporter) -> CollectorRunner:
    own = none_of_ours if request.param is None else None
    return CollectorRunner(ALL_COLLECTORS, exporter.ranks, rank=request.param, own=own)


def test_promtool_has_nothing_to_complain_about(runner: CollectorRunner):
    """The classic format, linted as metrics of an exporter."""
    body = classic(runner)  # type: ignore[arg-type]
    lint = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (lint.returncode, lint.stderr.decode()) == (0, "")


def test_the_strict_openmetrics_parser_reads_every_sample(runner: CollectorRunner):
    """And finds the very samples that the collectors made: none doubled, none lost, no family split."""
    made = {key_of(sample) for family in runner.collect() for sample in family.samples}
    families = parse_openmetrics(openmetrics(runner).decode())  # type: ignore[arg-type]
    read = [key_of(sample) for family in families for sample in family.samples]
    assert len(read) == len(set(read))
    assert set(read) == made


@pytest.mark.parametrize("encoder", [classic, openmetrics])
def test_a_scrape_has_the_text_that_the_library_renders(runner: CollectorRunner, encoder: Encoder):
    """Whether its families are rendered for the first time, or were kept from the scrape before."""
    exposition, families = Exposition(), list(runner.collect())
    whole = encoder(SimpleNamespace(collect=lambda: families))
    assert [exposition.render(families, encoder, "page") for _ in range(2)] == [whole] * 2


def test_no_collector_fails(exporter: Exporter):
    """Each is ok or has no data."""
    runner = CollectorRunner(ALL_COLLECTORS, exporter.ranks, own=none_of_ours)
    failed = [
        sample.labels["collector"]
        for family in runner.collect()
        for sample in family.samples
        if sample.labels.get("state") == "error" and sample.value
    ]
    assert failed == []


def test_every_family_of_the_exporter_appears_in_some_state():
    """What the catalogue promises is published, and the states above show it."""
    seen: set[str] = set()
    for state in STATES:
        exporter = Exporter()
        state(exporter)
        seen |= {s.name for f in CollectorRunner(ALL_COLLECTORS, exporter.ranks).collect() for s in f.samples}
    promised = {
        name
        for family in catalogue.CATALOGUE
        if family.component == "exporter"
        for name in family.sample_names
    }
    # One sample a step goes by remote write only; what is seen from outside needs a process to look at.
    elsewhere = {
        "argus_iteration_seconds",
        "argus_rank_stopped",
        "argus_stack_sampling_hertz",
        "argus_stack_sampler_cpu_seconds_total",
    }
    assert promised - seen - elsewhere == set()
