"""Cards on jobs that were played through the shipped rules, on a real Prometheus."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tools.lint.names import SAMPLE_NAMES, recorded, series_in
from tools.lint.sources import rules

from argus_dashboards.columns import RUNBOOKS
from argus_dashboards.inspection import queries
from argus_dashboards.probe import Source, Span, load, resolve
from argus_l3_worker.cli import main
from argus_l3_worker.reports.questions import table
from l3_worker.played_jobs import END_S, JOBS, cards, explained, played

pytestmark = [pytest.mark.servers, pytest.mark.slow]
GOLDEN = Path(__file__).with_name("cards.txt")
NAMES = [job.name for job in JOBS]


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    with played() as url:
        yield url


def verdict(url: str, job: str, *options: str, at: float = END_S) -> dict[str, Any]:
    _, text = explained(url, job, "--json", *options, at=at)
    found: dict[str, Any] = json.loads(text)
    return found


def asked(url: str, query: str, time: str) -> list[float]:
    arguments = urllib.parse.urlencode({"query": query, "time": time})
    with urllib.request.urlopen(f"{url}/api/v1/query?{arguments}", timeout=20) as answer:
        return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]


def test_the_cards_are_those_that_were_read(prometheus: str) -> None:
    """Each kind: who, since when, cost, why, what refutes it, what to do. `played_jobs` writes them anew."""
    assert cards(prometheus) == GOLDEN.read_text("utf-8")


def test_a_card_fits_a_screen_and_its_first_line_a_phone(prometheus: str) -> None:
    for job in NAMES:
        first, *others = verdict(prometheus, job)["text"].splitlines()
        assert len(first) <= 110 and len(others) <= 11
        assert all(len(line) <= 100 for line in others if not line.startswith(("look", "id", "why")))


@pytest.mark.parametrize("job", NAMES)
def test_each_number_is_given_again_by_its_query(prometheus: str, job: str) -> None:
    """Asked as anybody would; what people read stands in it by its path; nobody need believe us."""
    found = verdict(prometheus, job)
    by_path = {one["id"]: one["value"] for one in found["evidence"]}
    for one in (*found["evidence"], *found["excluded"]):
        assert asked(prometheus, one["query"], one["time"]) == [pytest.approx(one["value"], abs=1e-6)]
    for part in ("job", "size", "cost", "history", "victims"):
        numbers = {name: value for name, value in found[part].items() if isinstance(value, float)}
        assert {f"{part}.{name}": value for name, value in numbers.items()}.items() <= by_path.items()
    for one in found["disproof"]:
        if one["query"]:
            assert bool(asked(prometheus, one["query"], found["made"]["time"])) == one["true"]


@pytest.mark.parametrize("job", NAMES)
def test_the_json_is_what_its_schema_says(
    prometheus: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shipped schema; nothing is in the JSON that it does not describe, and it is small."""
    with pytest.raises(SystemExit):
        main(["explain", "--schema"])
    schema = json.loads(capsys.readouterr().out)
    found = verdict(prometheus, job, "--traces-url", "http://worker", "--dashboard-url", "http://grafana/d/x")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    assert found.keys() == schema["properties"].keys() == set(schema["required"])
    assert len(json.dumps(found)) < 16 << 10


@pytest.mark.parametrize("job", NAMES)
def test_the_dashboard_says_the_same(prometheus: str, job: str) -> None:
    """Line for line, word for word; PromQL rounds to other digits, and names one rank of many."""
    source, dashboard = Source(prometheus, Span(END_S, 1800.0)), load("argus-job")
    values = resolve(source, dashboard, {"training_job": job})
    shown = [source.ask(query, values) for query in queries(dashboard) if query.panel == "The card"]
    assert not any(answer.error for answer in shown)
    rows = sorted(
        tuple(row["metric"].get(name) for name in ("order", "line", "text"))
        for one in shown
        for row in one.result
    )
    found = verdict(prometheus, job)
    if found["state"] not in ("suspect", "confirmed"):
        assert rows == []
        return
    first, *others = found["text"].splitlines()
    said = [("what", first.replace(f"{job}: ", "")), *((line[:8].strip(), line[9:]) for line in others)]
    assert [line for _, line, _ in rows] == [line for line, _ in said]
    for (_, line, text), (_, expected) in zip(rows, said, strict=True):
        if line == "who" and found["subject"]["ranks_count"] > 1:
            expected = f"{expected.split(',')[0]} and {found['subject']['ranks_count'] - 1} more"
        expected = re.sub(r"https://runbooks/(\w+)", RUNBOOKS + r"/\1" + ".md", expected).split(" --time")[0]
        numbers = re.compile(r"\d+(?:\.\d+)?")
        assert numbers.sub("#", text) == numbers.sub("#", expected)
        assert list(map(float, numbers.findall(text))) == pytest.approx(
            list(map(float, numbers.findall(expected))), rel=1e-3, abs=0.05
        )


def test_the_last_line_gives_the_card_again(prometheus: str) -> None:
    """Asked at any moment, between two evaluations."""
    _, text = explained(prometheus, "slow-rank", at=END_S - 6.3)
    moment = float(text.split("--time ")[1].split()[0])
    assert moment == END_S - 6.3 and explained(prometheus, "slow-rank", at=moment)[1] == text


def test_who_is_meant_is_told_apart(prometheus: str) -> None:
    """A rank, a set of which one is meant, a group, the job, nobody."""
    found = {job: verdict(prometheus, job) for job in NAMES}
    assert {job: one["kind"] for job, one in found.items()} == {
        "slow-rank": "slow_rank",
        "late-rank": "late_rank",
        "data-stall": "data_stall",
        "suspect-set": "suspect_set",
        "slow-link": "slow_link",
        "regression": "job_regression",
        "half-heard": "job_regression",
        "hang": "hang",
        "hang-of-nobody": "hang",
        "over": "slow_rank",
        "healthy": None,
        "abstention": None,
    }
    named = {
        job: (one["subject"]["type"], one["subject"]["ranks"]) for job, one in found.items() if one["kind"]
    }
    assert named == {
        "slow-rank": ("rank", ["3"]),
        "late-rank": ("rank", ["5"]),
        "data-stall": ("rank", ["2"]),
        "suspect-set": ("set", ["4", "5", "6", "7"]),
        "slow-link": ("group", ["4", "5", "6", "7"]),
        "regression": ("job", []),
        "half-heard": ("job", []),
        "hang": ("rank", ["2"]),
        "hang-of-nobody": ("job", []),
        "over": ("rank", ["1"]),
    }
    assert {job: one["state"] for job, one in found.items() if one["state"] != "confirmed"} == {
        "over": "over",
        "healthy": "none",
        "abstention": "abstained",
    }


def test_the_sizes_are_those_of_the_fault(prometheus: str) -> None:
    """Factor, lateness and cost, as they were put in."""
    slow = verdict(prometheus, "slow-rank")
    assert slow["size"] == pytest.approx(
        {"observed_s": 1.5, "baseline_s": 1.0, "ratio": 1.5, "peers": 7}, rel=0.01
    )
    assert slow["cost"]["step_without_s"] == pytest.approx(2.0, rel=0.02)
    assert slow["victims"]["count"] == 7
    assert verdict(prometheus, "late-rank")["size"]["late_s"] == pytest.approx(0.4, rel=0.01)
    assert verdict(prometheus, "slow-link")["size"]["ratio"] == pytest.approx(2.5, rel=0.02)


def test_an_id_stays_while_it_lasts(prometheus: str) -> None:
    """From the first information over the page to the end; another spell has another id."""
    times = (END_S - 840, END_S - 600, END_S - 300, END_S)
    found = [verdict(prometheus, "slow-rank", at=at) for at in times]
    assert [one["severity"] for one in found] == ["info", "page", "page", "page"]
    assert len({one["id"] for one in found}) == 1
    assert verdict(prometheus, "over", at=END_S - 700)["id"] == verdict(prometheus, "over")["id"]


def test_what_is_so_refutes_and_stands_first(prometheus: str) -> None:
    """Nobody explains a regression where too few ranks are heard: whoever does was not judged."""
    first = verdict(prometheus, "half-heard")
    assert first["kind"] == "job_regression" and {one["true"] for one in first["disproof"]} == {
        True,
        False,
        None,
    }
    assert "wrong if [YES] a rank was not judged; " in first["text"]
    [why] = first["not_judged"]
    assert why.startswith("too few ranks are heard: ") and why.count(" of dp:0") == 4


def test_a_link_leads_to_a_trace_where_there_is_one(prometheus: str) -> None:
    """No trace was asked for here, so no link pretends that there is one."""
    options = ("--traces-url", "http://worker", "--dashboard-url", "http://grafana/d/argus-job")
    links = verdict(prometheus, "slow-rank", *options)["links"]
    assert links == {
        "runbook": "https://runbooks/ArgusStragglerRank",
        "dashboard": "http://grafana/d/argus-job?var-rank=3&var-training_job=slow-rank",
    }


def test_what_cannot_be_asked_is_an_error(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No such job, no job named, no Prometheus: never "nothing found"."""
    assert main(["explain", "--prometheus.url", prometheus, "--job", "no-such"]) == 1
    assert main(["explain", "--prometheus.url", prometheus]) == 2
    assert main(["explain", "--prometheus.url", "http://127.0.0.1:1", "--job", "x"]) == 1
    assert "--job is missing" in capsys.readouterr().err


def test_jobs_of_one_name_are_told_apart_by_their_cluster(prometheus: str) -> None:
    """One is slow in x, the other healthy in y: nobody is mixed up, and the last line says which it is."""
    status, text = explained(prometheus, "twins")
    assert status == 4 and "jobs of several clusters have this name (x, y): say --cluster" in text
    status, text = explained(prometheus, "twins", "--cluster", "x")
    assert status == 0 and "rank 2 on node0 computes slowly" in text
    assert f"explain --job twins --cluster x --time {END_S:.0f}" in text
    assert explained(prometheus, "twins", "--cluster", "y")[0] == 3


def test_each_kind_has_what_a_card_needs() -> None:
    """Sizes and refutations are of the same kinds."""
    assert table()["size"].keys() == table()["refuted"].keys()


def test_what_is_asked_is_recorded_or_scraped() -> None:
    """No question names a series that nobody writes."""
    found = series_in(json.dumps(table()))
    assert len(found) > 20 and found <= SAMPLE_NAMES | recorded(rules("rules"))
