"""Ranks from the environments of three launchers, and where a rank sits in the parallel layout."""

from __future__ import annotations

import socket

import pytest

from argus_core import wire
from argus_training.identity import (
    Layout,
    NoRank,
    Place,
    hello,
    layout,
    place,
    script_name,
    training_job,
)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, Place("torchrun", 5, 1, 8)),
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "4"}, Place("slurm", 3, 3, 4)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "4",
            },
            Place("openmpi", 2, 0, 4),
        ),
        ({"RANK": "9", "SLURM_PROCID": "1"}, Place("torchrun", 9, -1, -1)),
    ],
    ids=["torchrun", "slurm", "openmpi", "torchrun under slurm"],
)
def test_place_comes_from_the_launcher(environment: dict[str, str], expected: Place) -> None:
    """Each launcher's own variables; torchrun's are the finer ones under Slurm; what is missing is -1."""
    assert place(environment) == expected


@pytest.mark.parametrize("environment", [{}, {"RANK": ""}, {"RANK": "x"}, {"LOCAL_RANK": "0"}])
def test_no_rank_is_an_error(environment: dict[str, str]) -> None:
    """A process without a rank number is no rank."""
    with pytest.raises(NoRank, match="none of RANK"):
        place(environment)


def test_layout_follows_megatron_order() -> None:
    """tp=2, pp=2 of 8 ranks: tp fastest, then dp, then pp."""
    parallel = layout("tp=2,pp=2", 8)
    assert parallel.sizes == {"tp": 2, "pp": 2, "dp": 2}
    assert parallel.coordinates(0) == {"tp": 0, "dp": 0, "pp": 0}
    assert parallel.coordinates(3) == {"tp": 1, "dp": 1, "pp": 0}
    assert parallel.coordinates(4) == {"tp": 0, "dp": 0, "pp": 1}


def test_expert_parallel_splits_dp_into_blocks() -> None:
    """ep=2 of dp=4: consecutive data-parallel ranks hold one set of experts."""
    parallel = layout("ep=2", 4)
    assert [parallel.coordinates(rank)["ep"] for rank in range(4)] == [0, 1, 0, 1]


def test_no_layout_is_no_coordinates() -> None:
    """Nothing told, nothing claimed."""
    assert layout("", 8) == Layout()
    assert Layout().coordinates(3) == {}


@pytest.mark.parametrize("text", ["tp=3", "tp=0", "cp=3", "dp=2,sp=4", "tp", "tp=2,dp=8", "ep=3"])
def test_layout_that_does_not_fit_is_refused(text: str) -> None:
    """Wrong sizes would put ranks into wrong groups silently."""
    with pytest.raises(ValueError, match="ARGUS_PARALLEL"):
        layout(text, 8)


@pytest.mark.parametrize(
    ("named", "environment", "expected"),
    [
        ("mine", {"SLURM_JOB_NAME": "slurm"}, "mine"),
        ("", {"SLURM_JOB_NAME": "slurm", "TORCHELASTIC_RUN_ID": "id"}, "slurm"),
        ("", {"TORCHELASTIC_RUN_ID": "gpt-7b"}, "gpt-7b"),
        ("", {"TORCHELASTIC_RUN_ID": "none"}, "train"),
        ("", {"TORCHELASTIC_RUN_ID": "f9eff5fb-c296-4861-a0f5-0e96b7395786"}, "train"),
        ("", {}, "train"),
    ],
)
def test_job_name(named: str, environment: dict[str, str], expected: str) -> None:
    """As told, else scheduler, else the launcher's id unless it made that up, else the script."""
    assert training_job(named, environment, ["/work/train.py", "--lr", "1"]) == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [(["a/b/train.py"], "train"), (["a/pkg/__main__.py"], "pkg"), (["-c"], ""), ([""], ""), ([], "")],
)
def test_script_name(argv: list[str], expected: str) -> None:
    """A package's name for `python -m`, nothing for `-c`."""
    assert script_name(argv) == expected


def test_the_host_may_be_named() -> None:
    """In a container the name of the machine is not its own: ARGUS_NODE says it."""
    place = Place("test", 0, 0, 1)
    assert wire.decode_text(hello(place, "job", Layout(), node="gpu-17").node) == "gpu-17"
    assert wire.decode_text(hello(place, "job", Layout()).node) == socket.gethostname()
