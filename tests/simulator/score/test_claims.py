"""From deliveries of Alertmanager to claims."""

from __future__ import annotations

from argus_simulator.score.claims import claims_of, incidents
from simulator.score.judged import JOB, ONSET, SLOW, members, said

RANK_3 = {**SLOW, "rank": "3"}


def test_what_is_repeated_is_one_claim():
    """Alertmanager sends a whole group again when one alert joins it."""
    claims = claims_of(JOB, [said(RANK_3), said(RANK_3), said(RANK_3, "info")], members)
    assert [(claim.severity, claim.ranks) for claim in claims] == [("info", {3}), ("page", {3})]


def test_what_ends_and_begins_again_is_two_claims():
    """Each with its own time."""
    claims = claims_of(
        JOB,
        [said(RANK_3, at=ONSET), said(RANK_3, at=ONSET, status="resolved"), said(RANK_3, at=ONSET + 9)],
        members,
    )
    assert [(claim.start - ONSET, claim.end - ONSET) for claim in claims] == [(0, 2), (9, float("inf"))]


def test_other_jobs_are_other_claims():
    """Jobs share one stack; their alerts do not mix, and alerts of no job are about none of them."""
    nobody = said({"alertname": "ArgusL3WorkerBehind", "team": "infrastructure"}, job="")
    assert claims_of(JOB, [said(RANK_3, job="job-2"), nobody], members) == []


def test_a_slow_link_accuses_the_members_of_its_group():
    """Together: no rank alone."""
    labels = {"alertname": "ArgusCollectiveSlowLink", "group": "tp:dp0.pp0", "cause": "link-slow"}
    (claim,) = claims_of(JOB, [said(labels)], members)
    assert (claim.ranks, claim.group) == ({0, 1, 2, 3}, True)


def test_overlapping_claims_are_one_incident():
    """Three alerts at once are one thing to the engineer; one much later is another."""
    delivered = [said({**SLOW, "rank": str(rank)}, at=ONSET + rank) for rank in range(3)]
    delivered += [said({**SLOW, "rank": str(rank)}, at=ONSET + rank, status="resolved") for rank in range(3)]
    delivered.append(said(RANK_3, at=ONSET + 60))
    found = incidents(claims_of(JOB, delivered, members), apart_s=10)
    assert [len(incident) for incident in found] == [3, 1]
