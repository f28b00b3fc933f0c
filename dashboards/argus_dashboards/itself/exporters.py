"""Exporters: do they answer, how many series are there, and where do traces stand?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.itself.channels import POINTS
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines
from argus_dashboards.promql import CLUSTER, RATE
from argus_dashboards.theme import BAD, BYTES, COUNT, FACT, LEAST, MOST, RATIO, SECONDS

_OF_EXPORTERS = f"and on (job, instance) argus_exporter_build_info{{{CLUSTER}}}"

_UP = lines(
    "Exporters",
    """
    Exporters that answer, and targets of their jobs that do not. A missing one blinds a whole host: its
    ranks count as missing, and groups below 80 % abstain.
    """,
    [
        ("answer", f"count(argus_exporter_build_info{{{CLUSTER}}})"),
        (
            "down",
            f"count(up{{{CLUSTER}}} == 0 and on (job) argus_exporter_build_info{{{CLUSTER}}})",
        ),
    ],
    unit=COUNT,
    colours={"answer": FACT, "down": BAD},
)
_SERIES = lines(
    "Series budget",
    """
    Samples of all exporters a scrape, and all series in Prometheus. Each needs 3 to 6 kB of its memory. When
    it nears the memory, lower top_pairs or shard by training_job, never by instance.
    """,
    [
        ("of ARGUS, a scrape", f"sum(scrape_samples_scraped{{{CLUSTER}}} {_OF_EXPORTERS})"),
        ("in Prometheus", "max(prometheus_tsdb_head_series)"),
    ],
    unit=COUNT,
)
_A_RANK = lines(
    "Series a rank",
    """
    Samples of an exporter over its ranks, for the largest and on average. About 380 with 20 kernel pairs. One
    far above the others: a phase or span name that changes all the time.
    """,
    [
        (
            "largest",
            f"max((scrape_samples_scraped{{{CLUSTER}}} {_OF_EXPORTERS})"
            f" / on (cluster, job, instance) count by (cluster, job, instance) (argus_rank_up{{{CLUSTER}}}))",
        ),
        (
            "average",
            f"sum(scrape_samples_scraped{{{CLUSTER}}} {_OF_EXPORTERS}) / count(argus_rank_up{{{CLUSTER}}})",
        ),
    ],
    unit=COUNT,
    decimals=0,
    colours={"largest": MOST, "median": FACT, "average": FACT},
    most_points=POINTS,
)
_SCRAPE = lines(
    "Scrape duration",
    "Of the slowest exporter and of the median. Above a second the host has no CPU left for its exporter.",
    [
        ("slowest", f"max(scrape_duration_seconds{{{CLUSTER}}} {_OF_EXPORTERS})"),
        ("median", f"quantile(0.5, scrape_duration_seconds{{{CLUSTER}}} {_OF_EXPORTERS})"),
    ],
    unit=SECONDS,
    colours={"slowest": MOST, "median": FACT},
)
_COST = lines(
    "CPU of exporters",
    "Share of a core. The budget is 1 % for 8 ranks at 100,000 kernels a minute each.",
    [
        ("largest", f"max(rate(process_cpu_seconds_total{{{CLUSTER}}}[{RATE}]) {_OF_EXPORTERS})"),
        ("median", f"quantile(0.5, rate(process_cpu_seconds_total{{{CLUSTER}}}[{RATE}]) {_OF_EXPORTERS})"),
    ],
    unit=RATIO,
    colours={"largest": MOST, "median": FACT, "average": FACT},
)
_MEMORY = lines(
    "Memory of exporters",
    "Resident memory. The budget is 250 MB for 8 ranks; a line that climbs for hours is a leak: report it.",
    [
        ("largest", f"max(process_resident_memory_bytes{{{CLUSTER}}} {_OF_EXPORTERS})"),
        ("median", f"quantile(0.5, process_resident_memory_bytes{{{CLUSTER}}} {_OF_EXPORTERS})"),
    ],
    unit=BYTES,
    colours={"largest": MOST, "median": FACT, "average": FACT},
)
_FAILURES = lines(
    "Failures",
    "Collectors in error, connections refused for what they sent, configurations refused. None is healthy.",
    [
        (
            "collector {{collector}} in error",
            f'topk(5, sum by (collector) (argus_exporter_collector_state{{{CLUSTER}, state="error"}})) > 0',
        ),
        (
            "refused: {{reason}}",
            "topk(5, sum by (reason)"
            f" (increase(argus_exporter_rejected_connections_total{{{CLUSTER}}}[{RATE}]))) > 0",
        ),
        (
            "configuration refused",
            f"count(argus_exporter_config_last_reload_successful{{{CLUSTER}}} == 0)",
        ),
    ],
    unit=COUNT,
    empty="No failure in this range",
)
_RING = lines(
    "How far back traces go",
    """
    Age of the oldest record on disk, on the host with the least and on the median one. Less than the time in
    which somebody answers a page: give the ring more bytes.
    """,
    [
        ("least", f"time() - max(argus_exporter_trace_ring_oldest_timestamp_seconds{{{CLUSTER}}})"),
        (
            "median",
            f"time() - quantile(0.5, argus_exporter_trace_ring_oldest_timestamp_seconds{{{CLUSTER}}})",
        ),
    ],
    unit=SECONDS,
    colours={"least": LEAST, "median": FACT},
)

SECTION: Final = Section(
    2,
    "Exporters",
    [
        Line(7, [(6, _UP), (6, _SERIES), (6, _A_RANK), (6, _SCRAPE)]),
        Line(7, [(6, _COST), (6, _MEMORY), (6, _FAILURES), (6, _RING)]),
    ],
)
