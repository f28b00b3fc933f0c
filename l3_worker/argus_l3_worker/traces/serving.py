"""`/traces/KEY` over HTTP: the file by ranges, a page that opens it in the Perfetto UI, and lists of keys.

Dumps of torch's flight recorder lie among the traces, and are downloaded as they are.

The UI at https://ui.perfetto.dev fetches traces only from https and from http://127.0.0.1:9001 (its content
security policy), so a link with `#!/?url=` works where the worker is behind https. The page of `?ui=1` works
everywhere: it fetches the trace from where it came itself and hands it over by postMessage, as Perfetto
documents (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator
from html import escape
from typing import Final

from aiohttp import web

from argus_core.log import Log
from argus_core.store.base import ObjectStore, StoreDenied, StoredObject, StoreError, StoreMissing
from argus_core.store.keys import SUFFIX, check_key, is_dump
from argus_l3_worker.traces.config import TracesConfig
from argus_l3_worker.traces.pages import list_page, ui_page

log = Log(__name__)

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_LISTED: Final = 500
_LEAST_PARTS: Final = 2
# Chunks that are read at a time: each holds a thread.
_READERS: Final = 8
# For a chunk of a download; who takes none for so long is gone, or suspended.
_WRITE_SECONDS: Final = 60.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_routes(router: web.UrlDispatcher, store: ObjectStore, config: TracesConfig) -> None:
    """Serve `store` under /traces/."""
    files = _Traces(store, config)
    router.add_get("/traces/{key:.*}", files.get)  # HEAD too
    router.add_options("/traces/{key:.*}", files.preflight)


class _Traces:
    def __init__(self, store: ObjectStore, config: TracesConfig) -> None:
        self._store = store
        self._config = config
        self._readers = asyncio.Semaphore(_READERS)

    async def preflight(self, _: web.Request) -> web.Response:
        """What the UI may do: browsers ask before a request with a range, or to a private address."""
        return web.Response(
            status=204,
            headers={
                **self._cors(),
                "Access-Control-Allow-Methods": "GET, HEAD",
                "Access-Control-Allow-Headers": "Range",
                "Access-Control-Allow-Private-Network": "true",
                "Access-Control-Max-Age": "3600",
            },
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """A trace, a page for it, or a list."""
        key = request.match_info["key"]
        try:
            if not key or key.endswith("/"):
                return await self._list(key)
            check_key(key)
            if not (key.endswith(SUFFIX) or is_dump(key)):
                raise ValueError(f"{key!r} is not the key of a trace: it would end in {SUFFIX}")
            found = await asyncio.to_thread(self._store.head, key)
            if "ui" in request.query and key.endswith(SUFFIX):
                return ui_page(key, self._config.ui_url, self._config.ui_origin)
            if self._config.presign_seconds and "proxy" not in request.query:
                url = await asyncio.to_thread(self._store.presign, key, self._config.presign_seconds)
                if url is not None:
                    return web.Response(status=302, headers={**self._cors(), "Location": url})
            return await self._send(request, found)
        except ValueError as error:
            return self._refused(400, str(error))
        except StoreMissing:
            return self._refused(404, f"no trace {key}: it may still be on its way, or have been deleted")
        except StoreError as error:
            log.warning("trace not served", key=key, error=error)
            # What exactly is wrong with the store is for the log: the caller may be anybody.
            return self._refused(502 if isinstance(error, StoreDenied) else 503, "the store of traces fails")

    async def _list(self, prefix: str) -> web.Response:
        # Less than a job's day can be the whole store, which takes long to list.
        if prefix.count("/") < _LEAST_PARTS:
            raise ValueError("give a key, or the beginning of keys: training_job/YYYY-MM-DD/ or .../rank/")
        check_key(prefix.rstrip("/"))
        found = await asyncio.to_thread(lambda: list(itertools.islice(self._store.list(prefix), _LISTED + 1)))
        shown = [one for one in found if one.key.endswith(SUFFIX) or is_dump(one.key)]
        return list_page(prefix, shown, _LISTED)

    async def _send(self, request: web.Request, found: StoredObject) -> web.StreamResponse:
        span = _span(request.headers.get("Range"), found.size)
        if span is None:
            return web.Response(
                status=416, headers={**self._cors(), "Content-Range": f"bytes */{found.size}"}
            )
        first, length = span
        partial = length != found.size
        headers = {
            **self._cors(),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
            "Content-Length": str(length),
            "Content-Disposition": f'attachment; filename="{found.key.replace("/", "_")}"',
            "X-Content-Type-Options": "nosniff",
        }
        if partial:
            headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{found.size}"
        response = web.StreamResponse(status=206 if partial else 200, headers=headers)
        if request.method == "HEAD" or length == 0:
            await response.prepare(request)
            return response
        chunks = self._store.get(found.key, first, length)
        # The first chunk before the first header: a failure until then still gets a status of its own.
        chunk = await self._read(chunks)
        await response.prepare(request)
        while chunk:
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(chunk)
            except TimeoutError:
                log.info("download given up, nobody reads it", key=found.key)
                if request.transport is not None:
                    request.transport.abort()
                break
            chunk = await self._read(chunks)
        return response

    async def _read(self, chunks: Iterator[bytes]) -> bytes:
        async with self._readers:
            return await asyncio.to_thread(next, chunks, b"")

    def _cors(self) -> dict[str, str]:
        return {
            "Access-Control-Allow-Origin": self._config.ui_origin,
            "Access-Control-Expose-Headers": "Content-Length, Content-Range, Accept-Ranges",
            "Vary": "Origin",
        }

    def _refused(self, status: int, reason: str) -> web.Response:
        return web.Response(status=status, text=f"{escape(reason)}\n", headers=self._cors())


def _span(header: str | None, size: int) -> tuple[int, int] | None:
    """(first byte, length) that a Range header asks for; None: nothing of the file.

    A header that is no single range of bytes is passed over, as RFC 9110 14.2 allows.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or match.groups() == ("", ""):
        return 0, size
    begin, end = match.groups()
    if not begin:
        length = min(int(end), size)
        return (size - length, length) if length else None
    first = int(begin)
    last = min(int(end), size - 1) if end else size - 1
    if first >= size:
        return None
    return (first, last - first + 1) if last >= first else (0, size)
