"""Who the ranks and their jobs are, as a scrape shows it."""

from __future__ import annotations

import os

from argus_core import wire
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors.rank import RankCollector
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry


def job_info(model: str) -> list[dict[str, str]]:
    """Labels of argus_job_info for two ranks of a job that names its model, and one of another job."""
    ranks = RankRegistry(ExporterConfig())
    for job, rank in (("a", 0), ("a", 1), ("b", 0)):
        attachment = Attachment(frozenset({wire.Channel.PHASES}), os.getuid(), 100 + rank)
        state = ranks.hello(Identity(job, rank, world_size=16), attachment)
        if job == "a":
            records.job_facts(state, wire.job_facts(model, "megatron"))
    families = {family.name: family for family in RankCollector().collect(list(ranks), now=0.0)}
    return (
        [sample.labels for sample in families["argus_job_info"].samples]
        if "argus_job_info" in families
        else []
    )


def test_a_job_that_names_its_model_is_said_once_a_host() -> None:
    """Not once a rank, and not for jobs that tell nothing."""
    assert job_info("llama-70b-8k") == [
        {"training_job": "a", "model": "llama-70b-8k", "backend": "megatron", "world_size": "16"}
    ]


def test_without_a_model_there_is_nothing_to_compare() -> None:
    """A backend alone does not make runs comparable."""
    assert job_info("") == []


def test_the_size_of_a_job_is_told_by_its_ranks_that_are_connected() -> None:
    """One that is lost may be of a run that was larger; its overdue number says that it is lost."""
    ranks = RankRegistry(ExporterConfig())
    attachments = [Attachment(frozenset({wire.Channel.PHASES}), os.getuid(), 100 + rank) for rank in (0, 1)]
    ranks.hello(Identity("a", 0, world_size=8), attachments[0])
    former = ranks.hello(Identity("a", 1, world_size=16), attachments[1])
    ranks.detach(former, attachments[1], said_bye=False)
    families = {family.name: family for family in RankCollector().collect(list(ranks), now=0.0)}
    (size,) = families["argus_job_world_size"].samples
    assert (size.labels, size.value) == ({"training_job": "a"}, 8)
    overdue = {one.value: one.labels.get("lost") for one in families["argus_rank_overdue_number"].samples}
    assert overdue == {0: None, 1: "true"}
