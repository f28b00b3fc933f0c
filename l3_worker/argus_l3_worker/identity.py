"""Whether the series of one name are one job's, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from argus_l3_worker.read.prometheus import Sample

# What servers and stores put beside a job's name: the tenants are those of Mimir and Cortex, of Thanos, of
# VictoriaMetrics. Two jobs of one name differ in one of them.
_OWNERS: Final = ("cluster", "__tenant_id__", "tenant_id", "vm_account_id", "vm_project_id")
# Where a rank lives: one that moved is there twice for some minutes, and differs in it.
_PLACE: Final = ("instance", "node", "gpu_uuid")


def ambiguity(info: Iterable[Sample]) -> str:
    """Why these series of `argus_rank_info` are not one job's ranks, each once; empty where they are."""
    all_labels = [one.labels for one in info]
    for name in _OWNERS:
        values = sorted({labels.get(name, "") for labels in all_labels})
        if len(values) > 1:
            return f"ranks of this name differ in {name}: {', '.join(value or '(none)' for value in values)}"
    there: dict[tuple[str, ...], Mapping[str, str]] = {}
    for labels in all_labels:
        first = there.setdefault(tuple(labels.get(name, "") for name in ("rank", *_PLACE)), labels)
        if first is not labels:
            names = sorted(name for name in {*first, *labels} if first.get(name) != labels.get(name))
            return f"rank {labels.get('rank', '')} is there twice and differs in {', '.join(names)}"
    return ""
