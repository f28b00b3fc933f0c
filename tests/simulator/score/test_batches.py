"""Which scenarios share a stack."""

from __future__ import annotations

import itertools

from argus_simulator.score.batches import Capacity, batches
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import playables

SCENES = [Scene(playable) for playable in playables("dev", [0])]


def test_every_scenario_is_in_one_batch():
    """None is lost, none is played twice."""
    played = [scene.name for batch in batches(SCENES, Capacity(8, 160)) for scene in batch]
    assert sorted(played) == sorted(scene.name for scene in SCENES)


def test_a_batch_is_what_the_machine_carries():
    """So many jobs, and so many ranks."""
    for batch in batches(SCENES, Capacity(8, 100)):
        assert len(batch) <= 8
        assert sum(scene.ranks for scene in batch) <= 100


def test_a_job_that_is_too_large_is_played_alone():
    """Rather than never."""
    assert all(len(batch) == 1 for batch in batches(SCENES, Capacity(8, 1)))


def test_long_scenarios_share_a_batch():
    """A batch lasts as long as its longest."""
    found = batches(SCENES, Capacity(8, 160))
    lengths = [
        (max(scene.all_seconds for scene in batch), min(scene.all_seconds for scene in batch))
        for batch in found
    ]
    assert all(least >= most for (_, least), (most, _) in itertools.pairwise(lengths))
