"""What `rules` tells of jobs with one fault: the lab's producers, a real exporter's state, a Prometheus.

Virtual time: 20 minutes of a job take a second or two (the fast play).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from argus_core import catalogue
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.history import Series, record
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import Floats, Ints, Storage
from argus_simulator.lab.scenario import Scenario, load_scenario

pytestmark = pytest.mark.servers
RULES = sorted((Path(__file__).resolve().parents[2] / "rules").glob("*.yaml"))
BEGIN_MS = 1_700_000_000_000
STEP_S = 2.0
ONSET_S = 840.0
"""When the faults begin: a job's own spread is known after ten minutes."""
END_STEP = 720
LASTING_S = 2100.0

_FAULTS: Mapping[str, str] = {
    "healthy": "",
    "hiccup": 'mechanism: pause, ranks: [2], seconds: 8, phases: "*-forward", end_step: 421',
    "data": "mechanism: data, ranks: [2], seconds: 4, end_step: 421",
    "collective": "mechanism: pause, ranks: [2], seconds: 10, phases: dp-*, end_step: 421",
    "suspended": 'mechanism: pause, where: all, seconds: 600, phases: "*-forward", end_step: 421',
    "paused": 'mechanism: pause, ranks: [2], seconds: 75, phases: "*-forward", end_step: 421',
    "fast": f"mechanism: kernels, ranks: [2], factor: 1.8, end_step: {END_STEP}",
    "slight": f"mechanism: kernels, ranks: [1], factor: 1.15, end_step: {END_STEP}",
    "bursts": f"mechanism: kernels, ranks: [2], factor: 1.8, end_step: {END_STEP}, "
    "period_steps: 120, active_steps: 30",
    "late": f"mechanism: late, ranks: [3], seconds: 0.4, end_step: {END_STEP}",
    "all": f"mechanism: kernels, where: all, factor: 1.3, end_step: {END_STEP}",
    "hang": "mechanism: hang, ranks: [1]",
    "slow host, mesh": f"mechanism: late, ranks: [5], seconds: 1.2, end_step: {END_STEP}",
    "late, mesh": f'mechanism: late, ranks: [5], seconds: 1.2, phases: "dp-*", end_step: {END_STEP}',
}
FAULTS = {**_FAULTS, **{f"{job}, kernels": _FAULTS[job] for job in ("healthy", "hiccup", "fast")}}
"""The last ones have their kernels observed, too, which then are what is compared."""
_MESH = "topology: {dp: 4, tp: 4, ranks_per_host: 4}"


@dataclass(frozen=True)
class Told:
    """An alert, and when it fired: seconds after the onset."""

    alert: str
    severity: str
    rank: str
    cause: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Story:
    """What was told of a job, when its fault ended (seconds after the onset), and its longest iteration."""

    told: list[Told]
    fault_end_s: float
    longest_s: float


@pytest.fixture(scope="module")
def stories() -> Mapping[str, Story]:
    """By job."""
    ends, longest = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        with Storage(folder / "data") as storage:
            for job in FAULTS:
                history = record(_scenario(folder, job), job, BEGIN_MS * 1_000_000, LASTING_S)
                storage.write(history.series)
                ends[job] = _fault_end_s(history.series)
                each = [values for _, values in _of(history.series, catalogue.ITERATION_WINDOW_MAX.name)]
                windows = np.concatenate(each)
                longest[job] = windows[~np.isnan(windows)].max()  # staleness is a NaN that signals
            evaluator = Evaluator(storage, read_rules(RULES))
            evaluator.advance(BEGIN_MS, BEGIN_MS + round(LASTING_S * 1000))
            assert not evaluator.failures
            spells = [spell for spell in evaluator.spells() if spell.state == "firing"]
    found: dict[str, list[Told]] = {job: [] for job in FAULTS}
    for spell in spells:
        labels = dict(spell.labels)
        who = labels["alertname"], labels["severity"], labels.get("rank", ""), labels.get("cause", "")
        found[labels["training_job"]].append(
            Told(*who, _after_onset_s(spell.begin_ms), _after_onset_s(spell.end_ms))
        )
    return {job: Story(found[job], ends[job], longest[job]) for job in FAULTS}


def _scenario(folder: Path, job: str) -> Scenario:
    fault = FAULTS[job]
    signals = "kernels" if job.endswith("kernels") else "hooks"
    mesh = job.endswith("mesh")
    framework = ", framework: fsdp2" if mesh else ""
    lines = [
        f"step_seconds: {STEP_S}",
        _MESH if mesh else "topology: {dp: 4}",
        f"model: {{signals: {signals}{framework}}}",
    ]
    if fault:
        lines += ["faults:", f"  it: {{{fault}, onset_step: {round(ONSET_S / STEP_S)}}}"]
    file = folder / f"{job}.yaml"
    file.write_text("\n".join(lines) + "\n")
    return load_scenario(str(file), seed=1)


def _after_onset_s(at_ms: float) -> float:
    return (at_ms - BEGIN_MS) / 1000 - ONSET_S


def _fault_end_s(series: Series) -> float:
    """At the scrape that first saw the step after the last slow one."""
    times, steps = next(_of(series, catalogue.ITERATION_LAST_STEP.name))
    return _after_onset_s(int(times[np.searchsorted(steps, END_STEP)])) if steps[-1] >= END_STEP else np.inf


def _of(series: Series, name: str) -> Iterator[tuple[Ints, Floats]]:
    return (samples for labels, samples in series.items() if ("__name__", name) in labels)


def names_of(told: list[Told]) -> set[str]:
    """The ranks that were named, over all of a job's messages."""
    return {one.rank for one in told if one.rank}


@pytest.mark.parametrize(
    ("job", "seconds"), [("hiccup", 8), ("data", 4), ("collective", 10), ("suspended", 600), ("paused", 75)]
)
def test_the_pauses_are_in_the_samples(job: str, seconds: float, stories: Mapping[str, Story]) -> None:
    assert stories[job].longest_s >= seconds
    assert stories["healthy"].longest_s < 2 * STEP_S


@pytest.mark.parametrize(
    "job", ["healthy", "hiccup", "data", "collective", "healthy, kernels", "hiccup, kernels"]
)
def test_a_single_pause_tells_nothing(job: str, stories: Mapping[str, Story]) -> None:
    assert stories[job].told == []


def test_a_host_that_stands_still_longer_than_a_stall_is_named_while_it_does(
    stories: Mapping[str, Story],
) -> None:
    """Until the pause of 75 s ends, nothing tells it from a hang: the others have called what it has not."""
    (page,) = stories["paused"].told
    assert (page.alert, page.severity, page.rank) == ("ArgusTrainingStalled", "page", "2")
    assert page.begin_s >= 75
    assert page.end_s <= 95


def test_a_suspended_job_is_told_as_stalled_and_names_no_rank(stories: Mapping[str, Story]) -> None:
    """First as an info; a page comes after three minutes."""
    info, page = stories["suspended"].told
    assert (info.alert, info.severity, info.rank) == ("ArgusTrainingStalled", "info", "")
    assert info.begin_s <= 90
    assert page.begin_s >= 180
    assert (page.alert, page.severity, page.rank) == ("ArgusTrainingStalled", "page", "")
    assert page.end_s <= 630


@pytest.mark.parametrize(
    ("job", "rank"), [("fast", "2"), ("fast, kernels", "2"), ("bursts", "2"), ("slight", "1"), ("late", "3")]
)
def test_a_slow_rank_is_named_alone_with_its_cause(job: str, rank: str, stories: Mapping[str, Story]) -> None:
    assert names_of(stories[job].told) == {rank}
    assert {one.alert for one in stories[job].told} == {"ArgusStragglerRank"}
    assert {one.cause for one in stories[job].told} == {"gpu-compute"}


@pytest.mark.parametrize("job", ["late, mesh", "slow host, mesh"])
def test_who_is_kept_waiting_in_one_group_is_not_accused_of_being_late_to_another(
    job: str, stories: Mapping[str, Story]
) -> None:
    """One group of rank 5 waits for it, and so each of its members comes late to a group of its own.

    Slow within the forward, it keeps those of its tp group waiting, in part where Python does not see it.
    """
    assert names_of(stories[job].told) == {"5"}


@pytest.mark.parametrize("job", ["fast", "fast, kernels", "bursts", "slight", "late"])
def test_a_slow_rank_pages_once_and_until_the_end(job: str, stories: Mapping[str, Story]) -> None:
    """One page; resolved within 8 minutes of the fault's end, and not before."""
    (page,) = [one for one in stories[job].told if one.severity == "page"]
    assert stories[job].fault_end_s <= page.end_s <= stories[job].fault_end_s + 480


@pytest.mark.parametrize(("job", "most_s"), [("fast", 225), ("fast, kernels", 240)])
def test_a_rank_slower_by_1_8_is_told_within_a_minute_and_a_half(
    job: str, most_s: float, stories: Mapping[str, Story]
) -> None:
    """By kernels a scrape later: the exporter waits some seconds for the last records of a step."""
    first, page = stories[job].told
    assert (first.severity, page.severity) == ("info", "page")
    assert first.begin_s <= 90
    assert page.begin_s <= most_s


def test_a_rank_slower_by_1_15_is_named_within_five_minutes(stories: Mapping[str, Story]) -> None:
    assert stories["slight"].told[0].begin_s <= 300


def test_a_slowdown_of_all_ranks_pages_the_regression(stories: Mapping[str, Story]) -> None:
    assert {one.alert for one in stories["all"].told} == {"ArgusIterationRegression"}
    assert "page" in {one.severity for one in stories["all"].told}


def test_a_hang_names_the_rank_that_the_others_await(stories: Mapping[str, Story]) -> None:
    (page,) = stories["hang"].told
    assert (page.alert, page.severity, page.rank) == ("ArgusTrainingStalled", "page", "1")
    assert page.begin_s <= 150
