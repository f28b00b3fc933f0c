"""The ranks whose turn it is: the same on every host, the right share, each in its turn."""

from __future__ import annotations

import pytest

from argus_core.settings import SettingsError, from_mapping
from argus_exporter.traces.config import SamplingConfig, TracesConfig
from argus_exporter.traces.requests import RateLimit
from argus_exporter.traces.sampling import Sampler, is_chosen


def test_a_share_of_the_ranks_is_chosen_and_others_the_next_time() -> None:
    """1 % of 10,000 ranks, within five standard deviations of a fair draw."""
    chosen = [
        {rank for rank in range(10_000) if is_chosen(("job", rank), number, 0.01)} for number in range(20)
    ]
    assert all(50 < len(ranks) < 150 for ranks in chosen)
    assert len(set.union(*chosen)) > 1500
    assert {rank for rank in range(10_000) if is_chosen(("job", rank), 3, 0.01)} == chosen[3]
    assert all(is_chosen(("job", rank), 0, 1.0) for rank in range(1000))


def test_a_window_is_due_once_when_its_last_step_is_done() -> None:
    """Every 100 steps the first 4; the first one seen may have begun before us."""
    sampler = Sampler(SamplingConfig(every_steps=100, steps=4, ratio=1.0))
    due = {step: window for step in range(150, 420) if (window := sampler.due(("job", 0), step))}
    assert due == {203: (200, 203), 303: (300, 303), 403: (400, 403)}


def test_steps_may_jump_and_begin_anew() -> None:
    """A scrape between steps sees some only; a restarted job goes back."""
    sampler = Sampler(SamplingConfig(every_steps=100, steps=4, ratio=1.0))
    assert [sampler.due(("job", 0), step) for step in (150, 260, 280, 10, 120)] == [
        None,
        (200, 203),
        None,
        None,
        (100, 103),
    ]


def test_nothing_is_due_when_sampling_is_off() -> None:
    """The default."""
    sampler = Sampler(SamplingConfig())
    assert not any(sampler.due(("job", 0), step) for step in range(1000))


def test_the_rate_limit_refills_evenly() -> None:
    """60 a minute are one a second; what is more than the bucket holds takes all of it."""
    now = 0.0
    rate = RateLimit(60, lambda: now)
    assert rate.wait_s(60) == 0
    assert rate.wait_s(1) == pytest.approx(1.0)
    now = 1.0
    assert rate.wait_s(1) == 0
    assert rate.wait_s(200) == pytest.approx(60.0)
    now = 61.0
    assert rate.wait_s(200) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"ring": {"bytes": 1}}, "traces.ring.bytes is 1; allowed: 1048576 or more"),
        ({"ring": {"seconds": 1}}, "traces.ring.seconds is 1.0; allowed: 60 or more"),
        ({"outbox_bytes": 1}, "traces.outbox_bytes is 1"),
        ({"requests": {"per_minute": 90}}, "traces.requests.per_minute cannot be set, it is always 60"),
        ({"sampling": {"every_steps": 2}}, "traces.sampling.every_steps is 2; allowed: 0, or 4 or more"),
        ({"sampling": {"ratio": 0}}, "traces.sampling.ratio is 0.0"),
        ({"store": {"type": "s3"}}, "traces.store.bucket is ''"),
    ],
)
def test_a_wrong_setting_is_refused(content: dict[str, object], message: str) -> None:
    """With the key, the value and what is allowed."""
    with pytest.raises(SettingsError) as raised:
        from_mapping(TracesConfig, content, "argus.yaml", "traces.")
    assert message in str(raised.value)


def test_ranks_that_are_gone_are_forgotten() -> None:
    """A host sees thousands of jobs; one that comes back begins anew."""
    sampler = Sampler(SamplingConfig(every_steps=100, ratio=1.0))
    for number in range(3):
        sampler.due((f"job{number}", 0), 150)
    sampler.keep([("job2", 0)])
    assert list(sampler._seen) == [("job2", 0)]
    assert sampler.due(("job2", 0), 250) == (200, 203)
