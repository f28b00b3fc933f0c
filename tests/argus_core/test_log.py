"""The log: one event is one line that logfmt readers can read, whatever the names in it are."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.log import Log, on_stderr
from argus_core.log_limiter import LogLimiter

LINE = re.compile(
    r"time=(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) level=(?P<level>[A-Z]+) "
    r"source=(?P<source>\S+) (?P<event>.*)\n"
)
FIELD = re.compile(r'(\w+)=("(?:\\.|[^"\\])*"|[^\s"=]*)(?: |$)')

log = Log("argus_core.test")


def fields(event: str) -> dict[str, str]:
    """What a reader of logfmt makes of it; fails where it cannot read all of it."""
    assert FIELD.sub("", event) == ""
    return {key: json.loads(text) if text[:1] == '"' else text for key, text in FIELD.findall(event)}


def read(text: str) -> dict[str, str]:
    """The fields of the only line."""
    line = LINE.fullmatch(text)
    assert line is not None, text
    return {**line.groupdict(), **fields(line["event"])}


def test_a_line_is_as_prometheus_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Time in UTC, level, place in the code, message, values."""
    with on_stderr("info"):
        log.warning("rank connected", training_job="llm", rank=3, share=0.123456789, delivered=False)
    text = capsys.readouterr().err
    assert re.fullmatch(
        r"time=\S+Z level=WARN source=test_log\.py:\d+ "
        r'msg="rank connected" training_job=llm rank=3 share=0\.123457 delivered=false\n',
        text,
    )


@given(st.text(st.characters(), max_size=40))
def test_no_value_ends_or_forges_a_line(name: str) -> None:
    """A job named like the rest of a line is a value, and comes out as it went in."""
    record = logging.makeLogRecord({})
    logger = logging.getLogger("argus_core.test")
    logger.addFilter(kept := lambda one: bool(record.__dict__.update(one.__dict__)))
    try:
        log.error("rank connected", training_job=name, rank=3)
    finally:
        logger.removeFilter(kept)
    event = record.getMessage()
    assert event.isprintable()
    assert fields(event) == {"msg": "rank connected", "training_job": name, "rank": "3"}


def test_a_traceback_stays_on_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours, and what a library raises."""
    with on_stderr("info"):
        for write in (log.exception, logging.getLogger("elsewhere").exception):
            try:
                raise ValueError("no\nsuch rank")
            except ValueError:
                write("window lost")
            found = read(capsys.readouterr().err)
            assert found["msg"] == "window lost"
            assert found["error"].startswith("Traceback") and found["error"].endswith("no\nsuch rank")


def test_libraries_are_heard_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Also at level debug: below it they write requests with their signatures."""
    library = logging.getLogger("botocore")
    with on_stderr("debug"):
        library.debug("Authorization: secret")
        library.warning("slow answer of %s\n", "s3")
    assert read(capsys.readouterr().err)["msg"] == "slow answer of s3\n"


def test_a_level_is_a_threshold_while_the_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing stays behind in a process that goes on."""
    before = logging.getLogger().handlers[:]
    with on_stderr("error"):
        log.warning("slow")
        log.error("lost")
    log.error("after")
    assert read(capsys.readouterr().err)["msg"] == "lost"
    assert logging.getLogger().handlers == before


def test_a_limiter_names_the_place_that_warns(capsys: pytest.CaptureFixture[str]) -> None:
    """Not its own."""
    with on_stderr("info"):
        LogLimiter(log).warning("kind", "producer refused", reason="version")
    assert read(capsys.readouterr().err)["source"].startswith(Path(__file__).name)
