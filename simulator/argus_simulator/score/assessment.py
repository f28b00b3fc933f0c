"""A scenario that was played, live or in virtual time: what was delivered and what its series say, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from argus_simulator.score.baselines import named
from argus_simulator.score.claims import Claim, claims_of
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.judging import judge, judge_healthy
from argus_simulator.score.links import told_links
from argus_simulator.score.members import JobMembers
from argus_simulator.score.playing import Log
from argus_simulator.score.results import Result, result_of
from argus_simulator.score.scene import Scene
from argus_simulator.stack import Notification, Samples

_COST: Final = 'quantile_over_time(0.5, job:argus_lost:ratio{{training_job="{job}"}}[{window}s] @ {end:.3f})'


def assess(
    scene: Scene,
    log: Log,
    job: str,
    history_job: str,
    query: Callable[[str], Samples],
    delivered: Sequence[Notification],
    now: float,
    *,
    missed_scrapes: float = 0.0,
    missed_evaluations: float = 0.0,
) -> tuple[Result, list[Claim]]:
    """The line of a scenario, and what was said of its job.

    Args:
        job, history_job: names; the latter of the healthy run before, empty where there was none.
        query: an instant query at `now`, the Unix time of the judgement.
        delivered: until then.
    """
    truth, timeline = scene.truth, JobTimeline(log.start, log.end, log.step_ends)
    claims = claims_of(job, delivered, JobMembers(query, job, now - log.start))
    judgement = judge(truth, timeline, claims, scene.pace)
    if history_job:
        said = claims_of(history_job, delivered, lambda _: frozenset())
        judgement = judgement.after(judge_healthy(truth, log.history_start, log.start, said, scene.pace))
    onset = timeline.begins(scene.onset_step)
    faulty = [claim for claim in claims if onset <= claim.start < log.end]
    # Of its cost from the first message on: before that the means are still filling.
    told = min((claim.start for claim in faulty if claim.about_training), default=log.end)
    cost = _COST.format(job=job, window=max(1, round(log.end - told)), end=log.end)
    result = result_of(
        scene,
        log,
        judgement,
        missed_scrapes=missed_scrapes,
        missed_evaluations=missed_evaluations,
        baselines=named(query, job, onset, log.end - 1),
        first_right_s=min((c.start - onset for c in faulty if c.ranks & truth.culprits), default=None),
        links=told_links(query, job, faulty, onset, log.end - 1),
        cost=max((value for _, value in query(cost)), default=None) if told < log.end else None,
    )
    return result, claims
