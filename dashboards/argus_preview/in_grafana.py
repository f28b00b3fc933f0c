"""`make preview-grafana`: stat, time series and tables of every dashboard drawn by Grafana's own components.

    PYTHONPATH=dashboards python -m argus_preview.in_grafana [--url http://127.0.0.1:9090 [--job NAME]]

For a faulty and for a healthy job, all of it, into build/grafana/pages; and for docs/img the faulty job as a
dashboard of it opens, with folded rows folded. It needs Node 20, npm and Chromium, and fetches 0.5 GB into
build/grafana once: the components (Apache-2.0), and a file of Grafana's Prometheus data source (AGPL), which
turns answers into tables. That file is run on this machine and is part of no build. What must hold of every
picture is checked (grafana/findings.ts); what does not is listed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Final

from argus_dashboards.probe import all_uids
from argus_preview import browser
from argus_preview.answers import add_arguments, document, opened

_FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "grafana"
_SOURCES: Final = Path(__file__).resolve().parent / "grafana"
_WIDTH: Final = 1920
_DATA_SOURCE: Final = "@grafana/prometheus"
_CONVERTER: Final = "result_transformer.mjs"
_LOADERS: Final = [f"--loader:.{kind}=dataurl" for kind in ("svg", "ttf", "woff", "woff2")]


class Missing(Exception):
    """A program that draws is not here, or has failed; the message says which, and what to do."""


def bundle(folder: Path) -> Path:
    """The page's script, with what it needs fetched before.

    Raises:
        Missing: npm is not here, or could not fetch or build.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in _SOURCES.iterdir():
        shutil.copy(file, folder)
    stamp, wanted = folder / "installed.json", (_SOURCES / "package.json").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"fetching Grafana's components into {folder} (0.5 GB, once)", flush=True)
        _run(folder, "npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund")
        version = json.loads(wanted)["dependencies"]["@grafana/data"]
        # Packed and not installed: it wants an older React than the components do.
        packed = _run(folder, "npm", "pack", "--silent", f"{_DATA_SOURCE}@{version}").split()[-1]
        with tarfile.open(folder / packed) as archive:
            member = archive.extractfile(f"package/dist/esm/{_CONVERTER}")
            if member is None:
                raise Missing(f"{_DATA_SOURCE} {version} has no {_CONVERTER}")
            (folder / _CONVERTER).write_bytes(member.read())
        stamp.write_text(wanted)
    script = folder / "draw.js"
    _run(
        folder,
        str(folder / "node_modules" / ".bin" / "esbuild"),
        "draw.tsx",
        "--bundle",
        "--format=iife",
        "--jsx=automatic",
        "--define:global=window",
        "--alias:@grafana/runtime=./runtime.ts",
        *_LOADERS,
        f"--outfile={script}",
        "--log-level=error",
    )
    return script


def _run(folder: Path, *command: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Missing(f"no {command[0]} on PATH (Debian: apt-get install nodejs npm)") from error
    if done.returncode != 0:
        raise Missing(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr[:800]}")
    return done.stdout


def draw(chromium: str, data: object, place: Path) -> list[str]:
    """A page and a picture of one dashboard, and what is wrong with it.

    Raises:
        BrowserFailed: a script of the page failed.
    """
    script = json.dumps(data).replace("</", "<\\/")
    place.with_suffix(".html").write_text(
        '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="../draw.css">'
        f'<body style="margin:0"><div id="root"></div><script>window.DOCUMENT = {script}</script>'
        '<script src="../draw.js"></script>',
        encoding="utf-8",
    )
    drawn = browser.picture(chromium, place.with_suffix(".html"), place.with_suffix(".png"), _WIDTH)
    found = re.search(r'data-findings="([^"]*)"', drawn)
    return [] if found is None else list(json.loads(unescape(found[1])))


def everything(options: argparse.Namespace, chromium: str) -> Iterator[str]:
    """Draw all dashboards of all scenes, and yield what is wrong with each."""
    bundle(options.folder)
    pages = options.folder / "pages"
    pages.mkdir(exist_ok=True)
    with opened(options) as (source, scenes):
        for scene in scenes:
            for uid in options.dashboard or all_uids():
                begun = time.perf_counter()
                data = document(source, uid, scene)
                place = pages / f"{uid}-{scene.name}"
                wrong = draw(chromium, data, place)
                if options.pictures is not None and scene is scenes[0]:
                    draw(chromium, {**data, "folded": True}, pages / uid)
                    shutil.copy(pages / f"{uid}.png", options.pictures)
                print(f"wrote {place}.png ({time.perf_counter() - begun:.0f} s)", flush=True)
                yield from (f"{uid}, {scene.name}: {one}" for one in wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="argus_preview.in_grafana",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--folder", type=Path, default=_FOLDER)
    parser.add_argument("--pictures", type=Path, help="where the pictures of docs/img go (default: nowhere)")
    parser.add_argument("--dashboard", action="append", choices=all_uids(), help="only this one")
    options = parser.parse_args()
    chromium = browser.find()
    try:
        if chromium is None:
            raise Missing("no Chromium or Chrome on PATH (Debian: apt-get install chromium)")
        wrong = list(everything(options, chromium))
    except Missing as missing:
        print(f"preview-grafana: {missing}", file=sys.stderr)
        return 2
    print("\n".join(wrong) or "nothing wrong was found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
