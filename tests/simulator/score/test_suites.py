"""What a suite plays."""

from __future__ import annotations

import pytest

from argus_core.settings import SettingsError
from argus_simulator.lab import shipped, variants
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import (
    held_out_rows,
    held_out_seeds,
    playables,
    rows,
)


def test_the_development_suite_plays_each_row_once_a_seed():
    """Faults and controls, but for the rows that are held out."""
    names = [playable.name for playable in playables("dev", [0])]
    assert sorted(names) == sorted(rows(held_out=False))
    assert not set(names) & set(held_out_rows())


def test_variants_take_turns_with_the_seeds():
    """As many seeds as a row has variants play all of them."""
    name = "faults/gpu-throttle"
    known = variants(name)
    played = [p for p in playables("dev", range(len(known))) if p.name == name]
    assert {(p.magnitude, p.topology) for p in played} == {(v.magnitude, v.topology) for v in known}


def test_one_scenario_is_played_in_all_variants():
    """By its full name or its last part."""
    assert playables("gpu-throttle", [7]) == playables("faults/gpu-throttle", [7])
    assert len(playables("gpu-throttle", [7])) == len(variants("faults/gpu-throttle"))


def test_words_choose_among_the_variants():
    """As a result's title has them."""
    (chosen,) = playables("gpu-throttle high dense", [7])
    assert (chosen.magnitude, chosen.topology) == ("high", "dense")
    assert len(playables("gpu-throttle high", [7])) == 4
    with pytest.raises(SettingsError, match="has no variant 'huge'; allowed: low dense, "):
        playables("gpu-throttle huge", [7])


def test_an_unknown_suite_is_refused_with_what_there_is():
    """Before a stack is started."""
    with pytest.raises(SettingsError, match=r"no such scenario.*faults/gpu-throttle"):
        playables("no-such-suite", [0])


def test_held_out_seeds_are_no_development_seeds():
    """They follow from the commit, and nobody can choose them."""
    assert held_out_seeds("a", 3) == held_out_seeds("a", 3)
    assert held_out_seeds("a", 3) != held_out_seeds("b", 3)
    assert min(held_out_seeds("a", 50)) >= 1000


def test_what_only_its_past_can_tell_has_a_past():
    """Faults of the whole job from its first step on; all others show in the job itself.

    And healthy jobs, or whoever has a past would be at fault: but for the short ones of a test.
    """
    with_history = {scene.playable.name for scene in map(Scene, playables("dev", [0])) if scene.has_history}
    assert {"faults/mask-64k", "faults/no-overlap", "faults/rl-colocation"} <= with_history
    assert {"controls/cpu-embedding", "controls/stage-barrier", "controls/vlm-shapes"} <= with_history
    assert not {"faults/gpu-throttle", "faults/edp-pcie-link", "controls/mixed-gpu"} & with_history
    assert not any(scene.has_history for scene in map(Scene, playables("smoke", [0])))


def test_time_is_compressed_alike():
    """A healthy step lasts as long, whatever the scenario says; steps and their onset stay."""
    for name in shipped():
        if name.startswith(("faults/", "controls/")):
            scene = Scene(playables(name, [0])[0])
            assert scene.scenario.step_seconds == pytest.approx(0.4)
            assert scene.steps >= max(300, scene.onset_step + 240)
