"""`argus-exporter budget`: counts what a real exporter publishes, and refuses fleets that cannot be."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from argus_core.catalogue import CATALOGUE
from argus_exporter.budget.forecast import forecast
from argus_exporter.budget.series import A_RANK, PER_JOB, Fleet, exported, of_family
from argus_exporter.cli import main
from argus_exporter.kernels.issue_latency import QUANTILES
from exporter.exporter_process import Rank, config, exporter, scrape, wait_for

MEASURED = ("argus_iteration_", "argus_phase_duration", "argus_phase_window", "argus_kernel_")
"""Families that are there whenever their channel is: their number must be exact."""
NOT_HERE = ("argus_iteration_seconds", "argus_iteration_gpu_seconds_total")
"""Of these: what is off, and what needs step marks on a GPU."""


def test_every_family_of_the_exporter_is_counted() -> None:
    """A new family in the catalogue must be put into the calculator."""
    assert set(A_RANK) | PER_JOB == {one.name for one in CATALOGUE if one.component == "exporter"}


def test_it_counts_what_a_real_exporter_publishes(tmp_path: Path) -> None:
    """Two ranks with phases and kernels: no family has more series than counted, the core as many."""
    with exporter(config(tmp_path / "exporter.sock")) as running:
        ranks = [Rank(tmp_path / "exporter.sock", number) for number in range(2)]

        def published() -> Counter[str]:
            for rank in ranks:
                for phase in ("forward", "backward", "optimizer"):
                    rank.iterate(seconds=0.02, kernels=60, phase=phase)
            return Counter(name for name, labels in scrape(running.url) if ("rank", "0") in labels)

        wait_for(lambda: published()["argus_kernel_mode_events"] > 0, "a kernel window", timeout_s=60)
        found = published()

    pairs = found["argus_kernel_duration_seconds_total"]
    fleet = Fleet(
        ranks=2,
        ranks_per_host=2,
        phases=3,
        groups=found["argus_group_expected_ranks"],
        pairs=pairs,
        modes=found["argus_kernel_mode_events"] / pairs,
        frames=0,
    )
    for family in CATALOGUE:
        if family.name not in A_RANK:
            continue
        counted = math.ceil(A_RANK[family.name](fleet))  # the first rank speaks for its host
        for name in family.sample_names:
            assert found[name] <= counted, name
            if name.startswith(MEASURED) and name not in NOT_HERE:
                assert found[name] == counted, name


def test_a_family_counts_each_of_its_samples() -> None:
    """A summary is a sum and a count for each label set."""
    [phases] = [one for one in CATALOGUE if one.name == "argus_phase_duration_seconds"]
    assert of_family(phases, Fleet(ranks=1, phases=12)) == 24


def test_a_summary_with_quantiles_counts_each_of_them() -> None:
    """Launch times of compute and comm: a sum, a count and three quantiles each."""
    [latency] = [one for one in CATALOGUE if one.quantiles]
    assert len(QUANTILES) == 3
    assert of_family(latency, Fleet(ranks=1)) == 10
    assert of_family(latency, Fleet(ranks=1, pairs=0)) == 0


def test_channels_that_are_off_cost_nothing() -> None:
    """No kernels: no kernel series, and nothing for the worker to write; no stacks: no frames."""
    found = exported(Fleet(ranks=100, pairs=0, frames=0))
    assert found["kernels"] == found["stacks"] == found["L3 worker"] == 0
    assert found["phases and iterations"] > 0


def test_twice_the_ranks_are_twice_the_series() -> None:
    one, two = (forecast(Fleet(ranks=ranks)) for ranks in (8_000, 16_000))
    assert two.series == pytest.approx(2 * one.series)
    assert two.samples_per_second == pytest.approx(2 * one.samples_per_second)
    assert two.memory_bytes > 1.9 * one.memory_bytes


def test_the_table_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    """What people read: sources, their sum, memory."""
    assert main(["budget", "--ranks", "10000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[-1].replace(",", "")) for line in lines[1:8]]
    assert sum(counts[:-1]) == pytest.approx(counts[-1], abs=len(counts))
    assert any(line.startswith("memory of Prometheus") and line.endswith("GiB") for line in lines)


def test_json_is_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--ranks", "1024", "--pairs", "0", "--replicas", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["series"] == pytest.approx(sum(found["sources"].values()))
    assert found["servers"] == 1


def test_too_many_ranks_are_told_to_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--ranks", "100000"]) == 0
    assert "spread the jobs over" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ranks", "0"], "ranks is 0; allowed: 1 or more"),
        (["--ranks", "8", "--pairs", "-1"], "pairs is -1; allowed: 0 or more"),
        (["--ranks", "8", "--scrape-seconds", "0"], "scrape_seconds is 0.0; allowed: a number above 0"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["budget", *arguments]) == 2
    assert complaint in capsys.readouterr().err
