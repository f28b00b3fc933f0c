"""What a scrape keeps of the one before: rendered families, as long as they are the same."""

from __future__ import annotations

from typing import Any

from prometheus_client.exposition import generate_latest as classic
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from argus_exporter.publish.exposition import Exposition


class CountingEncoder:
    """The library's, and how many samples it was given."""

    def __init__(self) -> None:
        self.rendered = 0

    def __call__(self, registry: Any) -> bytes:
        self.rendered += sum(len(family.samples) for family in registry.collect())
        return openmetrics(registry)


def gauge(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, "Help.", value=value)


def test_only_a_family_that_changed_is_rendered_again():
    """One of two changes: three renderings in two scrapes."""
    exposition, encoder = Exposition(), CountingEncoder()
    exposition.render([gauge("still", 1), gauge("moving", 1)], encoder, "page")
    text = exposition.render([gauge("still", 1), gauge("moving", 2)], encoder, "page")
    assert encoder.rendered == 3
    assert b"\nstill 1.0\n" in text
    assert b"\nmoving 2.0\n" in text


def test_a_family_that_is_gone_leaves_the_text():
    """And comes back with what it then says."""
    exposition = Exposition()
    exposition.render([gauge("one", 1), gauge("other", 1)], openmetrics, "page")
    assert b"other" not in exposition.render([gauge("one", 1)], openmetrics, "page")
    assert b"\nother 5.0\n" in exposition.render([gauge("one", 1), gauge("other", 5)], openmetrics, "page")


def test_pages_are_kept_apart():
    """The classic text never answers who asked for OpenMetrics."""
    exposition, families = Exposition(), [gauge("one", 1)]
    assert exposition.render(families, openmetrics, "openmetrics").endswith(b"one 1.0\n# EOF\n")
    assert exposition.render(families, classic, "classic").endswith(b"one 1.0\n")
    assert exposition.render(families, openmetrics, "openmetrics").endswith(b"one 1.0\n# EOF\n")


def test_the_number_of_pages_kept_is_bounded():
    """A client that names formats anew each time pushes out the page that was not asked for longest."""
    exposition, encoder = Exposition(), CountingEncoder()
    exposition.render([gauge("one", 1)], encoder, "host")
    for number in range(16):
        exposition.render([gauge("one", 1)], openmetrics, number)
    exposition.render([gauge("one", 1)], encoder, "host")
    assert encoder.rendered == 2
