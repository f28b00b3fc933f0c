"""Scenarios that nobody has tuned to."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from argus_simulator.lab import shipped
from argus_simulator.score.held_out import derive
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import playables

CONTENT = yaml.safe_load("""
faults: {slow: {mechanism: kernels, where: rank, factor: 1.5, onset_step: 200}}
magnitudes:
  low: {faults: {slow: {factor: 1.2}}}
  mid: {faults: {slow: {factor: 1.5}}}
  high: {faults: {slow: {factor: 3.0}}}
topologies:
  moe: {topology: {dp: 8, ep: 4}}
  pipeline: {topology: {dp: 4, tp: 2, pp: 2}}
""")


@pytest.mark.parametrize(
    ("magnitude", "low", "high"), [("low", 1.2, 1.5), ("mid", 1.5, 3.0), ("high", 1.5, 3.0)]
)
def test_magnitudes_lie_between_those_of_the_file(magnitude: str, low: float, high: float):
    """Well inside: at neither end."""
    for seed in range(20):
        derived = derive(CONTENT, magnitude, "moe", np.random.default_rng(seed))
        assert low * 1.04 < derived["faults"]["slow"]["factor"] < high * 0.96
        assert derived["faults"]["slow"]["onset_step"] == 200


def test_topologies_have_more_replicas_than_any_file():
    """In whole expert groups; stages and tensor-parallel ranks stay, as the fault may lie in one of them."""
    random = np.random.default_rng(0)
    moe = [derive(CONTENT, "low", "moe", random)["topology"] for _ in range(20)]
    assert {at["dp"] for at in moe} == {12, 16}
    assert {at["ep"] for at in moe} == {4}
    pipeline = [derive(CONTENT, "low", "pipeline", random)["topology"] for _ in range(20)]
    assert {(at["dp"], at["tp"], at["pp"]) for at in pipeline} == {(6, 2, 2), (8, 2, 2)}


def test_every_row_can_be_held_out():
    """With gamma noise, and all ranks of its faults in the job."""
    scenes = [Scene(playable) for playable in playables("dev", [1234567], held_out=True)]
    rows = [name for name in shipped() if name.startswith(("faults/", "controls/"))]
    assert len(scenes) == len(rows)
    assert {scene.scenario.noise.family for scene in scenes} == {"gamma"}
    assert all(max(scene.truth.culprits, default=0) < scene.ranks <= 64 for scene in scenes)
