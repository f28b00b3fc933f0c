"""What an on-call engineer reads of each alert, whole: alert_texts.yaml, from played evidence.

`ARGUS_GOLDEN=1 pytest tests/rules/test_alert_texts.py` writes the file anew, to be read in a diff.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.lint.runbooks import WORKER_CAUSES

from rules.promtool import Document, Texts, firing, needs_promtool, rules_of

pytestmark = needs_promtool
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "alert_texts.yaml"
CAUSES: list[dict[str, Any]] = []
JOB = "llm"
SAMPLES = 140
STEP = 15
BEGIN = 20
"""The sample at which evidence begins: 5m."""
RANKS = range(16)


class Storage:
    """Series of job `llm` in cluster `north`, or of others."""

    def __init__(self) -> None:
        self.series: list[dict[str, str]] = []
        self.job(JOB)

    def job(self, name: str) -> None:
        """Sixteen ranks on four hosts."""
        self.add("job:argus_ranks:count", f"16x{SAMPLES}", training_job=name)
        for rank in RANKS:
            who = {"training_job": name, "rank": rank}
            self.add("argus_rank_up", f"1x{SAMPLES}", **who)
            self.add("argus_rank_number", f"{rank}x{SAMPLES}", **who)
            self.add("argus_rank_lead_number", f"{rank}x{SAMPLES}", **who)
            self.add(
                "argus_rank_info", f"1x{SAMPLES}", **who, node=f"gpu-{rank // 4}", gpu_uuid=f"GPU-{rank}"
            )

    def add(self, metric: str, values: str, /, **labels: object) -> None:
        every = {"cluster": "north", "training_job": JOB} | labels
        pairs = ", ".join(f'{name}="{value}"' for name, value in every.items())
        self.series.append({"series": f"{metric}{{{pairs}}}", "values": values})

    def evidence(self, cause: str, cost: float = 0.16, /, **labels: object) -> None:
        self.add(
            "rank:argus_evidence:lost_ratio", f"_x{BEGIN} {cost}x{SAMPLES - BEGIN}", cause=cause, **labels
        )

    def ratio(self, metric: str, value: float, /, **labels: object) -> None:
        self.add(metric, f"{value}x{SAMPLES}", **labels)


def findings(storage: Storage) -> None:
    """One of each kind, each in a job of its own: of one job only the costliest would page."""

    def job(name: str) -> dict[str, object]:
        storage.job(name)
        return {"training_job": name}

    forward = {"phase": "forward", "group": "dp:0"}
    slow = job("slow") | {"rank": 7}
    storage.evidence("gpu-compute", **slow, **forward)
    storage.ratio(
        "rank:argus_phase_duration_seconds:median_ratio",
        1.5,
        **slow,
        **forward,
        kind="compute",
        source="event",
    )
    storage.ratio("rank:argus_phase_slow:lost_ratio", 0.16, **slow, **forward, kind="compute", source="event")
    storage.ratio(
        "argus_l3_trace_info", 1, **slow, trace_key="slow/2026-11-25/7/w.perfetto-trace", suspect="true"
    )
    storage.evidence("host-cpu", **job("host"), rank=3, phase="all")
    tensor_parallel = job("set")
    for rank in range(4, 8):
        storage.evidence(
            "suspect-set", 0.2 - rank / 1000, **tensor_parallel, rank=rank, **forward, set="tp:dp1"
        )
    data = {"phase": "data", "group": "dp:0"}
    loading = job("loading") | {"rank": 2}
    storage.evidence("data-input", 0.034, **loading, **data)
    storage.ratio(
        "rank:argus_phase_duration_seconds:median_ratio", 4.25, **loading, **data, kind="host", source="host"
    )
    storage.ratio("rank:argus_phase_slow:lost_ratio", 0.034, **loading, **data, kind="host", source="host")
    storage.evidence("host-gc", **job("collecting"), rank=2, phase="all")
    storage.evidence("host-gc", 0.08, **job("unsynchronised"), phase="all")
    storage.evidence("host-jit", **job("compiling"), rank=2, phase="all")
    storage.evidence("host-alloc", 0.08, **job("pinning"))
    working = job("working")
    storage.evidence("workload", 0.08, **working, rank=5, **forward)
    for rank in RANKS:
        storage.ratio("rank:argus_work:rate", 1.4 if rank == 5 else 1, **working, rank=rank)
    storage.evidence("work-uneven", 0.04, **job("uneven"))
    storage.evidence("collective-late", **job("late"), rank=9, phase="dp-allreduce", group="dp:0")
    linked = job("link")
    storage.evidence("link-slow", **linked, phase="edp-allreduce", group="edp:1")
    storage.ratio(
        "group:argus_collective_transfer:ratio", 2.13, **linked, phase="edp-allreduce", group="edp:1"
    )
    regressed = job("regressed")
    storage.evidence("regression", 0.23, **regressed)
    storage.ratio("job:argus_iteration:regression_ratio", 1.3, **regressed, rank=0)
    storage.evidence("fabric", 0.1, **job("network"))
    jittering = job("jittering")
    storage.evidence("jitter", 0.03, **jittering)
    storage.ratio("job:argus_iteration:jitter_ratio", 2.37, **jittering)
    storage.evidence("regression", 0.23, training_job="nowhere", cluster="")
    storage.ratio("job:argus_ranks:count", 1, training_job="nowhere", cluster="")


def hangs(storage: Storage) -> None:
    """Jobs of which no iteration has ended since 9m: for rank 3, or for the collective of ranks 12 to 15;

    of two jobs NCCL's plugin tells that data from rank 7 is lost, and that rank 8 takes none.
    """
    spans = {"hanging": ("forward", "compute"), "loader": ("data", "host"), "stopped": None}
    for name in (*spans, "collective", "unknown", "crossing", "standing"):
        storage.job(name)
        first = {"training_job": name, "rank": 0}
        storage.add("argus_job_last_iteration_timestamp_seconds", f"540x{SAMPLES}", training_job=name)
        storage.add("argus_job_usual_iteration_seconds", f"5.4x{SAMPLES}", training_job=name)
        storage.add("argus_iteration_duration_seconds_count", f"100x{SAMPLES}", **first)
        storage.add("argus_iteration_duration_seconds_sum", f"540x{SAMPLES}", **first)
        for rank in RANKS:
            place = {"node": f"gpu-{rank // 4}", "gpu_uuid": f"GPU-{rank}"}
            storage.add("argus_rank_overdue_number", f"{rank}x{SAMPLES}", **first | {"rank": rank}, **place)
    for rank in RANKS:
        inner = {"rank": rank, "training_job": "collective"}
        behind = rank >= 12
        collective(storage, inner | {"group": "dp"}, 41 if behind else 42, ended=behind)
        if behind:
            collective(storage, inner | {"group": "tp:3"}, 9, ended=False)
        is_in(storage, inner, "tp-allreduce" if behind else "dp-allreduce", "comm")
        for name, span in spans.items():
            who = {"rank": rank, "training_job": name}
            collective(storage, who | {"group": "dp"}, 41 if rank == 3 else 42, ended=rank == 3)
            if rank != 3:
                is_in(storage, who, "dp-allreduce", "comm")
            elif span is not None:
                is_in(storage, who, *span)
    storage.ratio("argus_rank_stopped", 1, training_job="stopped", rank=3)
    frame = {"thread": "MainThread", "frame": "tokenize (data)"}
    storage.add("argus_stack_samples_total", f"0+150x{SAMPLES}", training_job="hanging", rank=3, **frame)
    error = "remote process error"
    storage.ratio("argus_nccl_ras_rank_error", 1, training_job="collective", rank=13, error=error)
    for rank in (3, 7, 11, 15):  # the ring leaves each host of four by its last rank
        for name, wait in (("crossing", "receive_peer"), ("standing", "receive_own_gpu")):
            into = wait if rank == 7 else "receive_peer"
            oldest(storage, name, (rank + 1) % 16, into, peer=rank)
            leaves = "send_own_gpu" if rank != 7 else "send_wire" if name == "crossing" else "send_peer"
            if (name, rank) != ("standing", 7) and (name, rank) != ("standing", 11):
                oldest(storage, name, rank, leaves, peer=(rank + 1) % 16)


def oldest(storage: Storage, name: str, rank: int, wait: str, peer: int) -> None:
    """What the oldest step of a rank waits for, in a communicator of all ranks."""
    storage.ratio(
        "argus_nccl_network_oldest_timestamp_seconds",
        541,
        training_job=name,
        rank=rank,
        member=rank,
        group="dp",
        communicator="0xab",
        operation="AllReduce",
        peer=peer,
        wait=wait,
    )


def collective(storage: Storage, of: dict[str, object], number: int, *, ended: bool) -> None:
    """The last one that a rank has entered in a group."""
    storage.ratio("argus_collective_sequence", number, **of)
    storage.ratio("argus_collective_completed_sequence", number - (not ended), **of)
    storage.ratio("argus_collective_operation_sequence", number, **of, operation="all_reduce")


def is_in(storage: Storage, who: dict[str, object], phase: str, kind: str) -> None:
    storage.ratio(
        "argus_phase_open_timestamp_seconds", 541, **who, phase=phase, kind=kind, waits="none", overdue="true"
    )


def kernels(storage: Storage) -> None:
    where = {"stream": "compute", "verdict": "culprit"}
    for cause in WORKER_CAUSES:
        team = "algorithm" if cause == "workload" else "operations"
        name = f"kernels-{cause}"
        storage.job(name)
        for rank in range(1, 1 + WORKER_CAUSES.index(cause)) if cause != WORKER_CAUSES[0] else [0]:
            kernel = "all" if rank == 2 else f"gemm_{rank}"
            shift = 0.1 + rank / 100
            storage.ratio(
                "argus_l3_anomaly",
                shift,
                training_job=name,
                rank=rank,
                kernel=kernel,
                cause=cause,
                team=team,
                **where,
            )
    storage.job("kernels-uneven")
    whole = {"training_job": "kernels-uneven", "kernel": "all", "cause": "workload", "team": "algorithm"}
    storage.ratio("argus_l3_anomaly", 0.06, **whole, **where)
    shift = {"role": "r", "stream": "compute"}
    for kernel, cause, value in [
        ("gemm", "gpu-compute", 0.2),
        ("copy", "gpu-transfer", 0.3),
        ("attention", "gpu-compute", 0.1),
    ]:
        node = {"coordinate": "node", "value": "gpu-2", "cause": cause, "team": "operations"}
        storage.ratio("argus_l3_group_shift", value, kernel=kernel, **shift, **node)
    none = {"coordinate": "none", "value": "", "cause": "gpu-compute", "team": "operations"}
    storage.ratio("argus_l3_group_shift", 0.2, kernel="gemm", **shift, **none)


def health(storage: Storage) -> None:
    storage.series.clear()
    for name, lost in (("one", [11]), ("crashed", RANKS)):
        for rank in RANKS:
            who = {"training_job": name, "rank": rank}
            died = f"1x{BEGIN} 0x{SAMPLES - BEGIN}" if rank in lost else f"1x{SAMPLES}"
            storage.add("argus_rank_up", died, **who)
            storage.add("argus_rank_number", f"{rank}x{SAMPLES}", **who)
            storage.add("argus_rank_lead_number", f"{rank}x{SAMPLES}", **who)
            storage.add(
                "argus_rank_info", f"1x{SAMPLES}", **who, node=f"gpu-{rank // 4}", gpu_uuid=f"GPU-{rank}"
            )
    # A host is gone with its exporter, and elsewhere a process dies of it.
    for rank in RANKS:
        who = {"training_job": "host-gone", "rank": rank}
        later = "stale" if rank < 8 else f"0x{SAMPLES}" if rank == 15 else f"1x{SAMPLES}"
        storage.add("argus_rank_up", f"1x{BEGIN} {later}", **who)
        storage.ratio("argus_rank_number", rank, **who)
        storage.ratio("argus_job_world_size", 16, **who)
    for rank in range(6):
        who = {"training_job": "incomplete", "rank": rank}
        storage.ratio("argus_rank_up", 1, **who)
        storage.ratio("argus_group_expected_ranks", 8, **who, group="dp:0")
        storage.ratio("argus_group_expected_ranks", 4, **who, group=f"dp:{rank // 4}:tp")
    for node in ("a", "b"):
        storage.ratio("argus_rank_info", 1, training_job="twice", rank=0, node=node, gpu_uuid="GPU-0")
    for rank in range(3):
        who = {"training_job": JOB, "rank": rank}
        storage.ratio("argus_channel_up", 0, **who, channel="kernels")
        storage.ratio("argus_channel_info", 1, **who, channel="kernels", reason="profiler_conflict")
        storage.add("argus_records_total", f"0+1500x{SAMPLES}", **who, channel="kernels")
        storage.add(
            "argus_records_dropped_total", f"0+60x{SAMPLES}", **who, channel="kernels", reason="ring_full"
        )
        storage.add("argus_producer_cpu_seconds_total", f"0+0.3x{SAMPLES}", **who, channel="phases")
    storage.series.append({"series": "argus_l3_last_success_timestamp_seconds", "values": "300x20 stale"})
    seldom = " ".join("30" if sample % 4 < 1 else "_" for sample in range(SAMPLES))
    storage.series.append(
        {"series": 'argus_rules_interval_seconds{rule_group="argus-phases"}', "values": seldom}
    )


STORIES = {
    findings: ("20m", ["decision"]),
    hangs: ("20m", ["nccl", "decision"]),
    kernels: ("20m", ["decision"]),
    health: ("30m", ["job", "health"]),
}
"""With when they are listened to, and the files of rules that are about them."""


@functools.cache
def told() -> list[tuple[Texts, Texts]]:
    """Labels and annotations of all that the stories tell."""
    found: list[tuple[Texts, Texts]] = []
    for story, (at, concerns) in STORIES.items():
        storage = Storage()
        story(storage)
        files = [ROOT / "rules" / f"argus.{concern}.rules.yaml" for concern in concerns]
        rules = yaml.load(files[-1].read_text(encoding="utf-8"), yaml.CSafeLoader)
        named = (rule.get("alert", "") for group in rules["groups"] for rule in group["rules"])
        alerts = [name for name in dict.fromkeys(named) if name]
        test = {"interval": f"{STEP}s", "input_series": storage.series}
        document: Document = {**rules_of(files), "evaluation_interval": "5s", "tests": [test]}
        found += firing(document, alerts, at)
    return found


def page() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """As it is written: by alert, what is told of each job."""
    by_alert: dict[str, list[dict[str, str]]] = {}
    for labels, texts in told():
        words = {name: texts[name] for name in ("summary", "description")}
        by_alert.setdefault(labels["alertname"], []).append({"severity": labels["severity"], **words})
    for alert in sorted(by_alert):
        yield alert, sorted(by_alert[alert], key=lambda words: words["summary"])


@pytest.mark.slow
def test_the_texts_are_as_they_were_read() -> None:
    found = dict(page())
    if os.environ.get("ARGUS_GOLDEN"):
        text = yaml.safe_dump(found, sort_keys=False, width=110, allow_unicode=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert found == yaml.load(GOLDEN.read_text(encoding="utf-8"), yaml.CSafeLoader)
