"""What becomes of alerts: pending, firing, kept, told or silenced."""

from __future__ import annotations

from pathlib import Path

from argus_simulator.fast_play.alerts import AlertState, Spell
from argus_simulator.fast_play.delivery import Delivery

SHIPPED = Path(__file__).resolve().parents[3] / "alertmanager" / "alertmanager.yaml"
LABELS = (("alertname", "A"),)


def states(alert: AlertState, found: str) -> str:
    """At evaluations 15 s apart, each of which finds the alert (x) or not: p(ending), f(iring) or nothing."""
    said = ""
    for number, one in enumerate(found):
        [state] = [
            state for _, state, _ in alert.evaluate(15_000 * number, {LABELS} if one == "x" else ())
        ] or ["."]
        said += state[0]
    return said


def test_an_alert_fires_after_its_for():
    """With `for: 30s`, two evaluations after the first; a gap begins anew."""
    assert states(AlertState(30_000, 0), "xx.xxxx.") == "pp.ppff."


def test_an_alert_that_fires_is_kept_and_a_pending_one_is_not():
    """`keep_firing_for: 30s` counts from the first evaluation that did not find it."""
    assert states(AlertState(15_000, 30_000), "x.xx....") == "p.pfff.."


def spell(name: str, severity: str, begin_s: int, end_s: int, **labels: str) -> Spell:
    every = {"alertname": name, "severity": severity, "training_job": "a", **labels}
    return Spell(tuple(sorted(every.items())), "firing", begin_s * 1000, end_s * 1000)


def told(*spells: Spell) -> list[tuple[str, str]]:
    """(alert, severity) of what the shipped configuration tells."""
    found = Delivery(SHIPPED).notifications(spells)
    return [(one.labels["alertname"], one.labels["severity"]) for one in found if one.status == "firing"]


def test_a_page_silences_what_says_the_same_more_quietly():
    """The ticket on the same rank; not the one on another."""
    page = spell("ArgusStragglerRank", "page", 0, 600, rank="3", team="operations")
    same = spell("ArgusStragglerRank", "ticket", 0, 600, rank="3", team="operations")
    other = spell("ArgusStragglerRank", "ticket", 0, 600, rank="4", team="operations")
    assert told(page, same) == [("ArgusStragglerRank", "page")]
    assert told(page, other) == [("ArgusStragglerRank", "page"), ("ArgusStragglerRank", "ticket")]


def test_what_began_before_the_page_has_been_told():
    """An info goes out at once, a ticket after a minute: by then the page has silenced it."""
    page = spell("ArgusStragglerRank", "page", 30, 600, rank="3", team="operations")
    before = [
        spell("ArgusStragglerRank", severity, 0, 600, rank="3", team="operations")
        for severity in ("info", "ticket")
    ]
    assert told(page, *before) == [("ArgusStragglerRank", "page"), ("ArgusStragglerRank", "info")]


def test_what_outlasts_the_page_is_told_afterwards():
    """Nothing silences it any more."""
    page = spell("ArgusStragglerRank", "page", 0, 600, rank="3", team="operations")
    ticket = spell("ArgusStragglerRank", "ticket", 0, 900, rank="3", team="operations")
    assert ("ArgusStragglerRank", "ticket") in told(page, ticket)


def test_pending_alerts_are_not_told():
    """Nobody hears of them."""
    pending = Spell(spell("ArgusStragglerRank", "page", 0, 600).labels, "pending", 0, 600_000)
    assert told(pending) == []
