"""Series of the guilty rank's GPU and host, joined to its verdict."""

from __future__ import annotations

import pytest

from rules.scenario import STORIES, Scenario

pytestmark = STORIES


def straggling() -> Scenario:
    """Rank 2 of four is slow; every rank says which GPU and host it has."""
    job = Scenario(("job", "phases", "verdicts", "hardware"))
    job.ranks(range(4), 40)
    for rank in range(4):
        job.phase(rank, "forward", "0+4x40", f"0+{8 if rank == 2 else 4}x40")
        job.add("argus_rank_info", "1x40", rank=rank, node=f"host{rank // 2}", gpu_uuid=f"GPU-{rank}")
    return job


def hardware(job: Scenario, metric: str, values: str, **labels: object) -> None:
    pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    job.inputs.append({"series": f"{metric}{{{pairs}}}", "values": values})


@pytest.mark.parametrize("spelling", ["Hostname", "hostname"])
def test_clock_of_the_guilty_gpu_and_errors_on_its_host(spelling: str) -> None:
    """The clock of rank 2's GPU only, and the Xid of its neighbour; either spelling of its host."""
    job = straggling()
    for rank in range(4):
        labels = {"UUID": f"GPU-{rank}", spelling: f"host{rank // 2}", "instance": "10.0.0.7:9400"}
        hardware(job, "DCGM_FI_DEV_SM_CLOCK", f"{900 if rank == 2 else 1980}x40", **labels)
        hardware(job, "DCGM_FI_DEV_XID_ERRORS", f"{79 if rank == 3 else 0}x40", **labels)
    job.expect("max by (rank, gpu_uuid, node, field) (rank:argus_hardware:current)", "8m", {
        '{rank="2", gpu_uuid="GPU-2", field="sm_clock_megahertz"}': 900,
        '{rank="2", gpu_uuid="GPU-2", field="last_xid"}': 0,
        '{rank="2", node="host1", field="last_xid_on_host"}': 79,
    })  # fmt: skip
    job.run()


def test_network_of_the_guilty_host() -> None:
    """node_exporter names its host by address."""
    job = straggling()
    for host in range(2):
        hardware(
            job,
            "node_infiniband_port_data_transmitted_bytes_total",
            f"0+{1500 * (host + 1)}x40",
            instance=f"host{host}:9100",
            device="mlx5_0",
        )
    job.expect("round(max by (rank, node, field) (rank:argus_hardware:current))", "8m", {
        '{rank="2", node="host1", field="nic_transmitted_bytes_per_second"}': 200
    })  # fmt: skip
    job.run()


def test_without_hardware_exporters_there_is_nothing() -> None:
    """The verdict stands alone."""
    job = straggling()
    job.expect("rank:argus_hardware:current", "8m", {})
    job.expect('count(rank:argus_verdict:active{verdict="culprit"})', "8m", {"{}": 1})
    job.run()
