"""Which windows are judged, and which ranks take part."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argus_core import native
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.read import mode_columns
from argus_l3_worker.read.assemble import JobSamples, assemble
from argus_l3_worker.read.mode_columns import ModeColumns, decode_modes
from argus_l3_worker.read.prometheus import Sample, Series, decode_matrix, decode_vector, selector
from argus_l3_worker.read.windows import Span, due, published_windows
from argus_l3_worker.triples import Window


def line(last_step: int, *counts: float, start: float = 0.0) -> Series:
    points = tuple((start + 5.0 * i, count) for i, count in enumerate(counts))
    return Series({"last_step": str(last_step)}, points)


def test_each_window_is_looked_at_when_most_ranks_publish_it() -> None:
    """Ranks are scraped one after another; the latest time with all eight is taken."""
    seen = published_windows([line(64, 5, 8, 8, 3), line(128, 5, 8, start=15.0)])
    assert [(one.last_step, one.time, one.ranks) for one in seen] == [(64, 10.0, 8), (128, 20.0, 8)]


def test_a_windows_steps_were_done_since_the_window_before_was_seen() -> None:
    """So far apart were they published first; of the first of all it is not known."""
    first, second, third = published_windows(
        [line(64, 5, 8), line(128, 8, start=15.0), line(192, 8, start=35.0)]
    )
    assert first.span is None
    assert (second.span, third.span) == (Span(15.0, 15.0), Span(35.0, 20.0))


def test_a_window_that_is_still_coming_in_waits() -> None:
    """Three of eight ranks publish it: not yet, unless it has been so for a whole cycle."""
    seen = published_windows([line(64, 8, 8), line(128, 3, start=10.0)])
    assert [one.last_step for one in due(seen, -1, 8, 10.0, 60.0, 3)] == [64]
    assert [one.last_step for one in due(seen, -1, 8, 70.0, 60.0, 3)] == [64, 128]


def test_windows_are_judged_once_and_the_last_few_only() -> None:
    """64 was judged before; of the four others the last three are left."""
    seen = published_windows([line(64 * i, 8, start=60.0 * i) for i in range(1, 6)])
    assert [one.last_step for one in due(seen, 64, 8, 400.0, 60.0, 3)] == [192, 256, 320]


def test_windows_that_a_backlog_left_out_are_not_judged_after_newer_ones() -> None:
    """After a start or an outage: two older windows with each new one were verdicts of the past."""
    seen = published_windows([line(64 * i, 8, start=60.0 * i) for i in range(1, 11)])
    judged: list[int] = []
    for published in range(5, 11):
        at = 60.0 * published + 10.0
        judged += [
            one.last_step for one in due(seen[:published], judged[-1] if judged else -1, 8, at, 60.0, 3)
        ]
    assert judged == [64 * i for i in range(3, 11)]


def test_a_restarted_job_forgets_the_windows_before() -> None:
    """Steps went back: windows of the former run say nothing about this one."""
    seen = published_windows([line(640, 8), line(704, 8, start=60.0), line(64, 8, start=120.0)])
    assert [one.last_step for one in seen] == [64]


def test_a_rank_that_counts_its_steps_apart_has_no_windows_of_the_job() -> None:
    """Eight ranks are at 10,048, then 10,112; one process, elsewhere, goes its own way between them."""
    job = [line(10_048, 8, 8, 5, 0), line(10_112, 3, 8, 8, start=10.0)]
    for apart in (0, 64, 90_000):
        own = [line(apart, 1, 1, 1), line(apart + 1, 1, 1, start=15.0)]
        seen = published_windows([*own, *job])
        assert [(one.last_step, one.ranks) for one in seen] == [(10_048, 8), (10_112, 8)]


def test_as_many_ranks_that_count_apart_do_not_make_the_job_go_back_and_forth() -> None:
    """Four ranks at each: the job stays where it was, and goes on with it."""
    job, others = [line(64, 4, 4), line(128, 4, 4, start=10.0)], [line(960, 4, 4, 4, 4)]
    assert [one.last_step for one in published_windows([*job, *others])] == [64, 128]
    assert [one.last_step for one in published_windows([*others, *job])] == [64, 128]


def test_a_step_that_is_no_number_is_of_no_window() -> None:
    """One bad series must not fail its job in each cycle."""
    bad = [Series({"last_step": text}, ((0.0, 9.0),)) for text in ("NaN", "+Inf", "-Inf")]
    assert [one.last_step for one in published_windows([*bad, line(64, 8)])] == [64]


def test_a_job_that_does_its_steps_again_has_the_new_windows() -> None:
    """Back at its last checkpoint: 640 is published for the second time, and not since the first."""
    again = Series({"last_step": "640"}, ((0.0, 8.0), (5.0, 8.0), (20.0, 8.0)))
    seen = published_windows([again, line(704, 8, 8, start=10.0)])
    assert [(one.last_step, one.first_seen) for one in seen] == [(640, 20.0)]


# Decoding


def vector(*values: str) -> bytes:
    elements = ",".join(f'{{"metric":{{"rank":"{i}"}},"value":[1,"{v}"]}}' for i, v in enumerate(values))
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{elements}]}}}}'.encode()


def test_values_that_are_no_numbers_do_not_pass_the_decoder() -> None:
    """NaN and both infinities are dropped; a finite value stays."""
    assert [(s.labels["rank"], s.value) for s in decode_vector(vector("NaN", "+Inf", "-Inf", "2.5"))] == [
        ("3", 2.5)
    ]
    assert decode_vector(vector()) == []


def test_series_without_a_finite_point_are_no_series() -> None:
    """A matrix row of NaN alone is left out."""
    answer = (
        b'{"status":"success","data":{"resultType":"matrix","result":['
        b'{"metric":{"a":"1"},"values":[[1,"NaN"]]},{"metric":{"a":"2"},"values":[[1,"NaN"],[2,"3"]]}]}}'
    )
    assert decode_matrix(answer) == [Series({"a": "2"}, ((2.0, 3.0),))]


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        b"[]",
        b'{"status":"success","data":{"resultType":"scalar","result":[]}}',
        b'{"status":"error","errorType":"bad_data","error":"parse error"}',
    ],
)
def test_other_answers_are_errors(answer: bytes) -> None:
    """What is not an instant vector is refused, not guessed at."""
    with pytest.raises(QueryError):
        decode_vector(answer)


def test_selectors_escape_what_kernels_are_called() -> None:
    """Quotes in matchers, regular expression signs in alternatives."""
    assert selector("m", {"job": 'a"b'}) == 'm{job="a\\"b"}'
    assert selector("m", kernel=["f+g", "h.i"]) == 'm{kernel=~"f\\\\+g|h\\\\.i"}'


# Assembling


def answer(of: list[Sample]) -> bytes:
    """What Prometheus answers an instant query with."""
    result = [{"metric": one.labels, "value": [0, repr(one.value)]} for one in of]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def samples(last_steps: dict[str, int], roles: dict[str, str] | None = None) -> JobSamples:
    names = {"kernel": "gemm", "stream": "compute0", "mode": "0"}

    def each(value: float, **more: str) -> list[Sample]:
        return [Sample({"rank": rank, **more}, value) for rank in last_steps]

    return JobSamples(
        rank_info=[
            Sample({"rank": rank, **({"role": roles[rank]} if roles else {})}, 1.0) for rank in last_steps
        ],
        last_step=[Sample({"rank": rank}, float(step)) for rank, step in last_steps.items() if step],
        steps=[Sample({"rank": rank}, 64.0) for rank, step in last_steps.items() if step],
        modes=decode_modes(*(answer(each(value, **names)) for value in (100.0, 1e-3, 2e-3))),
    )


def test_ranks_of_another_window_are_left_out_by_name() -> None:
    """The most common window is judged; the rank that is behind and the one without kernels are listed."""
    found = assemble("llm", samples({"0": 128, "1": 128, "2": 64, "3": 128, "10": 0}))
    (role,) = found.roles
    assert role.ranks == ("0", "1", "3")
    assert role.window == Window(128, 64)
    assert {(one.rank, one.reason) for one in found.not_judged} == {
        ("10", "no kernel window"),
        ("2", "other window: steps 1..64 instead of steps 65..128"),
    }


def test_a_role_whose_ranks_all_differ_is_not_judged() -> None:
    """Abstains with windows-disagree."""
    found = assemble("llm", samples({"0": 64, "1": 128, "2": 192, "3": 256}))
    assert [one.reason for one in found.abstentions] == ["windows-disagree"]


def test_roles_are_compared_apart() -> None:
    """Ranks of two pipeline stages never meet in one table."""
    found = assemble(
        "llm", samples(dict.fromkeys("0123", 64), {"0": "pp0", "1": "pp0", "2": "pp1", "3": "pp1"})
    )
    assert {role.role: role.ranks for role in found.roles} == {"pp0": ("0", "1"), "pp1": ("2", "3")}


class CountedSamples(list[Sample]):
    """Counts how often it is gone through."""

    passes = 0

    def __iter__(self) -> Iterator[Sample]:
        self.passes += 1
        return super().__iter__()


def test_what_ranks_say_is_read_once_however_many_roles_there_are() -> None:
    """A job of 10,240 ranks may have 1,280 roles: once for each of them took 8 s."""
    ranks = [str(rank) for rank in range(40)]
    whole = samples(dict.fromkeys(ranks, 64), {rank: f"pp{int(rank) // 2}" for rank in ranks})
    said = [CountedSamples(Sample({"rank": rank}, 0.5) for rank in ranks) for _ in range(4)]
    cutoff, coverage, tail_events, work = said
    found = assemble(
        "llm", replace(whole, cutoff=cutoff, coverage=coverage, tail_events=tail_events, work=work)
    )
    assert len(found.roles) == 20
    assert [of.passes for of in said] == [1, 1, 1, 1]


def test_an_incomplete_triple_is_no_mode() -> None:
    """A count without p50, or with a p50 of zero, is left out, and counted by reason."""
    where = {"kernel": "gemm", "stream": "compute0", "mode": "0"}
    count, p50, p99 = (
        [Sample({**where, "rank": rank}, value) for rank in "0123"] for value in (100.0, 1e-3, 2e-3)
    )
    p50[2] = Sample(p50[2].labels, 0.0)
    whole = replace(
        samples(dict.fromkeys("0123", 64)), modes=decode_modes(*map(answer, (count, p50[1:], p99)))
    )
    found = assemble("llm", whole)
    assert found.roles[0].pairs[0].ranks.tolist() == [1, 3]
    assert found.left_out == {"incomplete or not finite": 1, "implausible duration or count": 1}


# Answers as Prometheus writes them are read by the library


TRICKY = [
    Sample({"rank": "0", "kernel": 'k"value":[1,"2"]', "stream": "s", "mode": "0"}, 100.0),
    Sample({"rank": "1", "kernel": "gemm<4>", "stream": "s", "mode": "0"}, 200.0),
]


def as_prometheus(of: list[Sample], **more: object) -> bytes:
    """Without spaces, as Prometheus writes it, which escapes what HTML knows."""
    content = json.loads(answer(of)) | more
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").encode()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[bytes]], ModeColumns]:
    """Decodes without the library."""

    def decode(answers: Sequence[bytes]) -> ModeColumns:
        with monkeypatch.context() as without:
            without.setenv("ARGUS_NO_NATIVE", "1")
            return decode_modes(*answers)

    return decode


def same(one: ModeColumns, other: ModeColumns) -> bool:
    columns = ("rank", "pair", "p50", "p99", "count")
    return (one.ranks, one.pairs, one.left_out) == (other.ranks, other.pairs, other.left_out) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in columns
    )


LABELS = st.dictionaries(
    st.sampled_from(("rank", "kernel", "stream", "mode")),
    st.one_of(st.sampled_from(("0", "1", "gemm<4>", 'a"b\\')), st.text(max_size=4)),
)
VALUES = st.one_of(st.floats(1e-9, 1e7), st.sampled_from((0.0, math.nan, math.inf, -math.inf)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LABELS, VALUES), max_size=6), st.permutations(range(6)))
def test_the_library_reads_what_is_parsed_without_it(
    plain: Callable[[Sequence[bytes]], ModeColumns],
    of: list[tuple[dict[str, str], float]],
    order: list[int],
) -> None:
    """Any text in labels, or none; any value; the second answer in another order, and one series short."""
    events = [Sample(labels, value) for labels, value in of]
    median = [events[place] for place in order if place < len(events)][:-1]
    answers = [as_prometheus(one) for one in (events, median, events)]
    assert same(decode_modes(*answers), plain(answers))


@pytest.mark.skipif(native.library() is None, reason="libargus_numeric is not built here")
def test_no_object_is_made_for_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed is what stands around the elements; also where a label looks like a value."""
    parsed: list[bytes] = []
    once = mode_columns.result_of
    monkeypatch.setattr(mode_columns, "result_of", lambda of, kind: parsed.append(of) or once(of, kind))
    found = decode_modes(*(as_prometheus(TRICKY),) * 3)
    assert parsed == [as_prometheus([])] * 3
    assert set(found.pairs) == {("gemm<4>", "s"), ('k"value":[1,"2"]', "s")}


def test_answers_in_another_order_are_put_in_order() -> None:
    """As when a series came between two queries."""
    median = [Sample(one.labels, one.value * 1e-5) for one in reversed(TRICKY)]
    found = decode_modes(as_prometheus(TRICKY), *(as_prometheus(median),) * 2)
    assert found.p50.tolist() == [1e-3, 2e-3]


def test_an_incomplete_second_answer_is_seen() -> None:
    """Its elements are those of the first; what it says beside them counts."""
    with pytest.raises(PartialAnswer, match="isPartial"):
        decode_modes(as_prometheus(TRICKY), as_prometheus(TRICKY, isPartial=True), as_prometheus(TRICKY))
