"""What a fleet publishes, against the catalogue and against a real exporter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from argus_core import catalogue
from argus_core.kernel_names import kernel_id
from argus_simulator.fleet.faults import FleetFault
from argus_simulator.fleet.play import Fleet, FleetPlan
from argus_simulator.fleet.ranks import Layout
from argus_simulator.fleet.series_blocks import Block
from exporter.exporter_process import Rank, Samples, config, exporter, scrape, wait_for

BEGAN = 1_800_000_000.0
LAYOUT = Layout(dp=4, tp=2, pp=2, ep=2)
TARGET = {"job", "instance"}


def fleet(*faults: FleetFault, **plan: object) -> Fleet:
    return Fleet(FleetPlan(LAYOUT, faults=faults, **plan), BEGAN)  # type: ignore[arg-type]


def series(job: Fleet, at: float) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Values by sample name and labels, without those that do not exist at that time."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for block, values in zip(job.blocks, job.sample(BEGAN + at), strict=True):
        for labels, value in zip(block.labels(), values.reshape(-1).tolist(), strict=True):
            if not np.isnan(value):
                key = frozenset((name, text) for name, text in labels if name != "__name__")
                assert key not in found.setdefault(block.name, {}), f"{block.name}{dict(key)} comes twice"
                found[block.name][key] = value
    return found


def of(values: dict[frozenset[tuple[str, str]], float], **labels: str) -> list[float]:
    return [value for key, value in values.items() if set(labels.items()) <= key]


def test_labels_are_those_of_the_catalogue() -> None:
    """Every family of the exporter that is there has exactly its labels, and those that a scrape adds."""
    seen = set()
    for block in fleet().blocks:
        family = catalogue.BY_NAME.get(block.family)
        if family is None:
            assert block.family in {"up"} or block.family.startswith(("process_", "scrape_")), block.family
            continue
        seen.add(family.name)
        names = {name for name, _ in next(block.labels())} - TARGET - {"__name__", "quantile"}
        assert set(family.labels) <= names <= set(family.labels) | set(family.optional_labels), block.name
        assert block.name in family.sample_names
        assert block.type == family.type
    of_exporter = {family.name for family in catalogue.CATALOGUE if family.component == "exporter"}
    # One sample a step comes by the exporter's own remote write, NCCL is asked about jobs that stand still,
    # and its plugin counts: all are switched off by default. No process of a fleet is stopped.
    of_nccl = {name for name in of_exporter if name.startswith("argus_nccl_")}
    assert of_exporter - seen == {catalogue.ITERATION_SECONDS.name, catalogue.RANK_STOPPED.name} | of_nccl


def test_a_real_exporter_publishes_the_same_labels(tmp_path: Path) -> None:
    """Whatever an exporter says of a rank that speaks to it, the fleet says with the same label names."""
    with exporter(config(tmp_path / "s")) as running:
        sizes = {"dp": 4, "tp": 2, "pp": 2}
        place = dict.fromkeys(sizes, 0)
        rank = Rank(tmp_path / "s", 0, coordinates=place, sizes=sizes, node="host", gpu_uuid="GPU-1")
        samples: Samples = {}

        def has_a_kernel_window() -> bool:
            rank.iterate(seconds=0.1, kernels=50)
            samples.update(scrape(running.url))
            return any(name == catalogue.KERNEL_MODE_P50.name for name, _ in samples)

        wait_for(has_a_kernel_window, "a kernel window", 30)
        rank.link.close(0)
    ours = {
        name: {frozenset(dict(key)) - TARGET - {"ep"} for key in values}
        for name, values in series(fleet(), 300.0).items()
    }
    of_the_rank = {(name, frozenset(dict(labels))) for name, labels in samples if "rank" in dict(labels)}
    assert {name for name, _ in of_the_rank} >= {"argus_rank_info", "argus_phase_duration_seconds_sum"}
    for name, labels in of_the_rank:
        assert labels in ours[name], name


def test_in_a_hang_the_flight_recorder_says_who_is_in_which_collective() -> None:
    """Not before. The rank that never leaves forward has completed what it has entered."""
    job = fleet(FleetFault("0", hang=True, onset=60.0))
    assert "argus_collective_operation_sequence" not in series(job, 60.0)
    found = series(job, 200.0)
    names = [f"argus_collective_{what}sequence" for what in ("", "operation_", "completed_")]
    entered, named, completed = (
        {(dict(key)["rank"], dict(key)["group"]): value for key, value in found[name].items()}
        for name in names
    )
    assert named == entered
    in_one = {place[0] for place in entered if completed[place] == entered[place] - 1}
    assert "0" not in in_one
    assert in_one
    assert {dict(key)["operation"] for key in found[names[1]]} <= {"all_reduce", "all_to_all", "coalesced"}


def test_kernel_modes_come_from_the_exporter_s_clustering() -> None:
    """A GEMM of two shapes has two modes of some spread, published together; shares are those of the top."""
    found = series(fleet(top_pairs=10), 200.0)
    gemm = kernel_id(
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)"
    )
    p50 = found["argus_kernel_mode_p50_seconds"]

    low, high = of(p50, kernel=gemm, rank="0", mode="0"), of(p50, kernel=gemm, rank="0", mode="1")
    assert high[0] / low[0] == pytest.approx(2.7, rel=0.05)
    assert p50.keys() == found["argus_kernel_mode_p99_seconds"].keys()
    assert p50.keys() == found["argus_kernel_mode_events"].keys()
    assert all(value > p50[key] for key, value in found["argus_kernel_mode_p99_seconds"].items())
    pairs = {(dict(key)["kernel"], dict(key)["stream"]) for key in p50 if ("rank", "0") in key}
    assert len(pairs) == 10
    [coverage] = of(found["argus_kernel_coverage_ratio"], rank="0")
    [cutoff] = of(found["argus_kernel_cutoff_ratio"], rank="0")
    assert 0.5 < coverage < 1
    assert 0 < cutoff < coverage / 10 + 0.1


def test_a_slow_kernel_is_slow_on_its_rank_alone() -> None:
    """Both quantiles move by the factor; the phase that holds it gets longer."""
    found = series(fleet(FleetFault("9", kernels="*flash_bwd*", factor=1.8)), 200.0)
    p50 = found["argus_kernel_mode_p50_seconds"]
    of_flash = {dict(key)["rank"]: value for key, value in p50.items() if "flash_bwd" in dict(key)["kernel"]}

    typical = float(np.median(list(of_flash.values())))
    assert of_flash.pop("9") == pytest.approx(1.8 * typical, rel=0.04)
    assert max(of_flash.values()) < 1.05 * typical


def test_kernel_totals_advance_with_every_step() -> None:
    """Not with the window alone: a rate over a minute would be 0 now and then."""
    job = fleet()
    before, after = (series(job, at)["argus_kernel_launches_total"] for at in (200.0, 205.0))
    assert all(after[key] > before[key] for key in after.keys() & before.keys())


def test_counters_never_fall() -> None:
    """From one sample to the next, whatever the faults."""
    job = fleet(FleetFault("1", gc=0.3, onset=20), FleetFault("2", phase="data", factor=3, onset=40))
    before = series(job, 15.0)
    for at in (30.0, 45.0, 100.0, 200.0):
        now = series(job, at)
        for name, values in now.items():
            if name.endswith(("_total", "_count", "_sum")):
                for key in values.keys() & before.get(name, {}).keys():
                    assert values[key] >= before[name][key], (name, dict(key))
        before = now


def test_a_silent_rank_ends_and_a_blind_channel_says_why() -> None:
    """The first has no series any more; the second keeps its phases and gives a reason."""
    job = fleet(FleetFault("1", silent=True, onset=100), FleetFault("2", blind="kernels", onset=100))
    before, after = series(job, 90.0), series(job, 120.0)

    assert of(before["argus_rank_up"], rank="1") == [1.0]
    assert not any(of(values, rank="1") for values in after.values())
    assert of(after["argus_channel_up"], rank="2", channel="kernels") == [0.0]
    assert of(after["argus_channel_info"], rank="2", channel="kernels", reason="cupti_taken") == [1.0]
    assert of(before["argus_kernel_mode_p50_seconds"], rank="2")
    assert not of(after["argus_kernel_mode_p50_seconds"], rank="2")
    assert of(after["argus_phase_duration_seconds_sum"], rank="2")


def test_channels_that_are_off_have_no_series() -> None:
    """They are down with the reason `disabled`."""
    found = series(fleet(channels=("phases",)), 200.0)
    assert "argus_kernel_mode_p50_seconds" not in found
    assert "argus_stack_samples_total" not in found
    assert len(of(found["argus_channel_info"], channel="kernels", reason="disabled")) == LAYOUT.ranks


def test_a_rank_has_about_250_series() -> None:
    """With 20 pairs, and without what the worker and the rules add."""
    found = series(fleet(), 200.0)
    count = sum(len(of(values, rank="5")) for values in found.values())
    assert 200 < count < 320
    [scraped] = of(found["scrape_samples_scraped"], instance="sim-host-0:9877")
    assert scraped == 0  # counted at the sample before, and there was none


def sizes(blocks: Iterable[Block]) -> int:
    return sum(block.size for block in blocks)


def test_a_hundred_thousand_ranks_fit() -> None:
    """Phases only: some 60 series a rank, computed as arrays."""
    layout = Layout.of_ranks(102_400, tp=8, pp=8, ep=1, ranks_per_host=8)
    job = Fleet(FleetPlan(layout, channels=("phases",)), BEGAN)

    values = job.sample(BEGAN + 20.0)

    assert sizes(job.blocks) > 5_000_000
    assert sum(value.size for value in values) == sizes(job.blocks)
