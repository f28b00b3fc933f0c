"""Headless Chromium: pages drawn, captured, and read back."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from PIL import Image

from argus_dashboards.theme import PHASE_COLOURS
from argus_preview.colours import NAMED

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BUDGET_MS: Final = 60_000
"""Virtual time: it passes as fast as the page allows."""
_TIMEOUT_SECONDS: Final = 180.0
_COLOURS: Final = 72
"""Of a picture, beside those that mean something, which a choice by medians would mix: blue with teal."""


class BrowserFailed(Exception):
    """The page was not drawn; the message says what the browser said."""


def find() -> str | None:
    """Path of an installed Chromium or Chrome."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def document(browser: str, page: Path, width: int = 1920, height: int = 3000) -> str:
    """The document after all scripts have run.

    Raises:
        BrowserFailed: the browser ended with an error.
    """
    return _run(browser, page, width, height, "--dump-dom").decode()


def picture(browser: str, page: Path, file: Path, width: int = 1920) -> str:
    """A PNG of the whole page, with few colours: it goes into the repository. Returns the document.

    Raises:
        BrowserFailed: the browser ended with an error, or a script of the page did.
    """
    drawn = document(browser, page, width)
    failures = re.search(r'data-failures="([^"]*)"', drawn)
    if failures is None or failures[1]:
        raise BrowserFailed(f"{page.name}: {failures[1] if failures else 'scripts did not end'}")
    grid = re.search(r'id="grid" style="[^"]*height:\s*(\d+)px', drawn)
    height = int(grid[1]) + 130 if grid else 3000
    taken = file.with_suffix(".full.png")
    _run(browser, page, width, height, f"--screenshot={taken}")
    with Image.open(io.BytesIO(taken.read_bytes())) as image:
        _few_colours(image.convert("RGB")).save(file, optimize=True)
    taken.unlink()
    return drawn


def _few_colours(image: Image.Image) -> Image.Image:
    palette = image.quantize(_COLOURS).getpalette() or []
    for colour in (*NAMED.values(), *PHASE_COLOURS.values()):
        palette += bytes.fromhex(colour.removeprefix("#"))
    chosen = Image.new("P", (1, 1))
    chosen.putpalette(palette)
    return image.quantize(palette=chosen, dither=Image.Dither.NONE)


def _run(browser: str, page: Path, width: int, height: int, what: str) -> bytes:
    command = [
        browser,
        "--headless",
        "--no-sandbox",  # as root, in a container: and the page is our own
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
        f"--virtual-time-budget={_BUDGET_MS}",
        what,
        page.resolve().as_uri(),
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BrowserFailed(f"{page.name}: not drawn within {_TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise BrowserFailed(f"{page.name}: {browser} ended with {done.returncode}: {done.stderr[-500:]!r}")
    return done.stdout
