"""Stories beside one another in one storage get the answers that each of them gets alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rules.beside import Module, Story, stories_of, together
from rules.promtool import Document, complaints, needs_promtool

RULES = """
groups: [{name: example, rules: [
  {record: 'job:up:sum', expr: 'sum by (training_job) (up)'},
  {record: 'model:up:sum', expr: 'sum by (model) (up)'},
  {record: 'all:down:count', expr: 'count(up == 0)'},
]}]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def story(rules: Path, up: int, *asked: tuple[str, dict[str, int]], job: str = "a") -> Document:
    """One series of one job, and what is asked of it after a minute."""
    questions = [
        {
            "expr": expression,
            "eval_time": "1m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in asked
    ]
    series = {"series": f'up{{training_job="{job}", model="m"}}', "values": f"{up}x10"}
    test: dict[str, Any] = {"interval": "15s", "input_series": [series], "promql_expr_test": questions}
    return {
        "rule_files": [str(rules)],
        "group_eval_order": ["example"],
        "evaluation_interval": "15s",
        "tests": [test],
    }


def stories(*documents: Document) -> list[Story]:
    return [one for document in documents for one in stories_of(document) or ()]


@needs_promtool
def test_each_story_is_told_of_itself(rules: Path) -> None:
    """The same job and model twice, asked for by a matcher, by a pattern, and by neither."""

    def asked(up: int) -> Document:
        return story(
            rules,
            up,
            ("job:up:sum", {'job:up:sum{training_job="a"}': up}),
            ('count(job:up:sum{training_job="a"}) > bool 1e-6', {"{}": 1}),
            ('job:up:sum{training_job=~"b|c"}', {}),
            ('sum(sum_over_time(model:up:sum{model="m"}[31s])) / 3', {"{}": up}),
        )

    beside = together(stories(asked(1), asked(5)))
    assert len(beside["tests"]) == 1
    assert complaints(beside) == ""


@needs_promtool
def test_a_wrong_story_is_named_by_its_number(rules: Path, tmp_path: Path) -> None:
    """And by no other's."""
    right = story(rules, 1, ("sum(job:up:sum)", {"{}": 1}))
    wrong = story(rules, 5, ("sum(job:up:sum)", {"{}": 1}))
    module = Module(tmp_path / "verdicts")
    asked = stories(right, wrong)
    module.collect(asked)
    said = module.complaints(asked[0])
    assert said == module.complaints(asked[1])
    assert said is not None
    assert ("/0" in said, "/1" in said) == (False, True)


@needs_promtool
def test_what_is_nobodys_is_met_by_all(rules: Path) -> None:
    """A series without job and model, made by one story, is in the other's answer: it does not go unseen."""
    healthy = story(rules, 1, ("all:down:count", {}))
    assert complaints(healthy) == ""
    assert 'got: {__name__="all:down:count"} 1E+00' in complaints(together(stories(healthy, story(rules, 0))))


def test_only_stories_with_equal_rules_share_a_storage(rules: Path, tmp_path: Path) -> None:
    """Another interval is another storage; so is what would exceed a storage."""
    slow = story(rules, 1) | {"evaluation_interval": "30s"}
    module = Module(tmp_path / "verdicts")
    module.collect(stories(story(rules, 1), slow, story(rules, 2)))
    assert sorted(len(batch) for batch in set(module.batches.values())) == [1, 2]


@pytest.mark.parametrize(
    "test", [{"alert_rule_test": []}, {"input_series": [{"series": "up", "values": "1"}]}]
)
def test_some_can_only_be_played_alone(rules: Path, test: dict[str, Any]) -> None:
    """Tests of alerts list every alert of a name; series without a job are everybody's."""
    document = story(rules, 1)
    document["tests"] = [document["tests"][0] | test]
    assert stories_of(document) is None
