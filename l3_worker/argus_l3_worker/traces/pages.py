"""The two small pages under /traces/: a list of keys, and the one that opens the Perfetto UI."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from aiohttp import web

from argus_core.store.base import StoredObject
from argus_core.store.keys import is_dump

_STYLE = "body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:60rem;padding:0 1rem}" \
    "code{word-break:break-all}button{font:inherit;padding:.5rem 1rem}"  # fmt: skip

_SCRIPT = """
const {ui, origin, url, title, file} = JSON.parse(document.getElementById('trace').textContent);
const say = text => { document.getElementById('state').textContent = text; };
document.getElementById('open').onclick = async () => {
  // The window must be opened by the click itself, or browsers block it.
  const target = window.open(ui);
  if (!target) { say('The browser blocked the window: allow pop-ups for this page.'); return; }
  say('Fetching the trace ...');
  const ready = new Promise(resolve => {
    // Messages before the UI listens are lost, so it is asked until it answers.
    const timer = setInterval(() => target.postMessage('PING', origin), 50);
    window.addEventListener('message', event => {
      if (event.source === target && event.origin === origin && event.data === 'PONG') {
        clearInterval(timer);
        resolve();
      }
    });
  });
  const answer = await fetch(url);
  if (!answer.ok) { say('Not fetched: ' + answer.status + ' ' + await answer.text()); return; }
  const buffer = await answer.arrayBuffer();
  say('Waiting for the Perfetto UI ...');
  await ready;
  target.postMessage({perfetto: {buffer, title, fileName: file}}, origin, [buffer]);
  say('Opened.');
};
"""


def ui_page(key: str, ui_url: str, ui_origin: str) -> web.Response:
    """A page whose button opens the trace in the UI."""
    name = key.rpartition("/")[2]
    data = json.dumps(
        {
            "ui": ui_url,
            "origin": ui_origin,
            "url": f"/traces/{quote(key)}?proxy=1",
            "title": key,
            "file": name,
        }
    ).replace("<", "\\u003c")
    nonce = secrets.token_urlsafe(16)
    return _page(
        f"<p><code>{escape(key)}</code></p>"
        '<p><button id="open">Open in the Perfetto UI</button> <span id="state"></span></p>'
        f"<p>The trace stays in this browser: {escape(ui_origin)} shows it without uploading it. "
        f'<a href="/traces/{quote(key)}">Download</a></p>'
        f'<script type="application/json" id="trace" nonce="{nonce}">{data}</script>'
        f'<script nonce="{nonce}">{_SCRIPT}</script>',
        f"script-src 'nonce-{nonce}'; connect-src 'self'; ",
    )


def list_page(prefix: str, found: Sequence[StoredObject], limit: int) -> web.Response:
    """Links to the traces below a prefix."""
    lines = [
        f'<li><a href="/traces/{quote(one.key)}{"" if is_dump(one.key) else "?ui=1"}">'
        f"<code>{escape(one.key)}</code></a> {one.size / 1e3:.0f} kB</li>"
        for one in found[:limit]
    ]
    more = f"<p>Only the first {limit} are shown.</p>" if len(found) > limit else ""
    what = f"<ul>{''.join(lines)}</ul>{more}" if lines else "<p>No trace here (yet).</p>"
    return _page(f"<p>Traces below <code>/{escape(prefix)}</code></p>{what}", "")


def _page(body: str, policy: str) -> web.Response:
    return web.Response(
        text=f"<!doctype html><html lang=en><meta charset=utf-8><title>ARGUS trace</title>"
        f"<style>{_STYLE}</style><body>{body}</body></html>",
        content_type="text/html",
        headers={
            "Content-Security-Policy": f"default-src 'none'; style-src 'unsafe-inline'; {policy}",
            "X-Content-Type-Options": "nosniff",
            # The page must be able to keep a handle on the window that it opens.
            "Cross-Origin-Opener-Policy": "unsafe-none",
        },
    )
