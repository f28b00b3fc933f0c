"""Phases of a job: faults are for those that it has, and each batch is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core import wire
from argus_core.errors import UserError
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.lab.scenario import Scenario, load_scenario
from argus_simulator.topology import Topology


def paused(folder: Path, phases: str) -> Scenario:
    file = folder / "job.yaml"
    fault = f"{{mechanism: pause, ranks: [1], seconds: 1, phases: '{phases}'}}"
    file.write_text(f"topology: {{dp: 4}}\nfaults:\n  it: {fault}\n")
    return load_scenario(str(file))


@pytest.mark.parametrize("phases", ["forward", "tp-*"])
def test_a_fault_that_meets_no_phase_is_refused_with_the_phases_there_are(
    phases: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="mlp-forward") as refused:
        paused(tmp_path, phases).job()
    assert phases in str(refused.value)


@pytest.mark.parametrize("phases", ["mlp-forward", "*-forward", "dp-*", "*"])
def test_a_fault_that_meets_a_phase_is_played(phases: str, tmp_path: Path) -> None:
    job = paused(tmp_path, phases).job()
    job.next_step()
    assert job.step == 1


def test_each_microbatch_has_a_batch_and_together_they_are_the_wait_for_data() -> None:
    """One after the other; pipelining asks for one and divides it."""
    for framework, count in (("megatron", 4), ("pipelining", 1)):
        model = ModelSettings(signals="hooks", framework=framework, microbatches=4)
        done = Job(JobShape(Topology(dp=2, tp=1, pp=2), 0.5, model), (), 0).next_step()
        for rank in range(4):
            spans = done.spans_of(rank)
            data = spans[spans["source"] == wire.Source.HOST]
            ends = data["start_ns"] + data["duration_ns"]
            assert len(data) == count
            assert (abs(data["start_ns"][1:].astype(int) - ends[:-1].astype(int)) <= 1).all()
            assert ends[-1] == done.data_end_ns[rank]
