"""In which order rules are played, and what an engine that is late asks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from argus_simulator.fast_play.rules import Rule, Stage, UnplayableRules, read_rules, stages

ROOT = Path(__file__).resolve().parents[3]


def rules(folder: Path, *groups: dict[str, str]) -> list[Rule]:
    """A group for each mapping of recorded names to expressions."""
    content = [
        {
            "name": f"group-{number}",
            "rules": [{"record": name, "expr": expr} for name, expr in group.items()],
        }
        for number, group in enumerate(groups)
    ]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": content}))
    return read_rules([file])


def names(stage: Stage) -> list[str]:
    return [rule.name for rule in stage.rules]


def test_a_rule_is_played_after_what_it_reads_of_another_group(tmp_path: Path):
    """Whatever the order of the files."""
    found = stages(rules(tmp_path, {"b": "a + 1"}, {"a": "rate(scraped[1m])"}))
    assert [(names(one), one.together) for one in found] == [(["a"], False), (["b"], False)]


def test_rules_that_read_one_another_are_played_together(tmp_path: Path):
    """And what only reads them, afterwards."""
    found = stages(rules(tmp_path, {"c": "a"}, {"a": "b or vector(0)", "b": "a + 1"}))
    assert [(names(one), one.together) for one in found] == [(["a", "b"], True), (["c"], False)]


def test_a_rule_that_reads_a_later_one_of_its_group_is_played_together_with_it(tmp_path: Path):
    """It finds the value of the evaluation before: the other one must not be ahead of it."""
    found = stages(rules(tmp_path, {"early": "late", "late": "scraped"}))
    assert [(names(one), one.together) for one in found] == [(["early", "late"], True)]


def test_labels_tell_rules_of_one_name_apart(tmp_path: Path):
    """A rule that reads `x{kind="a"}` does not read what is recorded as `x{kind="b"}`."""
    file = tmp_path / "rules.yaml"
    written = [
        {"record": "x", "labels": {"kind": "a"}, "expr": "scraped"},
        {"record": "x", "labels": {"kind": "b"}, "expr": 'x{kind="a"}'},
    ]
    file.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": written}]}))
    assert [stage.together for stage in stages(read_rules([file]))] == [False, False]


def test_a_look_ahead_into_scraped_series_is_refused(tmp_path: Path):
    """All scrapes are there when it is played: it would see what has not happened yet."""
    with pytest.raises(UnplayableRules, match="looks ahead"):
        stages(rules(tmp_path, {"a": "scraped offset -15s"}))


def test_who_asks_a_millisecond_early_reads_at_an_offset_what_it_would_have_read(tmp_path: Path):
    """The value of one interval ago lies exactly there; a millisecond earlier it would be the one before."""
    [rule] = rules(tmp_path, {"a": "a offset 1m30s + rate(b[5m:15s] offset 15s) - c"})
    assert rule.expr_just_before == "a offset 89999ms + rate(b[5m:15s] offset 14999ms) - c"


def test_the_shipped_rules_can_be_played():
    """And most of them at once, or it would not be fast."""
    found = stages(read_rules((ROOT / "rules").glob("*.yaml")))
    alone = sum(len(stage.rules) for stage in found if not stage.together)
    assert alone > 0.8 * sum(len(stage.rules) for stage in found)
