"""What the hardware of a named rank says, joined to what was found: it confirms, and accuses nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rules.promtool import Document, complaints, firing, needs_promtool, rules_of

pytestmark = needs_promtool
RULES = Path(__file__).resolve().parents[2] / "rules"
PAGE = Path(__file__).with_name("pages") / "dcgm-exporter.txt"
"""Two GPUs of host1: the first is hot, its power is braked, and its link has half of its lanes; the second
has fallen off the bus. In the form of dcgm-exporter 3.3 with its default counters and some that sites turn
on; written by hand."""
GPUS = ("GPU-6a3c1f0e-0b1d-4c55-9a0e-1f6f0a7f1c02", "GPU-b5a7d2c4-93f8-4be1-8e17-7c2f5d3e9a10")
SAMPLES = 70
"""Every 5 s: what decides is asked so often, and finds after three minutes."""
AT = "330s"
Series = list[dict[str, str]]
Expected = Mapping[str, float]


def series(metric: str, values: str, **labels: str) -> dict[str, str]:
    pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{metric}{{{pairs}}}", "values": values}


def page(spelling: str = "Hostname") -> Series:
    """As scraped from host1, whose exporter is asked by its address."""
    found = []
    for family in text_string_to_metric_families(PAGE.read_text()):
        for sample in family.samples:
            labels = {{"Hostname": spelling}.get(name, name): value for name, value in sample.labels.items()}
            # The parser ends names of counters in _total.
            name = (
                sample.name if sample.name.endswith("BANDWIDTH_TOTAL") else sample.name.removesuffix("_total")
            )
            found.append(series(name, f"{sample.value}x{SAMPLES}", instance="10.0.0.7:9400", **labels))
    return found


def job(name: str = "a", named: str = "2") -> Series:
    """Four ranks on two hosts; one of them is slow by evidence. The GPUs of host0 run at their clock."""
    found = []
    for rank in range(4):
        gpu = GPUS[rank - 2] if rank >= 2 else f"GPU-{rank}"
        who = {"training_job": name, "rank": str(rank)}
        found.append(series("argus_rank_up", f"1x{SAMPLES}", **who))
        found.append(series("argus_rank_info", f"1x{SAMPLES}", node=f"host{rank // 2}", gpu_uuid=gpu, **who))
    evidence = {"cause": "gpu-compute", "detector": "test", "phase": "forward", "group": "dp"}
    if named:
        who = {"training_job": name, "rank": named}
        found.append(series("rank:argus_evidence:lost_ratio", f"0.2x{SAMPLES}", **evidence, **who))
    return found


def neighbours() -> Series:
    clock = "DCGM_FI_DEV_SM_CLOCK"
    return [series(clock, f"1980x{SAMPLES}", UUID=f"GPU-{number}", Hostname="host0") for number in range(2)]


def told(inputs: Series, query: str, expected: Expected) -> str:
    """What promtool complains of."""
    listed = [{"labels": labels, "value": value} for labels, value in expected.items()]
    asked = {"promql_expr_test": [{"expr": query, "eval_time": AT, "exp_samples": listed}]}
    return complaints(_document(inputs, asked))


def _document(inputs: Series, asked: Mapping[str, Any]) -> Document:
    files = rules_of(RULES / f"argus.{name}.rules.yaml" for name in ("job", "decision", "hardware"))
    test = {"interval": "5s", "input_series": inputs, **asked}
    return {**files, "evaluation_interval": "5s", "tests": [test]}


FIELDS = "max by (rank, field) (rank:argus_hardware:current)"


@pytest.mark.parametrize("spelling", ["Hostname", "hostname"])
def test_what_a_page_of_dcgm_exporter_says_of_the_named_rank(spelling: str) -> None:
    """Of its GPU alone, but for the Xid of its neighbour; either spelling of its host."""
    said = {
        "sm_clock_megahertz": 810.0,
        "sm_clock_to_peers_ratio": 810 / 1980,
        "temperature_celsius": 87.0,
        "power_watts": 318.411,
        "throttle_reasons": 200.0,
        "throttled_by_hardware_slowdown": 1.0,
        "throttled_by_hardware_thermal": 1.0,
        "throttled_by_power_brake": 1.0,
        "last_xid": 0.0,
        "last_xid_on_host": 79.0,
        "ecc_double_bit_errors": 0.0,
        "uncorrectable_remapped_rows": 0.0,
        "row_remap_failure": 0.0,
        "pcie_link_generation": 5.0,
        "pcie_link_width": 8.0,
        "pcie_replays_per_second": 0.0,
        "nvlink_megabytes_per_second": 104112.0,
    }
    expected = {f'{{rank="2", field="{field}"}}': value for field, value in said.items()}
    assert not told(job() + page(spelling) + neighbours(), FIELDS, expected)


def test_the_newer_name_of_the_reasons_is_known() -> None:
    reasons = series("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f"4x{SAMPLES}", UUID=GPUS[0], Hostname="host1")
    said = {"throttle_reasons": 4.0, "throttled_by_power_cap": 1.0}
    expected = {f'{{rank="2", field="{field}"}}': value for field, value in said.items()}
    assert not told([*job(), reasons], FIELDS, expected)


def test_the_network_of_the_named_host() -> None:
    """node_exporter names its host by address."""
    metric = "node_infiniband_port_data_transmitted_bytes_total"
    hosts = [
        series(metric, f"0+{500 * (host + 1)}x{SAMPLES}", instance=f"host{host}:9100", device="mlx5_0")
        for host in range(2)
    ]
    query = "round(max by (rank, node, field) (rank:argus_hardware:current))"
    labels = '{rank="2", node="host1", field="nic_transmitted_bytes_per_second"}'
    assert not told(job() + hosts, query, {labels: 200})


def test_two_jobs_on_one_gpu_break_nothing() -> None:
    """One of them gets what the GPU says."""
    query = 'count by (field) (rank:argus_hardware:current{field=~"last_xid|last_xid_on_host"})'
    expected = {'{field="last_xid"}': 1, '{field="last_xid_on_host"}': 2}
    assert not told(job("a") + job("b") + page(), query, expected)


@pytest.mark.parametrize("named", ["", "2"])
def test_hardware_accuses_nobody(named: str) -> None:
    """A GPU in trouble whose rank is not named is not told; one without exporters is named all the same."""
    inputs = job(named=named) + (page() if not named else [])
    assert not told(inputs, "rank:argus_hardware:current", {})
    query = 'count(rank:argus_verdict:active{verdict="culprit"})'
    assert not told(inputs, query, {"{}": 1.0} if named else {})


def test_the_alert_says_it() -> None:
    """What is zero is left out."""
    document = _document(job() + page() + neighbours(), {})
    ((labels, annotations),) = firing(document, ["ArgusStragglerRank"], AT)
    assert (labels["rank"], labels["node"], labels["gpu_uuid"]) == ("2", "host1", GPUS[0])
    assert annotations["description"] == (
        "The job loses 20% of its time to it: 0.8 GPUs stand idle. Its hardware: last xid on host 79, "
        "nvlink megabytes per second 104.1k, pcie link generation 5, pcie link width 8, power watts 318.4, "
        "sm clock megahertz 810, sm clock to peers ratio 409.1m, temperature celsius 87, "
        "throttled by hardware slowdown, throttled by hardware thermal, throttled by power brake."
    )
