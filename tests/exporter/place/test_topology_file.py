"""Topology from a file: who ranks are where their job does not say, or says wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.settings import SettingsError
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.place.topology import Group, Identity, group_along
from argus_exporter.place.topology_file import Topology, load_topology
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry

MEGATRON = "pretrain: {sizes: {tp: 2, pp: 2, dp: 4, ep: 2}}"


def topology(tmp_path: Path, text: str) -> Topology:
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    return load_topology(file)


def reported(job: str, rank: int, **extra: object) -> Identity:
    """What HELLO makes of a rank whose job tells nothing but its number."""
    return Identity(job, rank, coordinates={"dp": rank}, role="all", **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rank", "coordinates"),
    [
        (0, {"tp": 0, "dp": 0, "pp": 0, "ep": 0}),
        (1, {"tp": 1, "dp": 0, "pp": 0, "ep": 0}),
        (2, {"tp": 0, "dp": 1, "pp": 0, "ep": 1}),
        (7, {"tp": 1, "dp": 3, "pp": 0, "ep": 1}),
        (8, {"tp": 0, "dp": 0, "pp": 1, "ep": 0}),
        (15, {"tp": 1, "dp": 3, "pp": 1, "ep": 1}),
    ],
)
def test_sizes_place_ranks_in_megatrons_order(tmp_path: Path, rank: int, coordinates: dict[str, int]):
    """tp fastest, then dp, then pp; experts in consecutive blocks of dp."""
    placed = topology(tmp_path, MEGATRON).place(reported("pretrain", rank, world_size=16))
    assert placed.coordinates == coordinates
    assert placed.role == f"pp{coordinates['pp']}.tp{coordinates['tp']}"
    assert placed.sizes == {"tp": 2, "pp": 2, "dp": 4, "ep": 2}


def test_groups_follow_from_the_file(tmp_path: Path):
    """Every dimension, with the size of its group."""
    placed = topology(tmp_path, MEGATRON).place(reported("pretrain", 15))
    groups = {
        dimension: group_along(placed, dimension) for dimension in ("tp", "pp", "dp", "ep", "edp", "world")
    }
    assert groups == {
        "tp": Group("tp:dp3.pp1", 2),
        "pp": Group("pp:dp3.tp1", 2),
        "dp": Group("dp:pp1.tp1", 4),
        "ep": Group("ep:pp1.tp1.block1", 2),
        "edp": Group("edp:pp1.tp1.ep1", 2),
        "world": Group("world", 16),
    }


def test_context_parallel_ranks_count_as_data_parallel(tmp_path: Path):
    """They hold the same weights and reduce their gradients together."""
    placed = topology(tmp_path, "job: {sizes: {tp: 2, cp: 2, dp: 3}}").place(reported("job", 11))
    assert (placed.coordinates, placed.sizes) == (
        {"tp": 1, "dp": 5, "pp": 0, "cp": 1},
        {"tp": 2, "dp": 6, "pp": 1, "cp": 2},
    )
    assert group_along(placed, "cp") == Group("cp:pp0.tp1.block2", 2)
    assert group_along(placed, "dp") == Group("dp:pp0.tp1", 6)


def test_ranks_may_be_placed_one_by_one(tmp_path: Path):
    """Also as JSON; a group is as large as the coordinates reach."""
    ranks = {
        str(rank): {"dp": rank // 2, "tp": rank % 2, "role": f"tower{rank % 2}", "node": "n"}
        for rank in range(6)
    }
    placed = topology(tmp_path, json.dumps({"job": {"ranks": ranks}})).place(reported("job", 5))
    assert (placed.coordinates, placed.role, placed.node) == ({"dp": 2, "tp": 1}, "tower1", "n")
    assert group_along(placed, "dp") == Group("dp:tp1", 3)


def test_a_rank_that_is_placed_goes_before_the_sizes(tmp_path: Path):
    """Only what it names."""
    placed = topology(tmp_path, "job: {sizes: {tp: 2, dp: 2}, ranks: {3: {role: odd}}}").place(
        reported("job", 3)
    )
    assert (placed.coordinates, placed.role) == ({"tp": 1, "dp": 1, "pp": 0}, "odd")


def test_the_file_goes_before_the_environment_and_keeps_what_it_does_not_name(tmp_path: Path):
    """Coordinates from the file; the role that the job gave itself and its node stay."""
    told = Identity(
        "job", 1, world_size=4, coordinates={"dp": 1}, sizes={"dp": 4}, role="actor", node="gpu-1"
    )
    placed = topology(tmp_path, "job: {sizes: {tp: 2, dp: 2}}").place(told)
    assert (placed.coordinates["tp"], placed.role, placed.node) == (1, "actor", "gpu-1")


def test_a_job_that_the_file_does_not_name_stays_as_it_reported_itself(tmp_path: Path):
    """As without a file."""
    told = reported("other", 3)
    assert topology(tmp_path, MEGATRON).place(told) == told


def test_an_exact_name_goes_before_patterns_and_patterns_by_their_order(tmp_path: Path):
    """Schedulers add numbers to the names of jobs."""
    found = topology(
        tmp_path, "run-*: {sizes: {dp: 2}}\nrun-1*: {sizes: {dp: 4}}\nrun-12: {sizes: {dp: 8}}\n"
    )
    sizes = {job: found.place(reported(job, 0)).sizes["dp"] for job in ("run-12", "run-13")}
    assert sizes == {"run-12": 8, "run-13": 2}


def test_sizes_of_another_number_of_ranks_are_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The file is of an older run: wrong groups would compare what is not alike."""
    told = reported("pretrain", 0, world_size=8)
    assert topology(tmp_path, MEGATRON).place(told) == told
    assert "training_job=pretrain ranks_of_the_file=16 ranks_of_the_job=8" in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1", "the file must be a mapping"),
        ("job: 3", "job: a training job must be a mapping, not 3"),
        ("job: {}", "job: says nothing; give sizes"),
        (
            "job: {size: {dp: 1}}",
            r"job: unknown key size; did you mean sizes\? \(allowed here: sizes, ranks, model, backend\)",
        ),
        ("job: {sizes: {tp: 2}}", "job.sizes: dp is missing"),
        ("job: {sizes: {dp: 0}}", "job.sizes.dp is 0; allowed: a whole number of 1 or more"),
        ("job: {sizes: {dp: 6, ep: 4}}", "job.sizes.ep is 4; allowed: a divisor of the 6 ranks"),
        ("job: {ranks: {x: {dp: 1}}}", "job.ranks: 'x' is no rank"),
        ("job: {ranks: {1: {dp: -1}}}", "job.ranks.1.dp is -1; allowed: a whole number of 0 or more"),
        ("job: {ranks: {1: {roll: a}}}", r"unknown key roll; did you mean role\?"),
        ("job: {ranks: {1: {role: 7}}}", "job.ranks.1.role is 7; allowed: a text"),
        ("job: {sizes: {dp: 2}, ranks: {1: {dp: 2}}}", "job.ranks.1.dp is 2; allowed: 0 to 1, by sizes.dp"),
        ("a: [", "not valid YAML or JSON"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str):
    """File, key, value and what is allowed."""
    with pytest.raises(SettingsError, match=f"topology.yaml: .*{says}|topology.yaml: {says}"):
        topology(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path):
    """Not a topology without jobs."""
    with pytest.raises(SettingsError, match=r"absent\.yaml: cannot read the topology: No such file"):
        load_topology(tmp_path / "absent.yaml")


def test_a_job_of_the_file_says_what_it_trains(tmp_path: Path):
    """Model and backend alone are enough, and go before what the job said."""
    told = reported("pretrain-3", 0, world_size=16, model="from-environment", backend="torch")
    placed = topology(tmp_path, "pretrain-*: {model: llama-70b-8k}").place(told)
    assert placed.job_labels == {
        "training_job": "pretrain-3",
        "model": "llama-70b-8k",
        "backend": "torch",
        "world_size": "16",
    }
    assert reported("pretrain-3", 0).job_labels == {}


def test_the_file_stands_when_the_training_process_has_said_who_it_is(tmp_path: Path):
    """The first connection and every later one are placed by the file."""
    ranks = RankRegistry(ExporterConfig(), topology=topology(tmp_path, MEGATRON))
    for pid in (100, 101):
        attachment = Attachment(frozenset({wire.Channel.PHASES}), os.getuid(), pid)
        state = ranks.hello(reported("pretrain", 15, world_size=16), attachment)
        records.job_facts(state, wire.job_facts("llama", "megatron"))
        assert state.identity.coordinates == {"dp": 3, "tp": 1, "pp": 1, "ep": 1}
        assert state.identity.model == "llama"
