"""The trace service's own metric families."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder
from argus_exporter.traces.service import TraceService


def trace_metrics(service: TraceService) -> Iterator[Metric]:
    """Families named `argus_exporter_trace_*`."""
    ring, outbox, uploader = service.ring, service.outbox, service.uploader
    gauges: dict[catalogue.Family, float] = {
        catalogue.TRACE_RING_BYTES: ring.size,
        catalogue.TRACE_OUTBOX_FILES: outbox.files,
        catalogue.TRACE_OUTBOX_BYTES: outbox.size,
        catalogue.TRACE_UPLOAD_BYTES: uploader.uploaded_bytes,
    }
    if ring.oldest_ns is not None:
        gauges[catalogue.TRACE_RING_OLDEST] = ring.oldest_ns / 1e9
    for family, value in gauges.items():
        builder = FamilyBuilder(family)
        builder.add({}, value)
        yield builder.metric
    for family, label, counts in (
        (catalogue.TRACE_RING_DROPPED, "reason", ring.dropped_bytes),
        (catalogue.TRACE_REQUESTS, "result", service.requests),
        (catalogue.TRACE_WINDOWS, "why", service.windows),
        (catalogue.TRACE_UPLOADS, "result", uploader.results),
        (catalogue.TRACE_DROPPED, "reason", outbox.dropped),
    ):
        builder = FamilyBuilder(family)
        for name, count in sorted(counts.items()):
            builder.add({label: name}, count)
        yield builder.metric
