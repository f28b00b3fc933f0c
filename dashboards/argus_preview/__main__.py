"""`make preview`: every dashboard over a bad afternoon of a simulated fleet, as pages and pictures.

    PYTHONPATH=dashboards python -m argus_preview [--ranks N] [--pages FOLDER] [--pictures FOLDER]
    PYTHONPATH=dashboards python -m argus_preview --url http://127.0.0.1:9090 [--job NAME]

The second form draws what a Prometheus of yours holds. Without a browser only the pages are written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from argus_dashboards.probe import Source, Span, all_uids, load, resolve
from argus_preview import browser
from argus_preview.page import render, write_library

REPOSITORY = Path(__file__).resolve().parents[2]


def draw(source: Source, given: dict[str, dict[str, str]], pages: Path) -> list[Path]:
    """Write one page a dashboard. `given`: values of variables by dashboard; '' holds for all."""
    pages.mkdir(parents=True, exist_ok=True)
    write_library(pages)
    written = []
    for uid in all_uids():
        dashboard = load(uid)
        values = resolve(source, dashboard, given.get("", {}) | given.get(uid, {}))
        page = pages / f"{uid}.html"
        page.write_text(render(dashboard, source, values), encoding="utf-8")
        written.append(page)
        print(f"wrote {page}", flush=True)
    return written


def screenshot(pages: list[Path], pictures: Path) -> bool:
    """Pictures of pages; False where there is no browser."""
    chromium = browser.find()
    if chromium is None:
        print("no pictures: no Chromium or Chrome on PATH (Debian: apt-get install chromium)")
        return False
    pictures.mkdir(parents=True, exist_ok=True)
    for page in pages:
        file = pictures / f"{page.stem}.png"
        browser.picture(chromium, page, file)
        print(f"wrote {file} ({file.stat().st_size // 1000} kB)", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="argus_preview", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="draw what this Prometheus holds")
    parser.add_argument("--end", type=float, help="Unix time at which the range ends (default: now)")
    parser.add_argument("--job", default="", help="with --url: the training job (default: the first)")
    parser.add_argument(
        "--ranks", type=int, default=256, help="of the simulated fleet (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of history (default: %(default)s)")
    parser.add_argument("--pages", type=Path, default=REPOSITORY / "build" / "preview")
    parser.add_argument("--pictures", type=Path, default=REPOSITORY / "docs" / "img")
    options = parser.parse_args()
    if options.url:
        source = Source(options.url, Span(options.end or time.time()))
        given = {"": {"training_job": options.job}} if options.job else {}
        screenshot(draw(source, given, options.pages), options.pictures)
        return 0
    # Only here: whoever draws a Prometheus of their own needs no simulator.
    from bench import dashboard_stage as stage

    with tempfile.TemporaryDirectory() as folder:
        size = stage.Size(ranks=options.ranks, seconds=60 * options.minutes)
        played = stage.build(Path(folder), size, _progress())
        try:
            source = Source(played.server.url, Span(played.end, size.seconds, size.every))
            screenshot(draw(source, stage.variables(size), options.pages), options.pictures)
        finally:
            played.server.stop()
    return 0


def _progress() -> Callable[[str], None]:
    tty = sys.stderr.isatty()

    def say(text: str) -> None:
        if tty:
            print(f"\r{text:70}", end="", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
