"""`make lint` on the mixin: it passes on what is committed and names what is wrong in what is broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tools.lint import names, programs, runbooks, versions
from tools.lint.__main__ import problems
from tools.lint.sources import ROOT, Rule, rules

from argus_l3_worker.judge import causes

needs_tools = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("amtool") is None,
    reason="promtool and amtool are not on PATH (tools/setup.sh)",
)


@needs_tools
@pytest.mark.slow
def test_what_is_committed_passes() -> None:
    assert list(problems()) == []


def record(name: str, expr: str = "1", **labels: str) -> Rule:
    return Rule("here", {"record": name, "expr": expr, "labels": labels})


def alert(name: str, expr: str = "1", url: str = "", **labels: str) -> Rule:
    annotations = {"runbook_url": url or f"https://a.example/docs/runbooks/{name}.md"}
    return Rule("here", {"alert": name, "expr": expr, "labels": labels, "annotations": annotations})


ROUTED = {"severity": "page", "team": "operations", "level": "L1"}


@pytest.mark.parametrize(
    ("check", "rule", "complaint"),
    [
        (names.misnamed, record("argus:rank:mean"), "argus:rank:mean is not level:metric:operations"),
        (names.misnamed, record("node:argus_rank:mean"), "is not level:metric:operations"),
        (names.misnamed, alert("StragglerRank"), "StragglerRank is not ArgusCamelCase"),
        (names.unknown_series, record("rank:argus_a:b", "argus_rank_upp == 1"), "reads argus_rank_upp"),
        (names.unknown_series, record("rank:argus_a:b", "rate(rank:argus_b:c[5m])"), "reads rank:argus_b:c"),
        (names.mislabelled, record("rank:argus_a:b", "sum by (rank, pod) (x)"), "keeps the scrape label pod"),
        (names.mislabelled, record("rank:argus_a:b", "sum by (rnak) (x)"), "uses label rnak"),
        (
            names.mislabelled,
            record("rank:argus_a:b", 'argus_rank_up{trainig_job="a"}'),
            "uses label trainig_job",
        ),
        (names.mislabelled, alert("ArgusA", **ROUTED | {"severity": "critical"}), "has severity 'critical'"),
        (names.mislabelled, alert("ArgusA", **ROUTED | {"team": "nobody"}), "has team 'nobody'"),
        (names.mislabelled, alert("ArgusA", severity="page", level="L1"), "has team None"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_rule_is_named(
    check: Callable[[list[Rule]], Iterable[str]], rule: Rule, complaint: str
) -> None:
    [problem] = check([rule])
    assert complaint in problem


def test_what_rules_may_do_is_not_named() -> None:
    """A new label by label_replace, a first-level match on instance, labels that verdicts carry."""
    fine = [
        record(
            "group:argus_a:b",
            'count by (dimension) (label_replace(x, "dimension", "$1", "group", "(.*):.*"))',
        ),
        record("rank:argus_a:b", "argus_rank_up unless on (training_job, rank, instance) argus_rank_up == 0"),
        alert("ArgusA", 'rank:argus_verdict:active{verdict="culprit"}', severity="page"),
        record("rank:argus_verdict:active", verdict="culprit"),
    ]
    assert [*names.misnamed(fine), *names.mislabelled(fine), *names.unknown_series(fine)] == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Pages, dashboards, rules and configurations, to break."""
    for part in ("docs", "dashboards/generated", "rules", "alertmanager"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def broken(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_misspelt_series_in_a_page_or_dashboard_is_named(copy: Path) -> None:
    broken(copy / "docs/runbooks/ArgusRankMissing.md", "argus_rank_up{", "argus_rank_pu{")
    broken(
        copy / "dashboards/generated/argus-job.json",
        "job:argus_iteration_recent:seconds",
        "job:argus_iteration:recnt",
    )
    found = list(names.unknown_in_pages(rules("rules"), copy))
    assert any("ArgusRankMissing.md: argus_rank_pu " in problem for problem in found)
    assert any("argus-job.json: job:argus_iteration:recnt " in problem for problem in found)


def test_an_alert_without_a_page_is_named(copy: Path) -> None:
    (copy / "docs/runbooks/ArgusHostStall.md").rename(copy / "docs/runbooks/ArgusHostStalls.md")
    found = list(runbooks.orphans(rules("rules"), copy))
    assert found[0] == "alert ArgusHostStall has no docs/runbooks/ArgusHostStall.md"
    assert "ArgusHostStalls.md explains an alert that does not exist" in found[1]


def test_a_link_to_another_page_is_named() -> None:
    found = list(runbooks.orphans([alert("ArgusHostStall", url="https://a.example/docs/runbooks/ArgusB.md")]))
    assert any("runbook_url of ArgusHostStall leads to another page" in problem for problem in found)


def test_a_cause_or_question_without_an_answer_is_named(copy: Path) -> None:
    expected = runbooks.causes_of(rules("rules"))
    broken(copy / "docs/runbooks/ArgusHostStall.md", "`host-gc`", "`host-garbage`")
    broken(copy / "docs/runbooks/ArgusHostStall.md", "## What fixed it", "## Fixes")
    found = " ".join(runbooks.incomplete(expected, copy))
    assert "cause host-gc is not explained" in found
    assert "headings are Meaning, Impact, What to look at, in order, Likely causes, Fixes" in found


def test_a_dead_link_is_named(copy: Path) -> None:
    broken(copy / "docs/runbooks/ArgusChannelDown.md", "../stacks.md", "../stakcs.md")
    broken(copy / "docs/runbooks/README.md", "(ArgusHostStall.md)", "(ArgusHostStall.md#nowhere)")
    found = list(runbooks.dead_links(copy))
    assert any(problem.endswith("../stakcs.md: no such file") for problem in found)
    assert any(problem.endswith("ArgusHostStall.md#nowhere: no such heading") for problem in found)


@needs_tools
def test_what_the_programs_refuse_is_named(copy: Path) -> None:
    broken(copy / "rules/argus.job.rules.yaml", "by (cluster", "by cluster")
    broken(copy / "alertmanager/alertmanager.slack.yaml", "api_url_file", "api_url_fiel")
    assert "argus.job.rules.yaml" in " ".join(programs.refused_rules(copy))
    assert "api_url_fiel" in " ".join(programs.refused_configurations(copy))


def test_causes_of_the_worker_are_those_it_accuses_with() -> None:
    """The lists that the runbooks are held to, against the worker's constants; the overview has them all."""
    constants = {value for name, value in vars(causes).items() if name.isupper() and isinstance(value, str)}
    listed = {*runbooks.WORKER_CAUSES, *runbooks.GROUP_CAUSES, *runbooks.VICTIM_CAUSES}
    assert listed == constants
    overview = (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8")
    assert all(f"`{cause}`" in overview for cause in constants)


def test_the_overview_explains_every_cause_and_abstention_of_the_rules() -> None:
    overview = (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8")
    said = {
        rule.labels["cause"] for rule in rules("rules") if "cause" in rule.labels and "team" in rule.labels
    }
    said -= {"waiting"}
    assert len(said) > 10
    assert [cause for cause in sorted(said) if f"`{cause}`" not in overview] == []


def test_a_page_that_names_another_version_is_found() -> None:
    """The tag of an image and the name of a wheel are typed off pages."""
    page = "-t argus-exporter:1.2.3 .\npip install argus_for_prometheus-1.2.3-py3-none-any.whl\nany==2.0.0\n"
    assert list(versions.other_versions_of("page.md", page, "1.2.3")) == []
    assert list(versions.other_versions_of("page.md", page, "1.3.0")) == [
        "page.md:1: argus-exporter:1.2.3, but pyproject.toml has version 1.3.0",
        "page.md:2: argus_for_prometheus-1.2.3, but pyproject.toml has version 1.3.0",
    ]
