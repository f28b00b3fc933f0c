"""ArgusL3WorkerBehind is about no job, so it has its cases here and not in the matrix."""

from __future__ import annotations

import pytest

from rules.scenario import STEP, STORIES, Scenario

pytestmark = STORIES
SAMPLES = 60
AT = 56
"""The sample at which is asked: 14m."""
LAST = "argus_l3_last_success_timestamp_seconds"


def successes(*, until: int = SAMPLES, missing: range = range(0), samples: int = SAMPLES) -> str:
    """A cycle each minute succeeds until a sample; some samples are missing."""
    shown = [
        "_" if sample in missing else str(min(sample, until) // 4 * 4 * STEP) for sample in range(samples)
    ]
    return " ".join(shown)


@pytest.mark.parametrize(
    ("replicas", "fires"),
    [
        pytest.param([successes(until=32)], True, id="no success for five minutes and more"),
        pytest.param([successes(until=36)], False, id="five minutes are the limit"),
        pytest.param([successes()], False, id="each minute"),
        pytest.param([successes(missing=range(33, SAMPLES))], True, id="gone for six minutes: looked up"),
        pytest.param([successes(missing=range(48, 54))], False, id="a gap of a minute and a half"),
        pytest.param([successes(missing=range(30, 50))], False, id="a restart, and success again"),
        pytest.param([successes(until=20), successes()], False, id="one of two replicas is behind"),
        pytest.param([successes(until=20), successes(until=24)], True, id="both replicas are behind"),
        pytest.param([], False, id="never there"),
    ],
)
def test_worker_behind(replicas: list[str], fires: bool) -> None:
    """The last success of any replica counts, also when its series is gone."""
    job = Scenario(("job",))
    job.ranks(range(2), SAMPLES)
    for index, values in enumerate(replicas):
        job.inputs.append({"series": f'{LAST}{{replica="{index}"}}', "values": values})
    alert = 'ALERTS{alertname="ArgusL3WorkerBehind", alertstate="firing"}'
    job.expect(f"count({alert})", f"{AT * STEP}s", {"{}": 1} if fires else {})
    job.run()


@pytest.mark.parametrize("ends", [SAMPLES, 40])
def test_only_while_a_job_runs(ends: int) -> None:
    """Nobody misses the worker after the last job; two scrapers of its page change nothing."""
    job = Scenario(("job",))
    job.add("argus_rank_up", f"1x{ends - 1} stale", rank=0)
    for prometheus in ("a", "b"):
        job.inputs.append({"series": f'{LAST}{{prometheus="{prometheus}"}}', "values": successes(until=20)})
    alert = 'ALERTS{alertname="ArgusL3WorkerBehind", alertstate="firing"}'
    job.expect(f"count({alert})", f"{AT * STEP}s", {"{}": 1} if ends == SAMPLES else {})
    job.run()


def test_a_worker_that_died_is_missed_for_as_long_as_the_job_runs() -> None:
    """Its last success was looked for an hour back, so the alert resolved while the worker was dead."""
    samples = 5 * 3600 // STEP
    job = Scenario(("job",))
    job.ranks(range(2), samples)
    job.inputs.append(
        {"series": LAST, "values": successes(until=20, missing=range(24, samples), samples=samples)}
    )
    alert = 'ALERTS{alertname="ArgusL3WorkerBehind", alertstate="firing"}'
    for hour in (1, 3, 5):
        job.expect(f"count({alert})", f"{hour}h", {"{}": 1})
    job.run()
