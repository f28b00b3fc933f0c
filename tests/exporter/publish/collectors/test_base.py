"""Families as collectors build them: checked against the catalogue."""

from __future__ import annotations

import pytest

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder

RANK = {"training_job": "job", "rank": "0"}


def test_a_summary_has_its_quantiles_count_and_sum():
    """Quantiles come in ascending order, as the text formats want them."""
    family = FamilyBuilder(catalogue.ISSUE_LATENCY)
    family.add_summary(RANK | {"kernel_class": "compute"}, 7, 0.5, {0.99: 0.3, 0.5: 0.1})
    assert [
        (s.name.removeprefix(family.metric.name), s.labels.get("quantile"), s.value)
        for s in family.metric.samples
    ] == [
        ("", "0.5", 0.1),
        ("", "0.99", 0.3),
        ("_count", None, 7.0),
        ("_sum", None, 0.5),
    ]


def test_quantiles_of_a_family_without_are_refused():
    """The catalogue says which summaries have quantiles."""
    with pytest.raises(ValueError, match="argus_gc_pause_seconds has no quantiles"):
        FamilyBuilder(catalogue.GC_PAUSE).add_summary(RANK | {"generation": "0"}, 1, 1.0, {0.5: 1.0})


def test_a_label_that_the_catalogue_lacks_is_refused():
    """A collector cannot invent series."""
    with pytest.raises(ValueError, match="argus_rank_up has labels"):
        FamilyBuilder(catalogue.RANK_UP).add(RANK | {"colour": "red"}, 1)
