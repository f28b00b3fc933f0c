"""The life of a rank over several connections: who speaks for it, when it leaves, when it is lost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

import pytest

from argus_core import wire
from argus_core.shared_page import PageWriter
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.names import NameTable, Texts
from argus_exporter.place.topology import Identity
from argus_exporter.ranks.channels import Attachment, channels_of
from argus_exporter.ranks.config import RanksConfig
from argus_exporter.ranks.live import adopt_page
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState

PHASES, KERNELS, STACKS = wire.Channel
ME = os.getuid()
TOLD = Identity("job", 0, world_size=8, coordinates={"dp": 0, "tp": 1}, sizes={"dp": 4, "tp": 2}, role="tp1")
PROVISIONAL = Identity("job", 0, coordinates={"dp": 0}, role="all")


def connection(*channels: wire.Channel, pid: int = 100, uid: int = ME) -> Attachment:
    return Attachment(frozenset(channels), uid, pid)


class Host:
    def __init__(self, **ranks: float) -> None:
        self.now = 1000.0
        self.ranks = RankRegistry(ExporterConfig(ranks=RanksConfig(**ranks)), clock=lambda: self.now)  # type: ignore[arg-type]

    def connect(self, attachment: Attachment, identity: Identity = TOLD) -> RankState:
        return self.ranks.hello(identity, attachment)

    def up(self) -> list[bool]:
        """Of the ranks that are published."""
        return [state.connected for state in self.ranks]


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.mark.parametrize("phases_first", [True, False])
def test_the_identity_that_came_with_phases_stands(host: Host, phases_first: bool):
    """libargus_cupti knows its rank but no topology, whichever of the two connects first."""
    pair = [(connection(PHASES), TOLD), (connection(KERNELS), PROVISIONAL)]
    for attachment, identity in pair if phases_first else reversed(pair):
        state = host.connect(attachment, identity)
    assert state.identity == TOLD


def test_kernels_alone_make_a_provisional_rank(host: Host):
    """Where Python is not attached, kernels are better than nothing."""
    assert host.connect(connection(KERNELS), PROVISIONAL).identity == PROVISIONAL
    assert host.up() == [True]


def test_a_rank_leaves_when_phases_say_bye_though_kernels_are_connected(host: Host):
    """The process ends; its libraries hang up when it is gone."""
    phases, kernels = connection(PHASES), connection(KERNELS)
    state = host.connect(phases)
    host.connect(kernels, PROVISIONAL)
    host.ranks.detach(state, phases, said_bye=True)
    assert host.up() == []
    host.ranks.detach(state, kernels, said_bye=False)
    assert len(host.ranks) == 0


def test_the_same_process_comes_back_after_bye_with_its_totals(host: Host):
    """It stopped reporting and began again; its kernels connection never ended."""
    phases = connection(PHASES)
    state = host.connect(phases)
    host.connect(connection(KERNELS), PROVISIONAL)
    host.ranks.detach(state, phases, said_bye=True)
    assert host.connect(connection(PHASES)) is state
    assert host.up() == [True]


def test_another_process_after_bye_is_a_new_rank(host: Host):
    """The next run of the job begins with empty totals, while the old process is still ending."""
    phases = connection(PHASES)
    state = host.connect(phases)
    host.connect(connection(KERNELS), PROVISIONAL)
    host.ranks.detach(state, phases, said_bye=True)
    assert host.connect(connection(PHASES, pid=200)) is not state
    assert not host.ranks.knows(state)


def test_a_dropped_kernels_connection_takes_its_channel_down_and_not_the_rank(host: Host):
    """With a reason; when it is back, the channel is up again."""
    state = host.connect(connection(PHASES))
    kernels = connection(KERNELS)
    host.connect(kernels, PROVISIONAL)
    host.ranks.detach(state, kernels, said_bye=False)
    assert host.up() == [True]
    assert (state.channel(KERNELS).up, state.channel(KERNELS).reason) == (False, "disconnected")
    host.connect(connection(KERNELS), PROVISIONAL)
    assert (state.channel(KERNELS).up, state.channel(KERNELS).reason) == (True, "")


def test_without_phases_the_rank_is_lost_though_another_connection_is_open(host: Host):
    """A forked child may have inherited it: it says nothing of the training process."""
    phases = connection(PHASES)
    state = host.connect(phases)
    host.connect(connection(KERNELS), PROVISIONAL)
    host.ranks.detach(state, phases, said_bye=False)
    assert host.up() == [False]


def test_a_new_process_that_came_before_the_old_one_went_keeps_the_rank():
    """A restart overlaps: neither the end nor the BYE of the old connection counts."""
    for said_bye in (True, False):
        host = Host()
        old = connection(PHASES)
        state = host.connect(old)
        host.connect(connection(PHASES, pid=200))
        host.ranks.detach(state, old, said_bye=said_bye)
        assert host.up() == [True]


def test_a_lost_rank_is_forgotten_after_its_time_and_not_before():
    """`ranks.forget_seconds`; connections that are left then speak for nobody."""
    host = Host(forget_seconds=300.0)
    phases = connection(PHASES)
    state = host.connect(phases)
    host.connect(connection(KERNELS), PROVISIONAL)
    host.ranks.detach(state, phases, said_bye=False)
    host.now += 299
    host.ranks.forget_lost()
    assert host.up() == [False]
    host.now += 1
    host.ranks.forget_lost()
    assert host.up() == []
    assert not host.ranks.knows(state)
    [gone] = host.ranks.departed
    assert (gone.identity, gone.at) == (state.identity, host.now)
    assert gone.how == "lost, and not back within 300 s"


def test_a_new_process_of_a_rank_begins_its_host_totals_anew(host: Host):
    """What the old process compiled is not what the new one did."""
    phases = connection(PHASES)
    state = host.connect(phases)
    records.garbage_collection(state, wire.GarbageCollection(1, 1, 5, 0.5, 2))
    host.ranks.detach(state, phases, said_bye=False)
    host.connect(connection(PHASES))
    assert set(state.host.collections) == {2}
    host.connect(connection(PHASES, pid=200))
    assert state.host.collections == {}


class Container:
    """Processes that the kernel names 0, as their PID namespace is another; each shares a page."""

    def __init__(self) -> None:
        self.host = Host()

    def connect(self, page: PageWriter, said_pid: int = 7) -> tuple[RankState, Attachment]:
        attachment = connection(PHASES, pid=0)
        hello = wire.hello(
            pid=said_pid, rank=0, training_job="job", shares_page=True, monotonic_ns=1, realtime_ns=1
        )
        adopted = adopt_page(hello, [os.dup(page.fd)])
        identity = dataclasses.replace(TOLD, pid=said_pid)
        return self.host.ranks.hello(identity, attachment, adopted), attachment


@pytest.mark.parametrize("said_pid", [7, 8])
@pytest.mark.parametrize("same_page", [True, False])
def test_a_process_without_a_number_is_told_by_its_own_and_its_memory(said_pid: int, same_page: bool):
    """A container that starts again has the same numbers inside; who reconnects shares the same page."""
    container, page = Container(), PageWriter()
    state, attachment = container.connect(page)
    records.garbage_collection(state, wire.GarbageCollection(1, 1, 5, 0.5, 2))
    container.host.ranks.detach(state, attachment, said_bye=False)
    container.connect(page if same_page else PageWriter(), said_pid)
    assert set(state.host.collections) == ({2} if same_page and said_pid == 7 else set())


@pytest.mark.parametrize("same_page", [True, False])
def test_a_process_without_a_number_after_bye(same_page: bool):
    """The rank goes on with the process that was there, and begins anew with another."""
    container, page = Container(), PageWriter()
    state, attachment = container.connect(page)
    container.host.connect(connection(KERNELS, pid=0), dataclasses.replace(PROVISIONAL, pid=7))
    container.host.ranks.detach(state, attachment, said_bye=True)
    again, _ = container.connect(page if same_page else PageWriter())
    assert (again is state) is same_page


def test_another_user_cannot_speak_for_a_connected_rank(host: Host):
    """Two users who name their jobs alike do not mix; root (a sampler, say) may join any rank."""
    host.connect(connection(PHASES, uid=5001))
    with pytest.raises(wire.WireError, match="rank 0 of job is connected as user 5001") as caught:
        host.connect(connection(PHASES, uid=5002))
    assert caught.value.reason == "rank_owner"
    host.connect(connection(STACKS, uid=0), PROVISIONAL)


def test_a_lost_rank_of_another_user_begins_anew(host: Host):
    """The name is free, the totals are not."""
    phases = connection(PHASES, uid=5001)
    state = host.connect(phases)
    host.ranks.detach(state, phases, said_bye=False)
    assert host.connect(connection(PHASES, uid=5002)) is not state


def test_there_is_a_limit_to_ranks():
    """A producer in a loop cannot fill the memory with ranks that it lost."""
    host = Host(limit=2)
    for number in range(2):
        host.connect(connection(PHASES), Identity("job", number))
    with pytest.raises(wire.WireError, match="2 ranks are here already, lost ones") as caught:
        host.connect(connection(PHASES), Identity("job", 2))
    assert caught.value.reason == "ranks_limit"


def names_of(*texts: str) -> NameTable:
    """A table that has bound these from number 0 on; "" is what number 0 is for good."""
    table = NameTable(Texts())
    for number, text in enumerate(texts):
        if text:
            table.bind(wire.Name(number, wire.encode_name(text)))
    return table


# Losses


def lost(state: RankState) -> dict[wire.Channel, int]:
    return {channel: totals.dropped["socket"] for channel, totals in state.channels.items() if totals.dropped}


@pytest.mark.parametrize(
    ("channels", "charged"),
    [((PHASES,), PHASES), ((KERNELS,), KERNELS), ((STACKS,), STACKS), ((KERNELS, PHASES), PHASES)],
)
def test_what_a_connection_loses_is_charged_to_its_channel(
    host: Host, channels: Iterable[wire.Channel], charged: wire.Channel
):
    """The packet does not say which records were lost, the connection does."""
    attachment = connection(*channels)
    state = host.connect(attachment)
    state.channels.sender_dropped(attachment, 7)
    state.channels.sender_dropped(attachment, 9)
    assert lost(state) == {charged: 9}


def test_a_reconnect_does_not_count_losses_again(host: Host):
    """The producer's total outlives its connection; a new process under the same pid begins at 0."""
    first, second = connection(PHASES), connection(PHASES)
    state = host.connect(first)
    state.channels.sender_dropped(first, 100)
    host.ranks.detach(state, first, said_bye=False)
    host.connect(second)
    state.channels.sender_dropped(second, 130)
    assert lost(state) == {PHASES: 130}
    state.channels.sender_dropped(second, 5)
    assert lost(state) == {PHASES: 135}


@pytest.mark.parametrize("mask", [0, 8, 0xFF])
def test_a_hello_without_a_channel_that_exists_is_refused(mask: int):
    """Nothing could be attributed to it."""
    with pytest.raises(wire.WireError, match="channel mask") as caught:
        channels_of(mask)
    assert caught.value.reason == "hello"


# Limits


def test_phases_say_whom_they_may_wait_for(host: Host):
    """Of each phase that was counted: as the producer said last, else nobody knows."""
    state = host.connect(connection(PHASES))

    names = names_of("", "forward", "backward", "data", "never")
    told = [(1, 0, wire.waits_mask(["tp"])), (1, 0, 0), (2, 0, wire.waits_mask(["tp", "dp"])), (4, 0, 0)]
    for one in told:
        records.phase_info(state, wire.PhaseInfo(*one), names)
    for phase, kind in ((1, 0), (2, 0), (3, 2)):
        records.spans(state, wire.Span(1, 1, 1, phase, 0, kind, 1, 0).pack(), names)
    assert state.phases.waits() == {
        ("forward", "compute"): "none",
        ("backward", "compute"): "dp,tp",
        ("data", "host"): "unknown",
    }
    records.phase_info(state, wire.PhaseInfo(1, 0, 0x40), names)
    assert state.phases.waits()["forward", "compute"] == "unknown"


def test_phases_count_what_lies_in_no_other_span(host: Host):
    """Sum and longest; what the 32-bit float on the wire rounds up is no time less than none."""
    state = host.connect(connection(PHASES))

    names = names_of("", "optimizer")
    for duration_ns, nested in ((2_493_000_000, 2.361), (300_000_001, 0.300000001)):
        record = wire.Span(1, duration_ns, 1, 1, 0, 0, 1, 0, nested_seconds=nested)
        records.spans(state, record.pack(), names)
    ((_, totals),) = state.phases.items()
    assert totals.count == 2
    assert totals.seconds == pytest.approx(0.132, abs=1e-6)
    assert totals.longest.value(0.0) == pytest.approx(0.132, abs=1e-6)


def test_a_layer_is_sampled_apart_from_phases(host: Host):
    """Its time without the waits within it, by kind and micro-batch; no phase hears of it."""
    state = host.connect(connection(PHASES))

    names = names_of("", "mlp")
    for index, microbatch, nested in ((3, 0, 0.0), (23, 0, 0.5), (3, 7, 0.25)):
        sample = wire.Layer(1, 10**9, 5, 1, nested, index, microbatch, wire.Source.EVENT)
        (record,) = wire.Layer.unpack_all(sample.pack())
        records.layer(state, record, names)
    found = {key: (totals.count, totals.seconds) for key, totals in state.layers.items()}
    assert found == {("mlp", 0): (2, 1.5), ("mlp", 7): (1, 0.75)}
    assert not state.phases


@pytest.mark.parametrize(("nested", "source"), [(-0.1, 0), (1.1, 0), (float("nan"), 0), (0.0, 9)])
def test_a_layer_that_cannot_be_is_refused(nested: float, source: int):
    """More of it in waits than there is, or a clock that nobody has."""
    state = Host().connect(connection(PHASES))

    names = names_of("", "mlp")
    with pytest.raises(wire.WireError, match="mlp"):
        records.layer(state, wire.Layer(1, 10**9, 5, 1, nested, 0, 0, source), names)


def test_distinct_units_compilers_and_phases_are_limited_and_the_rest_is_counted(host: Host):
    """Producers choose these names; each is a series."""
    attachment = connection(PHASES)
    state = host.connect(attachment)

    names = names_of(*(f"name{number}" for number in range(300)))
    for number in range(300):
        records.work(state, wire.Work(1.0, number), names)
        records.compilation(state, wire.Compilation(1, 1, 1, 1.0, number), names)
        records.spans(state, wire.Span(1, 1, 1, number, 0, 0, 1, 0).pack(), names)
        records.layer(state, wire.Layer(1, 1, 1, number // 2, 0.0, 0, number % 2, 1), names)
    assert (len(state.work), len(state.host.compilations), len(state.phases)) == (16, 16, 256)
    assert len(state.layers) == 32
    dropped = state.channel(PHASES).dropped
    assert (dropped["units_limit"], dropped["compilers_limit"], dropped["phases_limit"]) == (284, 284, 44)
    assert dropped["layers_limit"] == 268
