"""The metric catalogue keeps the promises that every consumer relies on."""

from __future__ import annotations

import re

import pytest

from argus_core.catalogue import CATALOGUE, RANK, Family


def ids(family: Family) -> str:
    return family.name


def test_names_are_unique():
    """Two families never share a name, nor the names of their samples."""
    names = [name for family in CATALOGUE for name in family.sample_names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", CATALOGUE, ids=ids)
def test_a_family_follows_the_prometheus_naming_rules(family: Family):
    """Prefix argus_, lower case, counters end in _total and only they do, durations are in seconds."""
    assert re.fullmatch(r"argus_[a-z0-9_]+", family.name)
    assert family.name.endswith("_total") == (family.type == "counter")
    assert not re.search(r"_(ms|us|ns|millis|kb|mb)(_|$)", family.name)
    assert family.help.endswith(".")


@pytest.mark.parametrize(
    "family",
    [f for f in CATALOGUE if f.component == "exporter" and not f.name.startswith("argus_job_")],
    ids=ids,
)
def test_every_rank_series_carries_the_base_labels(family: Family):
    """training_job and rank come first on whatever describes a rank."""
    assert family.labels[: len(RANK)] == RANK
