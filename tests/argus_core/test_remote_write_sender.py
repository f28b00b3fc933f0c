"""Which version of remote write a receiver gets, what is made of its answers, and what is said about them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate

import aiohttp
import pytest

from argus_core.http_access import Access, AccessConfig
from argus_core.remote_write import Refused, encode_series, labels_of
from argus_core.remote_write_sender import (
    LONGEST_RETRY_AFTER_SECONDS,
    Sender,
    Unavailable,
    hint,
    retry_after_seconds,
)
from remote_write_receiver import Receiver, serving

Post = Callable[..., Awaitable[int]]


@contextlib.asynccontextmanager
async def posting(receiver: Receiver) -> AsyncIterator[tuple[Sender, Post]]:
    """A sender to the receiver, and what posts series of the given ranks by it."""
    async with serving(receiver) as url, aiohttp.ClientSession() as session:
        sender = Sender(url, Access(AccessConfig(), "write", "argus-test"), 5.0)

        async def post(*ranks: int) -> int:
            series = [encode_series(labels_of("a", rank=str(rank)), rank, 1_000) for rank in ranks]
            return await sender.post(session, series)

        yield sender, post


def versions(receiver: Receiver) -> list[int]:
    return [request.version for request in receiver.requests]


# Which version


async def test_a_receiver_that_changes_to_2_0_only_gets_it() -> None:
    """415 to 1.0: the receiver was set to the new message after we had found that it takes the old one."""
    receiver = Receiver(takes="1.0")
    async with posting(receiver) as (sender, post):
        assert await post(1) == 1
        receiver.takes, receiver.refuses_1 = "2.0", True
        assert [await post(2), await post(3)] == [1, 1]
    assert sender.version == 2
    assert versions(receiver) == [2, 1, 1, 2, 2]


async def test_a_refusal_without_counts_is_tried_in_1_0_until_counts_were_seen() -> None:
    """A proxy's 413 before and after the first answer with counts: the second is not about the message."""
    receiver = Receiver(answer=lambda labels: (413, "too large") if len(labels) > 1 else (204, ""))
    receiver.counts = lambda count: str(count) if count else None
    async with posting(receiver) as (sender, post):
        with pytest.raises(Refused, match="413"):
            await post(1, 2)
        assert await post(1) == 1
        with pytest.raises(Refused, match="413"):
            await post(1, 2)
    assert sender.version == 2
    assert versions(receiver) == [2, 1, 2, 2]


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405, 407, 408, 429, 502, 503, 504])
async def test_a_receiver_that_is_away_says_nothing_about_versions(status: int) -> None:
    """One request, and 2.0 again at the next try."""
    receiver = Receiver(answer=lambda _: (status, "no"))
    receiver.counts = lambda _: None
    async with posting(receiver) as (sender, post):
        with pytest.raises(Unavailable, match=f"HTTP {status}"):
            await post(1)
    assert sender.version == 2
    assert versions(receiver) == [2]


# What was written


@pytest.mark.parametrize(
    ("says", "written"),
    [("3", 3), ("1", 1), ("0", 0), ("99", 3), ("many", 0), ("-1", 0), ("", 0), ("9" * 6000, 0)],
)
async def test_a_success_is_as_much_as_the_receiver_counts(says: str, written: int) -> None:
    """Never more than was sent; what is no number counts nothing."""
    receiver = Receiver(counts=lambda _: says)
    async with posting(receiver) as (_, post):
        assert await post(1, 2, 3) == written
    assert versions(receiver) == [2]


async def test_1_0_cannot_count_and_is_believed() -> None:
    """Its receivers may send the headers of 2.0 with anything in them: the specification says not to look."""
    header = {"X-Prometheus-Remote-Write-Samples-Written": "0"}
    receiver = Receiver(takes="1.0")
    async with posting(receiver) as (_, post):
        assert await post(1) == 1
        receiver.answer_headers = header
        assert await post(1, 2) == 2


async def test_a_partial_write_is_final_and_counted() -> None:
    """One bad of five: four are stored, and nothing of it would be better sent again. Who stores parts once
    always does, so that a request of bad ones alone is final too."""
    receiver = Receiver(bad=lambda labels: ("rank", "3") in labels)
    async with posting(receiver) as (_, post):
        with pytest.raises(Refused) as caught:
            await post(3)
        assert (caught.value.written, caught.value.final) == (0, False)
        with pytest.raises(Refused, match="HTTP 400: out of order sample") as caught:
            await post(1, 2, 3, 4, 5)
        assert (caught.value.written, caught.value.final) == (4, True)
        with pytest.raises(Refused) as caught:
            await post(3)
        assert (caught.value.written, caught.value.final) == (0, True)
    assert versions(receiver) == [2, 2, 2]


async def test_noise_is_refused_without_a_request() -> None:
    """What no receiver could read is not sent."""
    receiver = Receiver()
    async with serving(receiver) as url, aiohttp.ClientSession() as session:
        sender = Sender(url, Access(AccessConfig(), "write", "argus-test"), 5.0)
        with pytest.raises(Refused, match="no series"):
            await sender.post(session, [b"\n\x7f"])
    assert receiver.requests == []


# Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("17", 17.0),
        ("86400", LONGEST_RETRY_AFTER_SECONDS),
        ("9" * 6000, LONGEST_RETRY_AFTER_SECONDS),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 31 Dec 2147483648 23:59:59 GMT", None),
        (formatdate(1_700_000_060, usegmt=True), 60.0),
        (formatdate(1_699_999_000, usegmt=True), 0.0),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    """As RFC 9110 has it, from 2023-11-14 22:13:20 UTC on."""
    assert retry_after_seconds(value, 1_700_000_000.0) == seconds


@pytest.mark.parametrize("status", [429, 503])
async def test_a_receivers_wish_is_handed_on(status: int) -> None:
    """To whoever decides when to try again."""
    receiver = Receiver(answer=lambda _: (status, "busy"), answer_headers={"Retry-After": "42"})
    async with posting(receiver) as (_, post):
        with pytest.raises(Unavailable) as caught:
            await post(1)
        assert caught.value.retry_after_seconds == 42.0
    assert len(receiver.requests) == 1


# What to do


@pytest.mark.parametrize(
    ("status", "text", "named"),
    [
        (401, "no org id", ("write.headers", "X-Scope-OrgID", "THANOS-TENANT", "write.basic_auth")),
        (403, "", ("write.headers", "write.bearer_token_file")),
        (404, "", ("--web.enable-remote-write-receiver", "/api/v1/push", "/api/v1/receive", "/insert/0/")),
        (405, "", ("/api/v1/write",)),
        (400, 'unsupported path requested: "/api/v1/write"', ("/insert/0/prometheus/api/v1/write",)),
        (302, "", ("redirects are not followed", "write")),
    ],
)
async def test_an_answer_about_us_names_what_to_set(status: int, text: str, named: tuple[str, ...]) -> None:
    """Headers of a tenant, and the path of each engine; vminsert says by a 400 that the path is wrong."""
    receiver = Receiver(answer=lambda _: (status, text))
    async with posting(receiver) as (_, post):
        with pytest.raises(Unavailable) as caught:
            await post(1)
        assert all(words in caught.value.remedy for words in named)
    assert len(receiver.requests) == 1


def test_where_time_mends_it_there_is_no_hint() -> None:
    """429 and 503 need no hands."""
    assert [hint(status, "", "write") for status in (429, 500, 503)] == ["", "", ""]


async def test_nobody_there_names_the_key_of_the_address() -> None:
    """Whose receiver does not run, or whose port is wrong."""
    sender = Sender("http://127.0.0.1:1/w", Access(AccessConfig(), "write", "argus-test"), 5.0)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(Unavailable, match=r"cannot be reached.*check write\.url"):
            await sender.post(session, [])
