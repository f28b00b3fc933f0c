"""Kernel records of a rank as scrapes see them, through the real state and collectors."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from argus_core import nccl_page, wire
from argus_core.kernel_records import KernelArray
from argus_core.nccl_page import NcclPageReader
from argus_core.shared_page import PageReader, PageWriter
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.kernels.config import KernelsConfig, WindowsConfig
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.live import Clock, LivePage
from argus_exporter.ranks.nccl_groups import KernelGroups
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from exporter.kernel_rows import NAMES, iteration, kernels
from nccl_memory import write_communicator, write_header

SECOND = 10**9
DP = Identity("job", 0, coordinates={"dp": 0}, sizes={"dp": 8})
CONFIG = ExporterConfig(
    windows=WindowsConfig(steps=4, settle_seconds=1.0), kernels=KernelsConfig(top_pairs=2)
)
LEADER = Attachment(frozenset((wire.Channel.PHASES, wire.Channel.KERNELS)), os.getuid(), os.getpid())
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Host:
    """An exporter's state with a clock of its own; windows are published as the intake does it."""

    config: ExporterConfig = CONFIG
    now: float = 0.0
    ranks: RankRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = RankRegistry(self.config, clock=lambda: self.now)

    def connect(
        self, identity: Identity, attachment: Attachment = LEADER, page: LivePage | None = None
    ) -> Producer:
        state = self.ranks.hello(identity, attachment, page)
        names = NameTable(state.texts)
        for name_id, name in NAMES.items():
            names.bind(wire.Name(name_id, wire.encode_name(name)))
        return Producer(self, state, names)

    def publish(self) -> None:
        for state in self.ranks:
            state.kernels.close_windows()

    def scrape(self) -> Samples:
        runner = CollectorRunner(ALL_COLLECTORS, self.ranks)
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in runner.collect()
            for sample in family.samples
        }

    def find(self, name: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [v for (found, own), v in self.scrape().items() if found == name and wanted <= set(own)]


@dataclass
class Producer:
    host: Host
    state: RankState
    names: NameTable

    def step(self, number: int, kernels: KernelArray) -> None:
        """One second: the kernels, moved to it, and its mark in the middle."""
        ran = kernels.copy()
        ran["start_ns"] += number * SECOND
        records.kernels(self.state, ran, self.names)
        records.iteration(self.state, iteration(number, number * SECOND + SECOND // 2))
        self.host.now = max(self.host.now, float(number + 1))
        self.host.publish()

    def span(self, phase: str, dimension: str, begin_ns: int, end_ns: int) -> None:
        for place, text in enumerate((phase, dimension), 100):
            self.names.bind(wire.Name(place, wire.encode_name(text)))
        record = wire.Span(begin_ns, end_ns - begin_ns, 0, 100, 101, wire.Kind.COMM, wire.Source.HOST, 0)
        records.spans(self.state, record.pack(), self.names)


STEP = kernels((0, 500, 1, 7, 100), (600, 300, 2, 20, 200), (900, 10, 5, 7, 300))


@pytest.fixture
def host() -> Iterator[Host]:
    yield Host()


def test_running_totals_go_on_between_windows(host: Host):
    """Three steps after the window, the counters tell of them; the modes do not."""
    rank = host.connect(DP)
    for number in range(1, 17):
        rank.step(number, STEP)
    labels = {"kernel": "gemm", "stream": "compute0"}
    assert host.find("argus_kernel_window_last_step") == [12]
    assert host.find("argus_kernel_mode_events", **labels) == [4]
    (launches,) = host.find("argus_kernel_launches_total", **labels)
    assert launches in (15, 16), "at most two seconds behind"


def test_only_published_pairs_have_totals_and_a_pair_that_returns_goes_on(host: Host):
    """The third pair of three is left out; once it is large, its counter begins with all that it did."""
    rank = host.connect(DP)
    for number in range(1, 14):
        rank.step(number, STEP)
    softmax = {"kernel": "softmax", "stream": "compute0"}
    assert host.find("argus_kernel_launches_total", **softmax) == []
    grown = STEP.copy()
    grown["duration_ns"][2] = 1000
    for number in range(14, 26):
        rank.step(number, grown)
    (launches,) = host.find("argus_kernel_launches_total", **softmax)
    assert launches >= 24


def test_collectives_that_ran_on_the_gpu_are_spans_of_a_phase(host: Host):
    """Their own source, the group of the communicator, in the words of the host's hooks."""
    rank = host.connect(DP)
    for number in range(1, 14):
        rank.step(number, STEP)
    phase = {"phase": "all_reduce", "kind": "comm", "group": "dp", "source": "kernel"}
    (count,) = host.find("argus_phase_duration_seconds_count", **phase)
    (seconds,) = host.find("argus_phase_duration_seconds_sum", **phase)
    assert count >= 12
    assert seconds == pytest.approx(300e-9 * count)
    assert host.find("argus_phase_window_max_seconds", phase="all_reduce") == [pytest.approx(300e-9)]
    assert host.find("argus_group_expected_ranks", group="dp") == [8]


def test_collectives_of_an_unknown_communicator_are_no_phase(host: Host):
    """Two dimensions could own it: a comparison with the wrong ranks would blame one of them."""
    rank = host.connect(Identity("job", 0, coordinates={"dp": 0, "tp": 0}, sizes={"dp": 4, "tp": 2}))
    for number in range(1, 14):
        rank.step(number, STEP)
    assert host.find("argus_phase_duration_seconds_count", source="kernel") == []
    assert host.find("argus_kernel_launches_total", stream="nccl0") != []


def test_host_side_spans_tell_the_communicator(host: Host):
    """The producer saw `all_reduce` on the tp group around the launches: the stream is tp's."""
    rank = host.connect(Identity("job", 0, coordinates={"dp": 1, "tp": 0}, sizes={"dp": 4, "tp": 2}))
    for number in range(1, 14):
        launch = number * SECOND + 600 - 200
        rank.span("all_reduce", "tp", launch - 50, launch + 50)
        rank.step(number, STEP)
    (count,) = host.find("argus_phase_duration_seconds_count", source="kernel", group="tp:dp1")
    assert count >= 12
    assert host.find("argus_kernel_launches_total", stream="nccl:tp") != []


def test_a_rank_known_by_its_kernels_alone_has_no_known_communicators(host: Host):
    """`libargus_cupti` knows no topology: until the training process connects, nothing is guessed."""
    rank = host.connect(DP, Attachment(frozenset((wire.Channel.KERNELS,)), os.getuid(), os.getpid()))
    for number in range(1, 14):
        rank.step(number, STEP)
    assert host.find("argus_phase_duration_seconds_count", source="kernel") == []
    rank = host.connect(DP)
    for number in range(14, 27):
        rank.step(number, STEP)
    (count,) = host.find("argus_phase_duration_seconds_count", source="kernel", group="dp")
    assert count >= 4


def test_issue_latencies_are_a_summary_of_the_last_window(host: Host):
    """Prefix sums over all windows, quantiles of the last."""
    rank = host.connect(DP)
    for number in range(1, 20):
        rank.step(number, STEP)
    comm = {"kernel_class": "comm"}
    (count,) = host.find("argus_issue_latency_seconds_count", **comm)
    assert count == 12
    assert host.find("argus_issue_latency_seconds_sum", **comm) == [pytest.approx(12 * 200e-9)]
    assert host.find("argus_issue_latency_seconds", quantile="0.5", **comm) == [pytest.approx(200e-9)]


def test_voids_of_a_rank_accumulate(host: Host):
    """Within a step the GPU idles 100 ns; between steps nearly a second, launched after the mark."""
    rank = host.connect(DP)
    for number in range(1, 20):
        rank.step(number, STEP)
    (minority,) = host.find("argus_void_seconds_total", void="minority")
    (inter_step,) = host.find("argus_void_seconds_total", void="inter_step")
    assert minority == pytest.approx(12 * 100e-9)
    # Three windows of four steps; when the GPU went idle before the first, nobody saw.
    assert inter_step == pytest.approx(11 * (1 - 910e-9))


def test_two_ranks_of_one_process_are_two_ranks(host: Host):
    """A process may run several ranks, each over a connection of its own: same pid, nothing shared."""
    pid = os.getpid()
    first, second = (host.connect(Identity("job", rank, pid=pid, world_size=2)) for rank in (0, 1))
    for number in range(1, 14):
        first.step(number, STEP)
        second.step(number, np.concatenate([STEP, STEP]))
    events = [host.find("argus_kernel_mode_events", rank=rank, kernel="gemm") for rank in ("0", "1")]
    assert events == [[4], [8]]


def test_one_rank_with_two_devices_publishes_both(host: Host):
    """A process that drives two GPUs without ranks of their own: streams say which one."""
    host.config = ExporterConfig(windows=CONFIG.windows)
    host.ranks.reconfigure(host.config)
    rank = host.connect(DP)
    other = STEP.copy()
    other["device"] = 1
    for number in range(1, 14):
        rank.step(number, np.concatenate([STEP, other]))
    streams = {
        dict(labels)["stream"] for name, labels in host.scrape() if name == "argus_kernel_mode_p50_seconds"
    }
    assert streams == {"compute0", "nccl:dp", "compute0:gpu1", "nccl:dp:gpu1"}


def test_a_restarted_exporter_publishes_the_next_whole_window():
    """Marks go on where they were; the window that the restart cut is left out."""
    before, after = Host(), Host()
    rank = before.connect(DP)
    for number in range(1, 11):
        rank.step(number, STEP)
    rank = after.connect(DP)
    after.now = 11.0
    seen = []
    for number in range(11, 24):
        rank.step(number, STEP)
        seen += [step for step in after.find("argus_kernel_window_last_step") if step not in seen]
    assert before.find("argus_kernel_window_last_step") == [8]
    assert seen == [16, 20]


def test_kernels_are_counted_once_across_windows(host: Host):
    """Kernels of 0.4 s straddle the marks: each window has those of its four steps."""
    rank = host.connect(DP)
    rng, published = np.random.default_rng(5), {}
    for number in range(1, 30):
        records = kernels(
            *((int(start), 4 * SECOND // 10, 1, 7) for start in rng.integers(0, SECOND // 2, 50))
        )
        rank.step(number, records)
        for step in host.find("argus_kernel_window_last_step"):
            published[step] = sum(host.find("argus_kernel_mode_events")) + sum(
                host.find("argus_kernel_tail_events")
            )
    assert published == dict.fromkeys((8, 12, 16, 20, 24, 28), 4 * 50)


def test_all_kernel_families_pass_the_strict_parsers(host: Host):
    """OpenMetrics by prometheus_client, the classic format by promtool."""
    rank = host.connect(DP)
    for number in range(1, 20):
        rank.step(number, STEP)
    runner = cast(CollectorRegistry, CollectorRunner(ALL_COLLECTORS, host.ranks))
    families = {family.name for family in parse_openmetrics(generate_openmetrics(runner).decode())}
    assert {"argus_issue_latency_seconds", "argus_void_seconds", "argus_kernel_launches"} <= families
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([promtool, "check", "metrics"], input=generate_latest(runner), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_kernels_are_of_the_group_whose_communicator_launched_them(host: Host):
    """Two groups on the stream of the computation, as NCCL tells: streams and phases of their own."""
    for number in (0, 1):
        memory = nccl_page.make()
        write_header(memory, state=1, table=7, communicators=2)
        write_communicator(memory, 0, hash=0xAB, rank=number, ranks=2, generation=1)
        write_communicator(memory, 1, hash=0xC0 + number, rank=0, ranks=4, generation=1)
        page = LivePage(PageReader(PageWriter().fd), Clock(0, 0), NcclPageReader(memory))
        at = Identity("job", number, 0, 0, 8, {"dp": 0, "tp": number}, {"dp": 4, "tp": 2})
        rank = host.connect(at, page=page)
    KernelGroups(host.ranks, lambda: host.now).tell()
    names = [[members.name(peer) for peer in (0, 1)] for members in rank.state.kernels.members.values()]
    assert names == [["rank 0", "rank 1"], ["rank 1", "dp1"]]
    step = kernels((0, 5, 1, 7), (600, 30, 2, 7), (700, 20, 2, 7))
    step["kilobytes"][1:] = [wire.launched_by(slot, 1, operations=2) for slot in (0, 1)]
    for number in range(1, 14):
        rank.step(number, step)
    phase = {"phase": "all_reduce", "kind": "comm", "source": "kernel", "rank": "1"}
    groups = {"tp:dp0": 3e-8, "dp:tp1": 2e-8}
    for group, seconds in groups.items():
        (count,) = host.find("argus_phase_duration_seconds_count", group=group, **phase)
        (total,) = host.find("argus_phase_duration_seconds_sum", group=group, **phase)
        assert total == pytest.approx(count * seconds)
        stream = f"nccl:{group[:2]}"
        assert sum(host.find("argus_kernel_launches_total", stream=stream, rank="1")) >= 12
