"""`make preview`: every dashboard over a bad afternoon of a simulated fleet, as pages and pictures.

    PYTHONPATH=dashboards python -m argus_preview [--ranks N] [--pages FOLDER] [--pictures FOLDER]
    PYTHONPATH=dashboards python -m argus_preview --url http://127.0.0.1:9090 [--job NAME]

The second form draws what a Prometheus of yours holds. Without a browser only the pages are written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argus_dashboards.probe import Source, all_uids, load, resolve
from argus_preview import browser
from argus_preview.answers import Scene, add_arguments, opened
from argus_preview.page import render, write_library

REPOSITORY = Path(__file__).resolve().parents[2]


def draw(source: Source, scene: Scene, pages: Path) -> list[Path]:
    """Write one page a dashboard."""
    pages.mkdir(parents=True, exist_ok=True)
    write_library(pages)
    written = []
    for uid in all_uids():
        dashboard = load(uid)
        values = resolve(source, dashboard, scene.variables(uid))
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
    add_arguments(parser)
    parser.add_argument("--pages", type=Path, default=REPOSITORY / "build" / "preview")
    parser.add_argument("--pictures", type=Path, default=REPOSITORY / "build" / "preview")
    options = parser.parse_args()
    with opened(options) as (source, scenes):
        screenshot(draw(source, scenes[0], options.pages), options.pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
