"""Cells of the matrix that stay empty, and why."""

from __future__ import annotations

from rules.matrix.world import Case

_PHASE = "group:argus_phase_duration_seconds"
_ALL = tuple(Case)
_NO_THRESHOLD = "a number without a threshold of its own; what compares it has the boundary"
_ALWAYS = "every healthy job has it, so nothing is silent; its value there is in the row of ranks all alike"

EXCEPTIONS: tuple[tuple[str, tuple[Case, ...], str], ...] = (
    (f"{_PHASE}:(mean|median|min)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    (f"{_PHASE}:(stddev|cv)", (Case.SILENT,), _ALWAYS),
    (
        "group:argus_phase_outlying:seconds",
        (Case.BOUNDARY, Case.SILENT),
        "every group has a bound; zscore is what passes it",
    ),
    ("group:argus_phase_(ranks:count|coverage:ratio)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("group:argus_phase_spans:(rate|recent|long)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("group:argus_phase_(window:seconds|zscore_threshold:current)", (Case.SILENT,), _ALWAYS),
    ("group:argus_collective_transfer:ratio", (Case.SILENT,), _ALWAYS),
    (
        "(group|job):argus_collective_transfer:(seconds|lost_ratio)",
        (Case.BOUNDARY, Case.SILENT),
        _NO_THRESHOLD,
    ),
    ("rank:argus_host_pause:lost_ratio", (Case.SILENT,), "hosts of healthy jobs pause as well"),
    ("rank:argus_rank:lost", (Case.BOUNDARY,), _NO_THRESHOLD),
    ("rank:argus_stack_samples:rate", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("rank:argus_compute_busy:median_ratio", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    (
        "group:argus_phase_spans:long",
        (Case.TWO_INSTANCES,),
        "the end of the old instance looks like a restart for as long as the window; mean_long is exact",
    ),
    (
        "rank:argus_issue_latency:low_ratio",
        tuple(case for case in Case if case is not Case.BOUNDARY),
        "a comparison with the median of the stage: the boundary has both sides",
    ),
    (
        "group:argus_stall_broken:bool",
        _ALL,
        "of two groups that wait for each other: tests/rules/test_stall.py",
    ),
    (
        "ALERTS/ArgusKernelGroupShift/info",
        _ALL,
        "of groups without a coordinate, as the worker says: rules/tests/kernels.yaml",
    ),
    ("ALERTS/ArgusJobNameClash/ticket", _ALL, "of two jobs: tests/rules/test_health.py"),
    ("group:argus_ranks:(expected|reporting)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("rank:argus_phase_duration_seconds:mean", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    (
        "rank:argus_phase_duration_seconds:(mean_long|long_sum|long_count)",
        (Case.SILENT,),
        "a healthy job with long steps has it as well",
    ),
    ("group:argus_phase_spans:few", (Case.SILENT,), "a healthy job with long steps has it as well"),
    (
        "rank:argus_(bubble|compute_busy|kernel_busy|gc_pause|compile):ratio",
        (Case.BOUNDARY, Case.SILENT),
        _NO_THRESHOLD,
    ),
    ("job:argus_(ranks:count|gc_pause:.*)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("job:argus_iteration(_duration)?_seconds:.*", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("job:argus_iteration_scan:.*", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("job:argus_iteration:(age_seconds|jitter_ratio)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    ("job:argus_iteration:class", (Case.SILENT,), "every job has a class; a healthy one is stable"),
    ("job:argus_work:(cv|fast_cv)", (Case.BOUNDARY, Case.SILENT), _NO_THRESHOLD),
    (
        "job:argus_signature:(current|history_ratio|excess_ratio)",
        (Case.BOUNDARY, Case.SILENT),
        _NO_THRESHOLD,
    ),
    ("job:argus_signature:healthy", (Case.SILENT,), "a healthy job is what it records"),
    ("job:argus_(train:seconds|other_activity:timestamp_seconds)", (Case.BOUNDARY,), _NO_THRESHOLD),
    ("rank:argus_hardware:current", (Case.BOUNDARY,), _NO_THRESHOLD),
    (
        "rank:argus_kernel_anomaly:lost_ratio",
        (Case.BOUNDARY,),
        "the worker has judged; the alerts have the boundary",
    ),
    (
        "rank:argus_phase_suspect:excused_lost_ratio",
        (Case.BOUNDARY,),
        "a comparison with the culprit's cost: rules/tests/collectives.yaml has both sides",
    ),
    (
        "job:argus_signature:learned",
        _ALL,
        "of a model, not of a job: job:argus_signature:history_ratio divides by it in every case",
    ),
    (
        "job:argus_gc_unsynchronised:lost_ratio",
        (Case.RESTART, Case.TWO_INSTANCES, Case.TWO_SCRAPERS),
        "pauses that a scraper sees longer or shorter: no exact value, but the alert's cell is filled",
    ),
    (
        "ALERTS/ArgusCollectiveSlowLink/ticket",
        (Case.BOUNDARY,),
        "what does not page is the ticket: one boundary",
    ),
    ("ALERTS/ArgusL3WorkerBehind/ticket", _ALL, "about no job: tests/rules/test_worker_behind.py"),
)
"""(names as a regular expression, cases, reason)."""
