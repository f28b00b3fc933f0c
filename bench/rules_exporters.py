"""The exporters of a fleet for a real Prometheus to scrape: a page a host, in a process of its own.

A page is a template, rendered once, into which a request puts the values of its moment: the server shares the
cores with the Prometheus that is measured. A past is scraped as well, quickly and with its own time at each
sample: Prometheus holds a series that was written to it first twice, once for the scrape.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from bench.series_writer import Series

JOB: Final = "argus"
_PLAY_SECONDS: Final = 120.0
_GIVEN_BY_SCRAPE: Final = ("job", "instance")
_NOW: Final = 0.0
"""In place of a past moment."""


@dataclass(frozen=True)
class Page:
    """What one host exposes.

    Attributes:
        template: with a place for each value.
        stamped: the same, each sample with a time.
        values, slopes: shape (series,); the value at step 0, and the increase a step.
    """

    template: str
    stamped: str
    values: NDArray[np.float64]
    slopes: NDArray[np.float64]

    @classmethod
    def of(cls, series: list[Series]) -> Page:
        lines = []
        for one in series:
            labels = dict(one.labels)
            name = labels.pop("__name__")
            own = ",".join(f'{key}="{text}"' for key, text in labels.items() if key not in _GIVEN_BY_SCRAPE)
            lines.append(f"{name}{{{own}}} %.12g")
        return cls(
            "\n".join([*lines, ""]),
            " MOMENT\n".join([*lines, ""]),
            np.array([one.value for one in series]),
            np.array([one.slope for one in series]),
        )

    def text(self, steps: float, moment: float | None) -> str:
        """After so many steps; of a past `moment`, Unix seconds, with its time."""
        template = self.template
        if moment is not None:
            template = self.stamped.replace("MOMENT", str(round(moment * 1000)))
        return template % tuple((self.values + self.slopes * steps).tolist())


class Exporters:
    """A page for each `instance` of the series, at `/<instance>`.

    Attributes:
        port: on 127.0.0.1.
        instances: in their order.
    """

    def __init__(self, series: Iterable[Series], *, began: float, step: float) -> None:
        """`began`: when the series were at step 0; `step`: length of a step; seconds."""
        by_host: dict[str, list[Series]] = defaultdict(list)
        for one in series:
            by_host[dict(one.labels)["instance"]].append(one)
        self.instances = list(by_host)
        # Listens before there is a process to answer: whoever connects meanwhile waits.
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self._socket.getsockname()[1])
        context = multiprocessing.get_context("fork")
        self._moment = context.Value("d", _NOW)
        self._served = context.Value("i", 0)
        pages = {instance: Page.of(of_host) for instance, of_host in by_host.items()}
        self._process = context.Process(
            target=_serve,
            args=(pages, self._socket, began, step, self._moment, self._served),
            daemon=True,
        )

    def __enter__(self) -> Exporters:
        self._process.start()
        self._socket.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    def play(self, moment: float) -> None:
        """Expose a past moment, Unix seconds, until every page was scraped.

        Raises:
            RuntimeError: some page was not, for two minutes.
        """
        self._served.value = 0
        self._moment.value = moment
        deadline = time.monotonic() + _PLAY_SECONDS
        while self._served.value < len(self.instances):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self._served.value} of {len(self.instances)} hosts were scraped in {_PLAY_SECONDS:g} s"
                )
            time.sleep(0.02)

    def go_live(self) -> None:
        """Expose the present from now on."""
        self._moment.value = _NOW

    def scrape_config(self, interval: float) -> dict[str, Any]:
        """For Prometheus: each page as a target with the `instance` of its host, each `interval` seconds."""
        return {
            "job_name": JOB,
            "scrape_interval": f"{interval:g}s",
            "scrape_timeout": f"{interval:g}s",
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{self.port}"],
                    "labels": {"instance": instance, "__metrics_path__": f"/{instance}"},
                }
                for instance in self.instances
            ],
        }


def _serve(
    pages: dict[str, Page], listener: socket.socket, began: float, step: float, moment: Any, served: Any
) -> None:
    """Answer scrapes until the process is ended; `served` counts the pages scraped at a past moment."""
    served_at: dict[str, float] = {}

    async def expose(request: web.Request) -> web.Response:
        instance, at = request.match_info["instance"], moment.value
        if at == _NOW:
            text = pages[instance].text((time.time() - began) / step, None)
        else:
            text = pages[instance].text((at - began) / step, at)
            served.value += served_at.get(instance) != at
            served_at[instance] = at
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.router.add_get("/{instance}", expose)
    web.run_app(application, sock=listener, print=None, access_log=None)
