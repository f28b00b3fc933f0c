"""What can be turned does not grow unnoticed."""

from __future__ import annotations

from tools.knobs import SET_BY_ARGUS, knobs, ours

from argus_training.settings import TABLE

MOST = 96
"""Keys and variables in all. For one more somebody has to say who turns it, when and to what; what nobody
should turn is a `settings.constant`, or a constant beside its use, with its reason."""


def test_the_knobs_are_no_more_than_they_were() -> None:
    """`python -m tools.knobs` lists them."""
    assert ours() <= MOST


def test_what_several_places_share_counts_once() -> None:
    """How to reach a server is said in four places, and where traces are in two."""
    names = [name for names in knobs().values() for name in names]
    assert {name for name in names if names.count(name) > 1} == {"web.listen_address"}  # of two programs
    assert set(SET_BY_ARGUS) <= {variable.name for variable in TABLE}
