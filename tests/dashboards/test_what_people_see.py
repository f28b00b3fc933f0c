"""What Grafana makes of a well formed dashboard: what is green, what is first, what fits, what is folded.

Each of these was seen wrong in pictures by Grafana's own components. `make preview-grafana` also checks what
only a picture shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

# First: it puts dashboards/ on the path.
from tools.generate_dashboards import DASHBOARDS, render  # isort: skip
from argus_dashboards.inspection import panels
from argus_dashboards.job.first_screen import ROWS
from argus_dashboards.theme import BAD, COUNT, EXACT, RATIO, UNKNOWN
from argus_preview.markup import GRID_COLUMN

every_dashboard = pytest.mark.parametrize("uid", sorted(DASHBOARDS))
HEADINGS = {"lastNotNull": "Last *", "max": "Max", "min": "Min", "mean": "Mean"}


def of_type(uid: str, kind: str) -> Iterator[dict[str, Any]]:
    dashboard = json.loads(render(DASHBOARDS[uid]))
    return (panel for panel in panels(dashboard) if panel["type"] == kind)


def is_matrix(panel: dict[str, Any]) -> bool:
    return any(step["id"] == "groupingToMatrix" for step in panel["transformations"])


def fields(panel: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The defaults of a panel, and each override, as (name, properties)."""
    config = panel["fieldConfig"]
    yield panel["title"], config["defaults"]
    for override in config["overrides"]:
        properties = {one["id"]: one["value"] for one in override["properties"]}
        yield override["matcher"]["options"], properties


@every_dashboard
def test_a_number_that_is_not_there_is_grey(uid: str) -> None:
    """Each stat says so itself: else Grafana paints it in the base colour of the thresholds, often green."""
    for panel in of_type(uid, "stat"):
        [missing] = [one for one in panel["fieldConfig"]["defaults"]["mappings"] if one["type"] == "special"]
        assert missing["options"]["match"] == "null+nan", panel["title"]
        assert missing["options"]["result"]["color"] == UNKNOWN, panel["title"]


@every_dashboard
def test_nothing_makes_a_good_zero_of_no_data(uid: str) -> None:
    """A sum of nothing is 0 only where the job is watched."""
    for kind in ("stat", "timeseries"):
        for panel in of_type(uid, kind):
            assert all("or vector(" not in target["expr"] for target in panel["targets"]), panel["title"]


@every_dashboard
def test_each_line_has_a_name_of_its_own(uid: str) -> None:
    """A kernel runs on several streams, in several modes: lines of one name cannot be told apart."""
    for panel in of_type(uid, "timeseries"):
        for target in panel["targets"]:
            whole = re.match(
                r"(?:topk\(\d+, |clamp_\w+\()?\w+ by \(([^)]*)\)", " ".join(target["expr"].split())
            )
            by = set(re.findall(r"\w+", whole[1])) if whole else set()
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert {"stream", "mode"} & by <= named, (panel["title"], target["legendFormat"])


def test_rules_and_worker_that_nobody_measures_are_not_said_to_be_well() -> None:
    """Prometheus may not scrape itself, and nobody may scrape the worker."""
    sections = {"Slowest rule groups", "Evaluations missed", "Rule groups", "Cycle", "Delivery", "Spool"}
    dashboard = json.loads(render(DASHBOARDS["argus-itself"]))
    for panel in panels(dashboard):
        if panel["title"] in sections:
            assert "scrape" in panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@every_dashboard
def test_rows_and_columns_of_a_matrix_are_in_order(uid: str) -> None:
    """Grafana's own order is that of the values, which is another one at each refresh."""
    for panel in filter(is_matrix, of_type(uid, "table")):
        first, by_column, grouped, by_row, last = panel["transformations"]
        row, column = grouped["options"]["rowField"], grouped["options"]["columnField"]
        corner = f"{row}\\{column}"
        assert by_column["options"]["sort"] == [{"field": column}]
        assert by_row["options"]["sort"] == [{"field": corner}]
        numbers = {one["targetField"] for one in first["options"]["conversions"]}
        assert numbers >= {row}
        # A number would be one of the values whose range is coloured.
        assert last["options"]["conversions"] == [{"targetField": corner, "destinationType": "string"}]


@every_dashboard
def test_legends_name_the_worst_first(uid: str) -> None:
    """They have room for three or four of twenty lines: by a number that they show, the largest first."""
    for panel in of_type(uid, "timeseries"):
        legend = panel["options"]["legend"]
        assert legend["sortBy"] in [HEADINGS[calc] for calc in legend["calcs"]], panel["title"]
        assert legend["sortDesc"] == (legend["sortBy"] != "Min"), panel["title"]


@every_dashboard
def test_axes_of_shares_are_of_what_is_shown(uid: str) -> None:
    """Whole units would end the axis at 200 %; nothing but zeros at 10,000 %."""
    for panel in of_type(uid, "timeseries"):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults["unit"] == RATIO:
            assert "decimals" not in defaults, panel["title"]
            assert defaults["custom"]["axisSoftMax"] == 0.01, panel["title"]


@every_dashboard
def test_all_columns_are_inside_their_panel(uid: str) -> None:
    """On 1,920 pixels; matrices have as many columns as there are places."""
    for panel in of_type(uid, "table"):
        if is_matrix(panel):
            continue
        told = {name: one["custom.width"] for name, one in fields(panel) if "custom.width" in one}
        places = told.pop("/^(dp|tp|pp|ep)$/", None)
        headings = panel["transformations"][-1]["options"]["renameByName"].values()
        least = panel["fieldConfig"]["defaults"]["custom"]["minWidth"]
        widths = [
            places if places and name in ("dp", "tp", "pp", "ep") else told.get(name, least)
            for name in headings
        ]
        assert sum(widths) <= panel["gridPos"]["w"] * GRID_COLUMN, (panel["title"], widths)


@every_dashboard
def test_no_count_is_red(uid: str) -> None:
    """40 lost GPUs are much of 64 and little of 10,000: shares have colours, counts have none."""
    for kind in ("stat", "table"):
        for panel in of_type(uid, kind):
            for name, field in fields(panel):
                if field.get("unit") in (COUNT, EXACT):
                    colours = {step["color"] for step in field.get("thresholds", {}).get("steps", ())}
                    assert BAD not in colours, (panel["title"], name)


def test_the_job_answers_on_one_screen() -> None:
    """What is open when the page is opened fits on 1,080 lines; all else is folded, and asks nothing."""
    dashboard = json.loads(render(DASHBOARDS["argus-job"]))
    first, *others = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    shown = [panel for panel in dashboard["panels"] if panel["type"] != "row"]

    assert not first["collapsed"]
    assert all(row["collapsed"] for row in others)
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) <= ROWS


@every_dashboard
def test_no_title_sends_readers_to_a_paper(uid: str) -> None:
    """A figure's number says nothing to whoever is called at night."""
    dashboard = json.loads(render(DASHBOARDS[uid]))
    for panel in panels(dashboard):
        assert not re.search(r"\bfigure\b", f"{panel['title']} {panel['description']}", re.I), panel["title"]
