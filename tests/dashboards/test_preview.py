"""Pages that draw the dashboards: what they show, and that a real browser draws all of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image

from argus_dashboards import panels as panels_
from argus_dashboards.inspection import PanelQuery, metric_names, panels
from argus_dashboards.probe import Answer, Span, all_uids, load
from argus_preview import browser, colours, frames, markup, values
from argus_preview.page import NOTE, render, write_library

SPAN = Span(1_800_003_600.0)
LABELS = {
    "rank": "3", "phase": "forward", "kernel": "gemm-1", "stream": "compute0", "mode": "0", "role": "pp0",
    "verdict": "culprit", "cause": "gpu-compute", "team": "operations", "training_job": "llm", "node": "h1",
    "alertname": "ArgusStragglerRank", "severity": "page", "channel": "kernels", "reason": "disabled",
    "place": "7", "tp": "1", "pp": "2", "ratio": "1.1", "column": "forward, compute", "rule_group": "argus",
    "thread": "main", "frame": "step",
}  # fmt: skip

every_dashboard = pytest.mark.parametrize("uid", all_uids())


class Synthetic:
    """Answers every query with two series that have every label: a page needs shapes, not meaning."""

    span = SPAN

    def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:  # noqa: ARG002
        if query.instant:
            result: list[Any] = [
                {"metric": LABELS | {"rank": str(rank)}, "value": [SPAN.end, str(1.0 + rank)]}
                for rank in (3, 12)
            ]
        else:
            times = [SPAN.start + 60 * step for step in range(60)]
            result = [
                {"metric": LABELS | {"rank": str(rank)}, "values": [[t, str(1 + rank % 3)] for t in times]}
                for rank in (3, 12)
            ]
        return Answer(query, result, 0.0)


class Chosen(dict[str, str]):
    """A value for every variable."""

    def __missing__(self, name: str) -> str:
        return "x"


@pytest.fixture(scope="module")
def chromium() -> str:
    found = browser.find()
    if found is None:
        pytest.skip("no Chromium or Chrome on PATH: apt-get install chromium")
    return found


@every_dashboard
def test_a_page_holds_every_panel_and_says_that_it_is_a_preview(uid: str) -> None:
    """By title and description, at its place, beside the note that this is not Grafana."""
    page = render(load(uid), Synthetic(), Chosen())

    assert "Not Grafana" in NOTE
    assert "Not Grafana" in page
    assert page.count('class="panel"') == sum(1 for _ in panels(load(uid)))
    assert "data-error" not in page


@every_dashboard
@pytest.mark.servers
def test_a_browser_draws_every_chart(uid: str, chromium: str, tmp_path: Path) -> None:
    """All charts are drawn by their scripts, and no script fails."""
    write_library(tmp_path)
    page = tmp_path / f"{uid}.html"
    page.write_text(render(load(uid), Synthetic(), Chosen()), encoding="utf-8")
    charts = sum(panel["type"] not in ("stat", "table") for panel in panels(load(uid)))

    document = browser.document(chromium, page)

    assert re.search(r'data-failures="([^"]*)"', document)[1] == ""  # type: ignore[index]
    assert f'data-drawn="{charts}"' in document
    assert document.count('class="main-svg"') >= charts


@pytest.mark.servers
def test_a_picture_is_small_enough_to_commit(chromium: str, tmp_path: Path) -> None:
    """The whole page, under 350 kB."""
    write_library(tmp_path)
    page = tmp_path / "argus-job.html"
    page.write_text(render(load("argus-job"), Synthetic(), Chosen()), encoding="utf-8")

    browser.picture(chromium, page, tmp_path / "job.png")

    with Image.open(tmp_path / "job.png") as image:
        assert image.width == 1920
        assert image.height > 3000
    assert (tmp_path / "job.png").stat().st_size < 350_000


@pytest.mark.servers
def test_a_page_whose_script_fails_is_no_picture(chromium: str, tmp_path: Path) -> None:
    """Without its library nothing is drawn, and that is said."""
    page = tmp_path / "argus-jobs.html"
    page.write_text(render(load("argus-jobs"), Synthetic(), Chosen()), encoding="utf-8")
    with pytest.raises(browser.BrowserFailed, match=r"argus-jobs.html: .+"):
        browser.picture(chromium, page, tmp_path / "jobs.png")


def test_a_refused_query_is_shown_in_its_panel() -> None:
    """With what Prometheus said, instead of an empty chart."""

    class Refusing(Synthetic):
        def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:
            if query.panel == "Jobs":
                return Answer(query, [], 0.0, "parse error: unexpected <eof>")
            return super().ask(query, values)

    page = render(load("argus-jobs"), Refusing(), Chosen())
    assert "parse error: unexpected &lt;eof&gt;" in page


def test_a_panel_without_data_says_why() -> None:
    """By the text that Grafana would show, in tables, charts and maps alike."""

    class Silent(Synthetic):
        def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:  # noqa: ARG002
            return Answer(query, [], 0.0)

    dashboard = load("argus-job")
    page = render(dashboard, Silent(), Chosen())

    said = [panel["fieldConfig"]["defaults"].get("noValue") for panel in panels(dashboard)]
    assert len([text for text in said if text]) > len(said) / 2
    assert all(escape(text) in page for text in said if text)


def test_a_cause_is_shown_in_the_words_of_its_alert() -> None:
    """As Grafana does by the mapping of the column; the label itself is not for people."""

    class Named(Synthetic):
        def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:
            answer = super().ask(query, values)
            for one in answer.result:
                one["metric"] = {**one["metric"], "row": "host-gc"}
            return answer

    assert "<td" in (page := render(load("argus-job"), Named(), Chosen()))
    assert ">pauses to collect garbage</td>" in page


def test_marks_that_are_switched_off_are_not_drawn() -> None:
    """Tickets of a job: one fault raises dozens."""

    class Listening(Synthetic):
        asked: ClassVar[list[str]] = []

        def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:
            self.asked.append(query.panel)
            return super().ask(query, values)

    render(load("argus-job"), Listening(), Chosen())

    assert "annotation Alerts" in Listening.asked
    assert "annotation Tickets" not in Listening.asked


def test_committed_pictures_are_of_all_dashboards() -> None:
    """docs/img has one of each, small enough, and none of a dashboard that is gone."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "img"
    found = {file.stem: file.stat().st_size for file in folder.glob("argus-*.png")}
    assert found.keys() == set(all_uids())
    assert max(found.values()) < 350_000


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0.00123, "s", None, "1.23 ms"),
        (75.0, "s", None, "1.25 mins"),
        (0.0, "s", None, "0 s"),
        (0.153, "percentunit", 1, "15.3%"),
        (1.5, "suffix:x", 2, "1.50 x"),
        (12_345.0, "short", None, "12.3 K"),
        (3 * 2**20, "bytes", None, "3 MiB"),
        (640.0, "watt", None, "640 W"),
        (1.8e12, "dateTimeAsIsoNoDateIfToday", None, "2027-01-15 08:00:00"),
    ],
)
def test_numbers_have_the_unit_of_their_panel(
    value: float, unit: str, decimals: int | None, text: str
) -> None:
    """As Grafana would write them."""
    assert values.with_unit(value, unit, decimals) == text


@pytest.mark.parametrize(
    ("low", "high", "unit", "texts"),
    [
        (0.0, 0.0004, "percentunit", ["0.00 %", "0.01 %", "0.02 %", "0.03 %", "0.04 %"]),
        (0.0, 4.2, "s", ["0 s", "2 s", "4 s"]),
        (0.95, 1.55, "suffix:x", ["1.0 x", "1.2 x", "1.4 x"]),
    ],
)
def test_axes_have_round_ticks(low: float, high: float, unit: str, texts: list[str]) -> None:
    """Few places that are easy to read, with enough digits to differ."""
    places, shown = values.ticks(low, high, unit)
    assert shown == texts
    assert all(low <= place <= high or math.isclose(place, low) for place in places)


def test_rows_of_several_queries_become_one_table() -> None:
    """Grafana's merge: rows whose common labels agree; a label that one query lacks does not part them."""
    first = [
        {"metric": {"kernel": "a", "name": "A()"}, "value": [0, "1"]},
        {"metric": {"kernel": "b"}, "value": [0, "2"]},
    ]
    second = [{"metric": {"kernel": "a"}, "value": [0, "3"]}, {"metric": {"kernel": "c"}, "value": [0, "4"]}]

    columns, rows = frames.table([first, second], [])

    assert rows == [
        {"kernel": "a", "name": "A()", "Value #A": 1.0, "Value #B": 3.0},
        {"kernel": "b", "Value #A": 2.0},
        {"kernel": "c", "Value #B": 4.0},
    ]
    assert set(columns) == {"kernel", "name", "Value #A", "Value #B"}


def test_a_matrix_has_its_places_in_the_order_that_the_panel_asks_for() -> None:
    """By number, not by text, 2 before 10; without that as the answer has them, as in Grafana."""
    result = [{"metric": {"dp": dp, "tp": tp}, "value": [0, dp]} for dp in ("10", "2") for tp in ("1", "0")]
    steps = panels_.matrix(
        "t", "d", "e", rows="dp", columns="tp", numbered=("dp", "tp"), unit="s", thresholds=[]
    ).to_json_data()["transformations"]
    [grouping] = [step for step in steps if step["id"] == "groupingToMatrix"]

    columns, rows = frames.table([result], steps)

    assert columns == ["dp\\tp", "0", "1"]
    assert [row["dp\\tp"] for row in rows] == ["2", "10"]
    columns, rows = frames.table([result], [grouping])
    assert columns == ["dp\\tp", "1", "0"]
    assert [row["dp\\tp"] for row in rows] == ["10", "2"]


def test_a_number_that_is_missing_has_the_colour_that_grafana_gives_it() -> None:
    """That of the panel's mapping; without one the base colour, which is how a fault of a panel is seen."""
    grey = {"type": "special", "options": {"match": "null+nan", "result": {"text": "?", "color": "#808080"}}}
    field = {"noValue": "none", "thresholds": {"steps": [{"color": "green", "value": None}]}}

    assert values.show(None, {**field, "mappings": [grey]}) == values.Shown("?", "#808080")
    assert values.show(None, field) == values.Shown("none", colours.NAMED["green"])


def test_a_legend_begins_with_the_worst() -> None:
    """In the order of the panel, with the numbers that it names."""
    panel = panels_.lines("t", "d", [("{{rank}}", "e")], unit="s").to_json_data()
    series = [frames.Series("calm", [0.0, 1.0], [2.0, 2.0]), frames.Series("burst", [0.0, 1.0], [9.0, 1.0])]

    drawn = markup.legend(panel, series, lambda _, line: line.name)

    assert drawn.index("burst") < drawn.index("calm")
    assert "9 s" in drawn


def test_every_dashboard_reads_something() -> None:
    """The synthetic answers above would also satisfy an empty query."""
    for uid in all_uids():
        for panel in panels(load(uid)):
            for target in panel["targets"]:
                assert metric_names(target["expr"].replace("$map_statistic", "statistic")), panel["title"]
