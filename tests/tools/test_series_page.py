"""What the rules say of themselves, on its way to people: comments, the page of series, its picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml
from tools.draw_rules import picture
from tools.generate_rules import annotated, dump, render, with_comments
from tools.generate_series_page import page
from tools.lint.graph import Graph, placed, rules_of


def graph(*rules: dict[str, Any], file: str = "argus.phases.rules.yaml") -> Graph:
    return Graph(placed(file, [{"name": "argus-a", "rules": rules}]))


def record(name: str, expr: str = "argus_rank_up", **more: Any) -> dict[str, Any]:
    return {"record": f"rank:argus_a:{name}", "expr": expr, **more}


def rows(page: str) -> Sequence[Sequence[str]]:
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]


def test_the_sentence_stands_above_its_rule_and_changes_nothing() -> None:
    """Wrapped at 120; also above a rule that follows an expression of several lines."""
    rules = [record("seconds", "up\n- down"), record("ratio"), record("count")]
    text = dump({"groups": [{"name": "argus-a", "rules": rules}]})
    notes = {"argus-a": [{}, {"about": "A word. " * 20 + "End.", "memory": True}, {}]}
    commented = with_comments(text, notes)
    assert yaml.safe_load(commented) == yaml.safe_load(text)
    comment = [line for line in commented.splitlines() if line.lstrip().startswith("#")]
    assert len(comment) == 2 and all(len(line) <= 120 for line in comment)
    assert comment[-1].endswith("It reads its own past.")
    lines = commented.splitlines()
    assert lines[lines.index(comment[-1]) + 1] == "  - record: rank:argus_a:ratio"


def test_every_flavour_carries_the_sentences_and_no_file_the_fields() -> None:
    """A hidden field is not rendered; our own renderer writes it as a comment."""
    files = dict(render())
    for folder in ("rules", "rules/test"):
        text = files[Path(folder) / "argus.job.rules.yaml"]
        assert "  # Ranks that are alive." in text
        assert "about:" not in text
    assert Path("notes") not in files


def test_what_is_annotated_is_what_is_written() -> None:
    """The graph is made of the rules of the files, with what they say of themselves."""
    files = dict(render())
    for file, groups in annotated(Path("rules")):
        written = yaml.safe_load(files[file])["groups"]
        bare = [{**group, "rules": [_without_notes(rule) for rule in group["rules"]]} for group in groups]
        assert bare == written


def _without_notes(rule: Any) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key not in ("about", "memory")}


def test_the_page_says_what_a_series_is_its_unit_and_who_reads_it() -> None:
    """One row a name; nobody reads the last one."""
    rules = [
        record("lost_ratio", about="Why."),
        record("seconds", "rank:argus_a:lost_ratio"),
    ]
    assert rows(page(graph(*rules))) == [
        ["`rank:argus_a:lost_ratio`", "Why.", "share of wall time", "rules of phases"],
        ["`rank:argus_a:seconds`", "", "s", "nobody"],
    ]


def test_rules_of_one_name_are_told_apart_by_the_fewest_labels() -> None:
    """The phase does: the kind beside it is not repeated. What says the same is said once."""
    rules = [
        record("ratio", about="One|two.", labels={"kind": "host", "phase": "gc"}),
        record("ratio", about="Three.", labels={"kind": "host", "phase": "jit"}),
        record("ratio", about="Three.", labels={"kind": "host", "phase": "compile"}),
    ]
    [[_, says, *_]] = [row for row in rows(page(graph(*rules))) if "ratio" in row[0]]
    assert says == "`gc`: One\\|two.<br>`jit`, `compile`: Three."


def test_the_picture_draws_each_name_and_no_line_that_others_imply() -> None:
    """c reads b and a, b reads a, a reads what is scraped: three lines, from the left to the right."""
    rules = [
        record("a"),
        record("b", "rank:argus_a:a"),
        record("c", "rank:argus_a:a + rank:argus_a:b", about="<Escaped>."),
    ]
    root = ElementTree.fromstring(picture(graph(*rules)))
    space = "{http://www.w3.org/2000/svg}"
    shown = [text.text for text in root.iter(f"{space}text")]
    assert shown == ["phases", "scraped", "argus_rank_up", "rank:a:a", "rank:a:b", "rank:a:c"]
    assert len(list(root.iter(f"{space}path"))) == 3
    assert [title.text for title in root.iter(f"{space}title")] == ["<Escaped>."]


def test_what_a_rule_remembers_is_dashed() -> None:
    """The sets of what was left at the last evaluation."""
    rules = [
        record("sets", "rank:argus_a:left", memory=True),
        record("left", "argus_rank_up unless rank:argus_a:sets"),
    ]
    root = ElementTree.fromstring(picture(graph(*rules)))
    lines = [path.get("class") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    assert sorted(map(str, lines)) == ["None", "None", "past"]


def test_the_picture_is_the_same_each_time() -> None:
    """It is committed and compared."""
    assert picture(Graph(rules_of())) == picture(Graph(rules_of()))
