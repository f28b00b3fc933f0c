"""Lines that are kept, totals over them, and what is printed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.score import baselines, report
from argus_simulator.score.claims import claims_of
from argus_simulator.score.coverage import page
from argus_simulator.score.links import told_links
from argus_simulator.score.results import ResultFile
from argus_simulator.score.totals import accusations, links, totals
from simulator.score.judged import JOB, ONSET, SLOW, finding, judged, result, said, truth

RANK_3 = {**SLOW, "rank": "3"}
RANK_4 = {**SLOW, "rank": "4"}
RIGHT = result(judged(truth(finding()), said(RANK_3, at=ONSET + 2)))
WRONG = result(judged(truth(finding()), said(RANK_4, at=ONSET + 5)), scenario="row low")
MISSED = result(judged(truth(finding())), scenario="row high")
ACCUSED = judged(truth(control=True), said(RANK_3), said(RANK_4))
CONTROL = result(ACCUSED, row="still", scenario="still", kind="control", expected=())
ALL = [RIGHT, WRONG, MISSED, CONTROL]


def test_a_line_survives_the_file(tmp_path: Path):
    """What is read again is what was written, tuples and all."""
    file = ResultFile(tmp_path / "lines", "commit")
    for line in ALL:
        file.add(line)
    assert list(ResultFile(tmp_path / "lines", "commit").done().values()) == ALL


def test_lines_of_another_product_are_not_taken_up(tmp_path: Path):
    """A score is of one commit."""
    ResultFile(tmp_path / "lines", "before").add(RIGHT)
    assert ResultFile(tmp_path / "lines", "after").done() == {}


def test_what_a_busy_machine_played_is_played_again(tmp_path: Path):
    """Half of the scrapes missed: whatever was found, it was not this job."""
    file = ResultFile(tmp_path / "lines", "commit")
    file.add(dataclasses.replace(RIGHT, missed_scrapes=0.5))
    assert file.done() == {}


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path):
    """With its line, before hours are spent."""
    path = tmp_path / "lines"
    path.write_text('{"product": "commit"}\n')
    with pytest.raises(ArgusSimulatorError, match="line 1: not a line of a score"):
        ResultFile(path, "commit").done()


def test_totals_count_misses_as_wrong():
    """Of three rows one is right, one is found with the wrong rank, one is missed."""
    high = totals(ALL[:3])
    assert high.detection.value == pytest.approx(2 / 3)
    assert high.precision.value == pytest.approx(1 / 2)
    assert high.recall.value == pytest.approx(1 / 3)
    assert high.cause.value == pytest.approx(2 / 3)
    assert high.cause_where_detected.value == 1
    assert high.victims.value == pytest.approx(1 / 3)
    assert high.missed == 1


def test_a_miss_is_later_than_all_others():
    """The median of 8, 20 and never is 20; of 8 and two misses there is none."""
    assert totals(ALL[:3]).steps_p50 == 20
    assert totals([RIGHT, MISSED, MISSED]).steps_p50 is None


def test_accusations_come_with_the_time_in_which_they_were_false():
    """One incident of two alerts in the control, none before the onsets."""
    false = accusations(ALL)
    assert (false.incidents, false.alerts) == (1, 2)
    assert false.hours == pytest.approx((3 * 50 + 100) / 3600)
    assert false.per_hour_bound == pytest.approx(4.744 / false.hours, rel=1e-3)


def test_a_link_is_right_from_end_to_end_and_alone():
    """Of three slow hops one is told, one the wrong way round, one with another. A sound row has one."""
    expected = ((1, 2),)
    told = (((1, 2),), ((2, 1),), ((1, 2), (5, 6)))
    rows = [dataclasses.replace(RIGHT, expected_links=expected, links=of) for of in told]
    found = links([*rows, dataclasses.replace(CONTROL, links=((3, 4),))])
    assert (found.right.value, found.right.count, found.wrong) == (pytest.approx(1 / 3), 3, 3)


def test_links_of_rows_that_cost_nothing_do_not_count():
    cheap = dataclasses.replace(RIGHT, kind="sub-threshold", expected_links=((1, 2),), links=((3, 4),))
    assert (links([cheap]).right.value, links([cheap]).wrong) == (None, 0)


@pytest.mark.parametrize(("severity", "told"), [("page", ((15, 0),)), ("info", ())])
def test_a_link_is_told_by_an_alert_that_somebody_gets(severity: str, told: tuple[tuple[int, int], ...]):
    """What the text asks for is asked of the whole fault, under the job's own name."""
    asked: list[str] = []

    def query(text: str) -> list[tuple[dict[str, str], float]]:
        asked.append(text)
        return [({"rank": "15", "to_rank": "0"}, 1.0)]

    alert = {**SLOW, "alertname": "ArgusCollectiveSlowLink", "cause": "link-slow"}
    claims = claims_of(JOB, [said(alert, severity)], lambda _: frozenset())
    assert told_links(query, JOB, claims, ONSET, ONSET + 60) == told
    assert all(f'training_job="{JOB}"' in text and "[60s]" in text for text in asked)


def test_the_last_line_has_what_scripts_read():
    """The names of the issue, gated rows alone in the figures, every row in `rows`."""
    content = report.content("commit", "hooks", "2 cores", ALL, baselines.compare(ALL))
    assert content["detection"] == pytest.approx(2 / 3)
    assert content["false_accusations"] == 1
    of_all = {
        "detection", "precision", "recall", "named_alone", "set_size_mean", "set_size_max", "victims",
        "cause", "team", "false_accusations", "healthy_job_hours", "first_right_name_p50_s",
        "first_right_name_p90_s", "cost_error_p50", "links_right", "links_wrong",
    }  # fmt: skip
    assert of_all | {"source", "baselines", "rows"} <= set(content)
    assert all(of_all | {"f1", "simple_f1"} <= set(of) for of in content["shapes"].values())
    assert [row["row"] for row in content["rows"]] == ["row", "row", "row", "still"]


def test_held_out_totals_come_without_rows():
    """Who sees rows tunes to them."""
    assert report.content("commit", "hooks", "2 cores", ALL, {}, held_out=True)["rows"] == []


def test_the_table_shows_every_line():
    """With what is wrong in it in capitals."""
    text = "\n".join(report.table(ALL))
    assert "row  low      0     +20.0%  yes    20     0  0  ok gpu-compute" in text
    assert "NO unknown" in text
    assert "page ArgusStragglerRank rank 3,4 (gpu-compute forward)" in text


def test_the_page_names_what_falls_short_and_why():
    """Row by row: the note, and what was said instead; of held-out seeds the totals alone."""
    score = report.content("0123456789abcdef", "hooks", "2 cores", ALL, {})
    held_out = report.content("0123456789abcdef", "kernels", "2 cores", ALL, {}, held_out=True)
    text = page([score, held_out], {"row": "the reason"}, ["row", "still", "other"])
    assert "| over the high-severity rows | hooks, seed 0 | kernels, 1 held-out seed |" in text
    assert "| commit | `0123456789ab` | `0123456789ab` |" in text
    changed = page([{**score, "product": "0123456789abcdef-dirty-77"}], {}, [])
    assert "| commit | `0123456789ab-dirty-77` |" in changed
    assert "**1 of 3 rows were not played**, so the totals are not those of the catalogue: other." in text
    assert "the reason; named rank 4, right is rank 3 (low); not found (high)" in text
    assert "| L2 | 3 | 0.667 | 20 |" in text
    assert "| still | 1 | 0.028 | 1 |" in text
    assert "## With kernels" not in text


def test_the_page_says_how_many_held_out_seeds_were_played():
    """One of them says less than three."""
    rows = [dataclasses.replace(RIGHT, seed=seed) for seed in (1001, 1002, 1003)]
    score = report.content("0123456789abcdef", "hooks", "2 cores", rows, {}, held_out=True)
    assert (score["seeds"], score["held_out"]) == (3, True)
    assert "| over the high-severity rows | hooks, 3 held-out seeds |" in page([score], {}, [])


def test_what_a_busy_machine_played_is_named():
    """A player that is seconds late plays another job than it should."""
    late = dataclasses.replace(RIGHT, scenario="row late", lag_seconds=5.0)
    assert any(
        "too busy for: row late (5.0 s late, 1% of scrapes and 2% of evaluations missed)" in line
        for line in report.summary([late])
    )
    assert not any("too busy" in line for line in report.summary([RIGHT]))


def test_costs_are_compared_with_the_same_steps_without_the_fault():
    """A fault of +20 % costs a sixth of the wall time; who was told nothing has no error."""
    said = [dataclasses.replace(RIGHT, cost=cost) for cost in (1 / 6, 0.18, 0.3)]
    costs = totals([*said, MISSED])
    assert costs.cost_error_p50 == pytest.approx(0.18 - 1 / 6)
    assert costs.cost_within.value == pytest.approx(2 / 3)


def test_faults_that_cost_a_page_have_figures_of_their_own():
    """+4 % is missed, +20 % and a hang are found."""
    small = dataclasses.replace(MISSED, effect=0.04)
    hang = dataclasses.replace(RIGHT, effect=None)
    score = report.content("commit", "hooks", "2 cores", [RIGHT, hang, small], {})
    assert score["detection"] == pytest.approx(2 / 3)
    assert (score["costly"]["detection"], score["costly"]["scenarios"]) == (1.0, 2)
    assert "| detection of these | 1.000 |" in page([score], {}, [])


def test_the_first_right_name_of_a_miss_is_later_than_all_others():
    """Of 40 and 60 seconds and never, the median is 60 and the 90th percentile never."""
    rows = [dataclasses.replace(RIGHT, first_right_s=seconds) for seconds in (40.0, 60.0, None)]
    assert totals(rows).first_right_s == (60.0, None)
    assert totals(rows[:2]).first_right_s == (40.0, 60.0)


def test_each_shape_is_measured_beside_the_best_simple_rule():
    """Precision 1 and recall 1/2 are an F1 of 2/3."""
    rows = [dataclasses.replace(row, shape="dp8") for row in (RIGHT, MISSED)]
    (shape,) = report.content("commit", "hooks", "2 cores", rows, {})["shapes"].values()
    assert shape["f1"] == pytest.approx(2 / 3)
    assert (shape["best_simple"], shape["best_simple_f1"]) == ("z > 3", 1.0)


def test_a_name_in_an_info_counts_for_f1_as_it_does_for_recall():
    """Nobody is told of it: of two rows one is recalled, and both are precise."""
    quiet = result(judged(truth(finding()), said(RANK_3, "info")), scenario="row low")
    both = totals([RIGHT, quiet])
    assert (both.precision.value, both.recall.value) == (1.0, 0.5)
    assert both.f1 == pytest.approx(2 / 3)


SUSPECTS = {**SLOW, "cause": "suspect-set", "set": "dp.tp:pp0"}


def test_a_set_of_suspects_counts_as_a_share_of_each():
    """Named as one of four: a quarter of recall, and not named alone."""
    of_set = result(judged(truth(finding()), said(SUSPECTS)), scenario="row set")
    assert of_set.judgement.sets == ((0, 1, 2, 3),)
    high = totals([RIGHT, of_set])
    assert high.set_recall.value == pytest.approx((1 + 1 / 4) / 2)
    assert high.named_alone.value == pytest.approx(1 / 2)
    assert high.set_sizes == (1, 4)
    content = report.content("commit", "hooks", "2 cores", [RIGHT, of_set], {})
    assert (content["set_size_mean"], content["set_size_max"]) == (2.5, 4)


def test_who_is_named_too_is_no_suspect_any_more():
    """A set, and the rank of it that was found later."""
    both = result(judged(truth(finding()), said(SUSPECTS), said(RANK_3, at=ONSET + 9)))
    assert totals([both]).named_alone.value == 1
    assert totals([both]).set_sizes == (1,)


def test_lines_from_before_sets_were_kept_are_read(tmp_path: Path):
    """What they do not know has no value; the rest counts."""
    content = RIGHT.as_dict()
    del content["alone"], content["sets"]
    (tmp_path / "lines").write_text(json.dumps({"product": "commit", **content}) + "\n")
    [line] = ResultFile(tmp_path / "lines", "commit").done().values()
    assert totals([line]).named_alone.value is None
    assert totals([line]).set_recall.value == 1
