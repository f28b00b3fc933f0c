"""/traces over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from argus_core.store.base import StoredObject, StoreUnavailable
from argus_core.store.folder import FolderStore
from argus_l3_worker.traces import serving
from argus_l3_worker.traces.config import TracesConfig
from argus_l3_worker.traces.serving import add_routes

KEY = "llm/2026-11-21/3/000000000128-000000000143-20261121T030000.000Z.perfetto-trace"
CONTENT = bytes(range(256)) * 4096


class Presigning(FolderStore):
    """A folder that says where else its objects lie, as S3 does."""

    def presign(self, key: str, seconds: int) -> str | None:
        return f"https://store.example/{key}?expires={seconds}"


class Failing(FolderStore):
    """A store that is away."""

    def head(self, key: str) -> StoredObject:  # noqa: ARG002  (the store's interface)
        raise StoreUnavailable("s3://secret-bucket: connection refused")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """One trace."""
    (tmp_path / "outside.perfetto-trace").write_text("secret")
    folder = FolderStore(tmp_path / "store")
    folder.put(KEY, io.BytesIO(CONTENT))
    return folder


@asynccontextmanager
async def _served(store: FolderStore, config: TracesConfig | None = None) -> AsyncIterator[tuple[Any, str]]:
    app = web.Application()
    add_routes(app.router, store, config or TracesConfig())
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{port}/traces/"
    finally:
        await runner.cleanup()


def _get(
    store: FolderStore, path: str, config: TracesConfig | None = None, **options: Any
) -> tuple[int, Any, bytes]:
    async def run() -> tuple[int, Any, bytes]:
        async with _served(store, config) as (session, base):
            method = options.pop("method", "GET")
            url = URL(base + path, encoded=True)
            async with session.request(method, url, allow_redirects=False, **options) as answer:
                return answer.status, answer.headers, await answer.read()

    return asyncio.run(run())


def test_a_trace_is_served_whole(store: FolderStore) -> None:
    """With its length, and readable by the Perfetto UI alone."""
    status, headers, body = _get(store, KEY)
    assert (status, body) == (200, CONTENT)
    assert headers["Content-Length"] == str(len(CONTENT)) and headers["Accept-Ranges"] == "bytes"
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-299", 100, 300),
        ("bytes=1048000-", 1_048_000, 1_048_576),
        ("bytes=-7", 1_048_569, 1_048_576),
        ("bytes=5-99999999", 5, 1_048_576),
    ],
)
def test_ranges_are_served_exactly(store: FolderStore, asked: str, begin: int, end: int) -> None:
    """206 with the range in bytes."""
    status, headers, body = _get(store, KEY, headers={"Range": asked})
    assert (status, body) == (206, CONTENT[begin:end])
    assert headers["Content-Range"] == f"bytes {begin}-{end - 1}/{len(CONTENT)}"


@pytest.mark.parametrize("asked", ["bytes=2000000-", "bytes=-0"])
def test_ranges_beyond_the_end_are_refused(store: FolderStore, asked: str) -> None:
    """416 with the size."""
    status, headers, _ = _get(store, KEY, headers={"Range": asked})
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "bytes=9-3", "lines=1-2", "bytes=-", "x"])
def test_ranges_that_are_not_understood_are_passed_over(store: FolderStore, asked: str) -> None:
    """The whole file, as the RFC allows."""
    status, _, body = _get(store, KEY, headers={"Range": asked})
    assert (status, len(body)) == (200, len(CONTENT))


def test_head_says_the_size_without_the_content(store: FolderStore) -> None:
    """For clients that plan their ranges."""
    status, headers, body = _get(store, KEY, method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(CONTENT)), b"")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.perfetto-trace",
        "%2e%2e/outside.perfetto-trace",
        "llm/../../outside.perfetto-trace",
        "llm%2f..%2f..%2foutside.perfetto-trace",
        "/etc/passwd",
        "%2fetc%2fpasswd.perfetto-trace",
        "llm/.upload-x.perfetto-trace",
        "llm\\..\\outside.perfetto-trace",
        quote("llm/\0.perfetto-trace"),
        "../",
        "%2e%2e/",
    ],
)
def test_nothing_outside_the_store_is_reached(store: FolderStore, path: str) -> None:
    """No way of writing .. or a root leads out."""
    status, _, body = _get(store, path)
    assert status in (400, 404)
    assert b"secret" not in body and b"root:" not in body


def test_a_missing_trace_is_404_and_other_files_are_refused(store: FolderStore) -> None:
    """A key that is not there (yet), and one that is no trace."""
    assert _get(store, KEY.replace("128", "129"))[0] == 404
    assert _get(store, "llm/2026-11-21/3/other.txt")[0] == 400


def test_a_store_with_links_is_redirected_to(tmp_path: Path) -> None:
    """302 to the presigned URL; `proxy` and presign_seconds 0 keep to the worker."""
    store = Presigning(tmp_path)
    store.put(KEY, io.BytesIO(CONTENT))
    status, headers, _ = _get(store, KEY)
    assert (status, headers["Location"]) == (302, f"https://store.example/{KEY}?expires=600")
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert _get(store, f"{KEY}?proxy=1")[2] == CONTENT
    assert _get(store, KEY, TracesConfig(presign_seconds=0))[2] == CONTENT


def test_the_page_hands_the_trace_to_the_ui(store: FolderStore) -> None:
    """It fetches from the worker itself and posts to the UI's origin alone."""
    status, headers, body = _get(store, f"{KEY}?ui=1", TracesConfig(ui_url="https://perfetto.example/ui"))
    text = body.decode()
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert f'"url": "/traces/{KEY}?proxy=1"' in text
    assert '"origin": "https://perfetto.example"' in text and '"ui": "https://perfetto.example/ui"' in text
    assert "postMessage('PING', origin)" in text and "{perfetto: {buffer, title, fileName: file}}" in text
    nonce = text.split('nonce="')[1].split('"')[0]
    assert f"script-src 'nonce-{nonce}'" in headers["Content-Security-Policy"]


# A browser that has what the page's script uses; the UI answers the third PING.
_BROWSER = """
const assert = require('node:assert');
const log = [], listeners = [];
let pings = 0;
const perfetto = {postMessage(message, origin, moved) {
  if (message !== 'PING') { log.push([message, origin, moved.length]); return; }
  assert.equal(origin, 'https://ui.perfetto.dev');
  pings += 1;
  if (pings === 2) {
    listeners.forEach(f => f({source: perfetto, origin: 'https://evil.example', data: 'PONG'}));
  }
  if (pings === 3) listeners.forEach(f => f({source: perfetto, origin, data: 'PONG'}));
}};
const parts = {open: {}, state: {}, trace: {textContent: DATA}};
globalThis.document = {getElementById: id => parts[id]};
globalThis.window = {
  open: url => (log.push(['open', url]), perfetto),
  addEventListener: (_, f) => listeners.push(f),
};
globalThis.fetch = async url => {
  log.push(['fetch', url]);
  return {ok: true, arrayBuffer: async () => new ArrayBuffer(5)};
};
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is absent, which runs the page's script")
@pytest.mark.servers
def test_the_page_waits_for_the_ui_and_posts_the_trace_to_it_alone(store: FolderStore) -> None:
    """Opens the UI in the click, fetches once, and posts only after the UI itself has answered."""
    text = _get(store, f"{KEY}?ui=1")[2].decode()
    data = text.split('id="trace"')[1].split(">", 1)[1].split("</script>")[0]
    script = text.rpartition("<script")[2].split(">", 1)[1].split("</script>")[0]
    play = (
        f"{_BROWSER.replace('DATA', json.dumps(data))}{script}"
        "parts.open.onclick().then(() => console.log(JSON.stringify([pings, ...log])));"
    )
    run = subprocess.run(["node", "-e", play], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    pings, opened, fetched, (message, origin, moved) = json.loads(run.stdout)
    assert pings >= 3
    assert opened == ["open", "https://ui.perfetto.dev"]
    assert fetched == ["fetch", f"/traces/{KEY}?proxy=1"]
    assert message["perfetto"]["title"] == KEY and message["perfetto"]["fileName"] == KEY.rpartition("/")[2]
    assert (origin, moved) == ("https://ui.perfetto.dev", 1)


def test_the_whole_store_is_not_listed(store: FolderStore) -> None:
    """At least a job's day: more could be a million keys."""
    for prefix in ("", "llm/"):
        assert _get(store, prefix)[0] == 400


def test_a_prefix_lists_its_traces(store: FolderStore) -> None:
    """What an alert names before its trace is there: the rank's traces of the day."""
    status, _, body = _get(store, "llm/2026-11-21/3/")
    assert status == 200 and f'href="/traces/{KEY}?ui=1"' in body.decode()
    assert b"No trace here" in _get(store, "llm/2026-11-22/3/")[2]


def test_a_dump_of_a_hang_is_listed_and_downloaded(store: FolderStore) -> None:
    """It opens in no UI."""
    dump = KEY.replace(".perfetto-trace", ".flight-nccl.json.gz")
    store.put(dump, io.BytesIO(b"packed"))
    _, _, page = _get(store, "llm/2026-11-21/")
    assert f'href="/traces/{dump}"'.encode() in page
    for path in (dump, f"{dump}?ui=1"):
        status, headers, content = _get(store, path)
        assert (status, content, headers["Content-Type"]) == (200, b"packed", "application/octet-stream")


def test_a_preflight_allows_ranges(store: FolderStore) -> None:
    """Browsers ask before they send a Range header to another origin."""
    status, headers, _ = _get(store, KEY, method="OPTIONS", headers={"Origin": "https://ui.perfetto.dev"})
    assert status == 204 and headers["Access-Control-Allow-Headers"] == "Range"


def test_a_store_that_is_away_is_503_without_its_secrets(tmp_path: Path) -> None:
    """The reason is for the log."""
    status, _, body = _get(Failing(tmp_path), KEY)
    assert status == 503 and b"secret" not in body


def test_who_reads_nothing_holds_up_nobody(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As suspended laptops: others download meanwhile, and after a while those are let go."""
    store.put(KEY, io.BytesIO(bytes(32 << 20)))
    monkeypatch.setattr(serving, "_WRITE_SECONDS", 1.0)
    caplog.set_level("INFO")

    async def run() -> tuple[bytes, list[bytes]]:
        async with _served(store) as (session, base):
            url = URL(base + KEY)
            asleep = []
            for _ in range(2 * serving._READERS):
                reader, writer = await asyncio.open_connection("127.0.0.1", url.port, limit=1024)
                writer.write(f"GET {url.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                await writer.drain()
                asleep.append((reader, writer))
            async with asyncio.timeout(60):
                async with session.get(url) as answer:
                    whole = await answer.read()
                while caplog.text.count("nobody reads it") < len(asleep):
                    await asyncio.sleep(0.05)
                ends = [await _to_the_end(reader) for reader, _ in asleep]
            for _, writer in asleep:
                writer.close()
            return whole, ends

    async def _to_the_end(reader: asyncio.StreamReader) -> bytes:
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""

    whole, ends = asyncio.run(run())
    assert len(whole) == 32 << 20
    assert all(len(end) < 32 << 20 for end in ends)
