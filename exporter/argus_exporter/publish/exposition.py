"""The text of a scrape: rendered by prometheus_client, and kept where nothing changed since it was rendered.

Most series of a host describe the last kernel window and change once a minute, while two Prometheus replicas
ask every 15 s each. Rendering a sample takes 5 us; seeing that it is the one that was rendered, 10 ns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.metrics_core import Metric

Encoder = Callable[[Any], bytes]
"""What `prometheus_client.exposition.choose_encoder` gives: renders whatever has `collect()`."""

_PAGES_KEPT: Final = 16
"""Below 1 MB each for 8 ranks. The host's page in one or two formats, or one page a rank."""


@dataclass(frozen=True)
class _Families:
    """As much of a registry as an encoder uses."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


@dataclass(frozen=True)
class _Rendered:
    family: Metric
    text: bytes


class Exposition:
    """Renders scrapes. Families that it was given must not change afterwards."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, dict[str, _Rendered]] = OrderedDict()

    def render(self, families: Iterable[Metric], encoder: Encoder, page: Hashable) -> bytes:
        """The text of `families`, the same as `encoder` makes of all of them at once.

        Args:
            page: names what is asked for, format included; a family is rendered again unless it equals the
                one of the last scrape of this page.
        """
        before = self._pages.pop(page, {})
        now: dict[str, _Rendered] = {}
        trailer = encoder(_Families(()))  # OpenMetrics ends with a mark, the classic format with nothing
        parts: list[bytes] = []
        for family in families:
            rendered = before.get(family.name)
            if rendered is None or rendered.family != family:
                text = encoder(_Families((family,))).removesuffix(trailer)
                rendered = _Rendered(family, text)
            now[family.name] = rendered
            parts.append(rendered.text)
        self._pages[page] = now
        while len(self._pages) > _PAGES_KEPT:
            self._pages.popitem(last=False)
        return b"".join((*parts, trailer))
