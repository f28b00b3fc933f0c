"""What is read out of dumps of torch's flight recorder, as it documents them for NCCL and as gloo gives them.

The fields and types of NCCL's dumps are those of FlightRecorder.hpp, versions 2.4 to 2.10. Two were recorded
on an H100, by torch 2.11 and NCCL 2.28.9: rank 0 waits in an all-reduce that rank 1 has not called.
"""

from __future__ import annotations

import gzip
import json
import mmap
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from argus_core.shared_page import OPERATIONS, RECORDERS
from argus_training.flight_recorder import FlightRecorder, LastCollective, Status
from recorded.files import recorded

from .reader import until

Dump = dict[str, Any]


class Bindings:
    """torch's, with a recorder of NCCL's that has this to say."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.asked: list[Mapping[str, bool]] = []

    def _dump_nccl_trace_json(self, **asked: bool) -> bytes:
        self.asked.append(asked)
        said = self.dump if asked["includeCollectives"] else {**self.dump, "entries": []}
        return json.dumps(said).encode()


def entry(pg_id: int, name: str, operation: str, collective: int, op: int, **more: object) -> Dump:
    return {
        "record_id": op,
        "pg_id": pg_id,
        "process_group": [name, "default_pg"],
        "collective_seq_id": collective,
        "p2p_seq_id": 0,
        "op_id": op,
        "profiling_name": operation,
        "time_created_ns": 10**18 + op,
        "state": "scheduled",
        "is_p2p": False,
        "retired": False,
        **more,
    }


def dump(status: Mapping[int, tuple[int, int, int]], *entries: Dump) -> Dump:
    keys = [f"last_{what}_collective" for what in ("enqueued", "started", "completed")]
    said = {str(group): dict(zip(keys, map(str, numbers), strict=True)) for group, numbers in status.items()}
    return {"version": "2.10", "pg_config": {}, "pg_status": said, "entries": list(entries)}


def fails(error: Exception) -> None:
    raise AssertionError(error)


def read(said: Dump, names: Mapping[str, str]) -> dict[str, LastCollective]:
    recorder = FlightRecorder(Bindings(said), fails)
    recorder.list_entries({"cpu:gloo,cuda:nccl"})
    return recorder.last(recorder.status({"cpu:gloo,cuda:nccl"}), names)


def test_the_first_collective_that_has_not_ended_has_a_name_and_a_distance() -> None:
    """NCCL with timing on: of three that were launched the first runs."""
    entries = [
        entry(0, "0", f"nccl:{operation}", number, number + 5)
        for number, operation in enumerate(("all_reduce", "broadcast", "_all_gather_base"), start=41)
    ]
    found = read(dump({0: (43, 41, 40)}, *entries), {"0": "world"})
    assert found == {"world": LastCollective("all_reduce", not_started=2, not_completed=3)}


def test_without_starts_nothing_is_said_of_them() -> None:
    """gloo never says -1 otherwise, NCCL where its timing is off."""
    found = read(dump({0: (1, -1, -1)}, entry(0, "0", "nccl:all_reduce", 1, 1)), {"0": "world"})
    assert found == {"world": LastCollective("all_reduce", not_started=None, not_completed=1)}


def test_a_status_of_gloo_counts_transfers_which_are_no_collectives() -> None:
    """The last collective was call 9 of the group; 7 and 8 were transfers, and 6 is complete."""
    entries = [entry(3, "5", "gloo:all_reduce", 5, 6), entry(3, "5", "gloo:barrier", 6, 9)]
    assert read(dump({3: (9, -1, 6)}, *entries), {"5": "dp"})["dp"].not_completed == 1
    assert read(dump({3: (9, -1, 9)}, *entries), {"5": "dp"})["dp"].not_completed == 0
    assert read(dump({3: (10, -1, 9)}, *entries), {"5": "dp"}) == {}, "a transfer is under way"


def test_what_has_ended_is_complete_whatever_the_status_says() -> None:
    """Two threads of gloo's ended 5 and 6, and the slower one wrote last."""
    entries = [entry(0, "0", "gloo:all_reduce", number, number, retired=True) for number in (5, 6)]
    found = read(dump({0: (6, -1, 5)}, *entries), {"0": "world"})
    assert found["world"].not_completed == 0


def test_nccl_numbers_transfers_apart_so_a_group_with_one_is_left_out() -> None:
    """The status has the number of either, whichever came last."""
    entries = [
        entry(1, "1", "nccl:all_reduce", 4, 7),
        entry(1, "1", "nccl:send 0->1", 4, 8, is_p2p=True),
        entry(2, "2", "nccl:all_reduce", 4, 4),
    ]
    found = read(dump({1: (4, -1, 3), 2: (4, -1, 3)}, *entries), {"1": "pp", "2": "dp"})
    assert found.keys() == {"dp"}


def test_groups_of_one_name_count_together() -> None:
    """The first of all that has not ended names it; one that is not ours to count says nothing."""
    entries = [
        entry(0, "0", "nccl:broadcast", 9, 20),
        entry(1, "7", "nccl:all_reduce", 2, 10),
        entry(2, "8", "nccl:all_reduce", 2, 30),
    ]
    said = dump({0: (9, -1, 8), 1: (2, -1, 1), 2: (2, -1, 1)}, *entries)
    found = read(said, {"0": "world", "7": "world"})
    assert found == {"world": LastCollective("all_reduce", not_started=None, not_completed=2)}


def test_what_was_listed_is_void_once_the_group_has_gone_on() -> None:
    bindings = Bindings(dump({0: (3, -1, 2)}, entry(0, "0", "nccl:all_reduce", 3, 3)))
    recorder = FlightRecorder(bindings, fails)
    recorder.list_entries({"nccl"})
    bindings.dump = dump({0: (4, -1, 3)})
    assert recorder.last(recorder.status({"nccl"}), {"0": "world"}) == {}


def test_only_a_status_is_read_until_entries_are_asked_for() -> None:
    """And of entries only those under way."""
    bindings = Bindings(dump({0: (3, 2, 1)}))
    recorder = FlightRecorder(bindings, fails)
    assert recorder.status({"nccl"}) == {("nccl", 0): Status(3, 2, 1)}
    assert bindings.asked == [{"includeCollectives": False}]
    recorder.list_entries({"nccl"})
    assert bindings.asked[1:] == [{"includeCollectives": True, "onlyActive": True}]


def test_backends_that_are_not_there_are_not_asked() -> None:
    bindings = Bindings(dump({}))
    assert FlightRecorder(bindings, fails).status({"gloo", "mpi"}) == {}
    assert bindings.asked == []


@pytest.mark.parametrize(
    "said", [{"pg_status": {"0": {"last_enqueued_collective": "many"}}}, {"entries": [{}]}]
)
def test_a_dump_of_another_form_is_told_once_and_not_read_again(said: Dump) -> None:
    bindings, told = Bindings(said), []
    recorder = FlightRecorder(bindings, told.append)
    for _ in range(3):
        recorder.status({"nccl"})
        recorder.list_entries({"nccl"})
    assert len(told) == 1


def recorded_dump(rank: int, *, only_active: bool) -> Dump:
    """As torch lists it: `onlyActive` leaves out what has ended."""
    said: Dump = json.loads(recorded(f"flight-recorder.{rank}.json"))
    entries = [one for one in said["entries"] if not (only_active and one["time_discovered_completed_ns"])]
    return said | {"entries": entries}


@pytest.mark.parametrize("only_active", [True, False])
def test_a_rank_of_a_recorded_hang_waits_in_its_last_all_reduce(*, only_active: bool) -> None:
    """Its 46th collective of 46; torch without timing knows no starts."""
    said = recorded_dump(0, only_active=only_active)
    recorder = FlightRecorder(Bindings(said), fails)
    assert recorder.status({"nccl"}) == {("nccl", 0): Status(enqueued=46, started=-1, completed=45)}
    assert read(said, {"0": "world"}) == {
        "world": LastCollective("all_reduce", not_started=None, not_completed=1)
    }


def test_the_rank_that_a_recorded_hang_waits_for_has_ended_all() -> None:
    """45, and nothing under way: torch lists no entry then, so the last one's name is not known."""
    said = recorded_dump(1, only_active=True)
    recorder = FlightRecorder(Bindings(said), fails)
    assert recorder.status({"nccl"}) == {("nccl", 0): Status(enqueued=45, started=-1, completed=45)}
    assert said["entries"] == []
    assert read(said, {"0": "world"}) == {}
    assert read(recorded_dump(1, only_active=False), {"0": "world"}) == {
        "world": LastCollective("all_reduce", not_started=None, not_completed=0)
    }


def test_entries_that_are_made_up_have_the_members_of_recorded_ones() -> None:
    made_up = entry(0, "0", "nccl:all_reduce", 1, 1)
    (one,) = recorded_dump(0, only_active=True)["entries"]
    assert {name: type(value) for name, value in made_up.items()}.items() <= {
        name: type(value) for name, value in one.items()
    }.items()
    assert (
        dump({0: (1, -1, 0)})["pg_status"]["0"].keys()
        == json.loads(recorded("flight-recorder.0.json"))["pg_status"]["0"].keys()
    )


def unpacked(dumps: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: json.loads(gzip.decompress(packed)) for name, packed in dumps.items()}


def test_a_dump_is_what_torch_says_of_all_collectives_ended_ones_too() -> None:
    said = recorded_dump(1, only_active=False)
    bindings = Bindings(said)
    assert unpacked(FlightRecorder(bindings, fails).dump({"nccl"})) == {"nccl": said}
    assert bindings.asked == [{"includeCollectives": True, "onlyActive": False}]


@pytest.mark.parametrize("entries", [{}, {"entries": []}])
def test_a_recorder_without_entries_leaves_no_dump(entries: Dump) -> None:
    """As one that is switched off: torch then says the rest."""
    off = {"version": "2.10", "pg_config": {}, "pg_status": {}} | entries
    bindings = SimpleNamespace(_dump_nccl_trace_json=lambda **_: json.dumps(off).encode())
    assert FlightRecorder(bindings, fails).dump({"nccl"}) == {}
    assert FlightRecorder(SimpleNamespace(), fails).dump({"nccl"}) == {}, "a torch that has none"


def test_each_backend_of_torch_2_15_has_a_dump() -> None:
    """NCCL is recorded by a hook, and beside it by its own function where the old backend is used."""

    def plain(*, backend: str = "gloo", **_: bool) -> bytes:
        """_dump_fr_trace_json(includeCollectives: bool, onlyActive: bool, backend: str)"""
        return json.dumps({"entries": [{"profiling_name": f"{backend}:all_reduce"}]}).encode()

    bindings = SimpleNamespace(
        _dump_fr_trace_json=plain, _dump_nccl_trace_json=Bindings(dump({}))._dump_nccl_trace_json
    )
    found = unpacked(FlightRecorder(bindings, fails).dump({"cpu:gloo,cuda:nccl"}))
    assert {name: said["entries"][0]["profiling_name"] for name, said in found.items()} == {
        "gloo": "gloo:all_reduce",
        "nccl2": "nccl2:all_reduce",
    }
    assert found.keys() <= set(RECORDERS)


def test_a_recorder_that_fails_leaves_the_dumps_of_others() -> None:
    def broken(**_: object) -> bytes:
        raise RuntimeError("no such recorder")

    told: list[Exception] = []
    said = recorded_dump(0, only_active=False)
    bindings = SimpleNamespace(
        _dump_fr_trace_json=broken, _dump_nccl_trace_json=Bindings(said)._dump_nccl_trace_json
    )
    assert unpacked(FlightRecorder(bindings, told.append).dump({"cpu:gloo,cuda:nccl"})) == {"nccl": said}
    assert len(told) == 1


# torch's own


@pytest.fixture
def gloo() -> Iterator[Any]:
    """The bindings of this process's torch, in a group of one that has called two collectives."""
    torch = pytest.importorskip("torch")
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    distributed.all_reduce(torch.ones(1))
    distributed.barrier()
    yield torch._C._distributed_c10d
    distributed.destroy_process_group()


def last_of_gloo(recorder: FlightRecorder) -> LastCollective:
    """Once gloo's own threads, which write it after the caller has gone on, say that all has ended."""
    found: list[LastCollective] = []

    def ended() -> bool:
        recorder.list_entries({"gloo"})
        found.extend(recorder.last(recorder.status({"gloo"}), {"0": "world"}).values())
        return found[-1].not_completed == 0

    until(ended, "both collectives have ended")
    return found[-1]


@pytest.mark.torch
def test_torch_lists_the_same_by_its_control_plane_and_by_its_function(gloo: Any) -> None:
    """The first gives the GIL back meanwhile; where there is no handler, the second does."""
    by_function = SimpleNamespace(_dump_fr_trace_json=gloo._dump_fr_trace_json)
    for bindings in (gloo, by_function):
        assert unpacked(FlightRecorder(bindings, fails).dump({"gloo"}))["gloo"]["entries"]
        last = last_of_gloo(FlightRecorder(bindings, fails))
        assert (last.operation, last.not_started) == ("barrier", None)


class Refusing(SimpleNamespace):
    """Bindings whose control plane has a handler that fails, as where it wants parameters."""

    @staticmethod
    def _get_handler(_name: str) -> Any:
        def handler(*_: object) -> None:
            raise RuntimeError("Unable to cast Python instance to C++ type")

        return handler


@pytest.mark.torch
def test_a_handler_that_fails_leaves_it_to_the_function(gloo: Any) -> None:
    bindings = Refusing(
        _dump_fr_trace_json=gloo._dump_fr_trace_json, _Request=gloo._Request, _Response=gloo._Response
    )
    assert last_of_gloo(FlightRecorder(bindings, fails)).operation == "barrier"


@pytest.mark.torch
def test_every_collective_of_gloo_s_has_a_name_of_ours() -> None:
    """Others would be called `other`, and two of them would look alike."""
    torch = pytest.importorskip("torch")
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        named = {found.decode() for found in re.findall(rb"\0gloo:(\w+)\0", text)}
    assert {"all_reduce", "barrier"} <= named
    assert named - {"send", "recv", "recvAnySource"} <= set(OPERATIONS)
