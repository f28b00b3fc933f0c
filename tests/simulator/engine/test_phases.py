"""Faults are for phases that the job has."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core.errors import UserError
from argus_simulator.lab.scenario import Scenario, load_scenario


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
