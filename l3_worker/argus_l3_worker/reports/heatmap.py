"""A distance matrix as a picture: one HTML file that needs nothing else, or PNG by matplotlib."""

from __future__ import annotations

import base64
import json
import textwrap
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.reports.matrix import Matrix, binned

# Cells a side: what a screen shows; 1.5 MB as HTML.
_CELLS: Final = 800
_LEVELS: Final = 65_535

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>%(title)s</title>
<style>
body { font: 14px sans-serif; margin: 1.5em; color: #222 }
canvas { image-rendering: pixelated; width: min(80vh, 90vw); aspect-ratio: 1; border: 1px solid #999 }
#said { min-height: 1.5em; font-variant-numeric: tabular-nums }
.note { color: #a40 }
</style></head><body>
<h1 style="font-size:1.2em">%(title)s</h1>
<p>%(subtitle)s</p><p class="note">%(note)s</p>
<canvas id="map"></canvas><p id="said">Point at a cell.</p>
<script>
"use strict";
const data = %(data)s;
const bytes = Uint8Array.from(atob(data.cells), c => c.charCodeAt(0));
const cells = new Uint16Array(bytes.buffer), n = data.n;
const map = document.getElementById("map"), said = document.getElementById("said");
map.width = map.height = n;
const pen = map.getContext("2d"), image = pen.createImageData(n, n);
const stops = [[68,1,84],[59,82,139],[33,145,140],[94,201,98],[253,231,37]];  // viridis
for (let i = 0; i < n * n; i++) {
  const x = cells[i] / %(levels)d * 4, k = Math.min(3, Math.floor(x)), f = x - k;
  for (let c = 0; c < 3; c++) image.data[4*i + c] = stops[k][c] * (1 - f) + stops[k + 1][c] * f;
  image.data[4*i + 3] = 255;
}
pen.putImageData(image, 0, 0);
map.addEventListener("mousemove", e => {
  const at = map.getBoundingClientRect();
  const j = Math.min(n - 1, Math.floor((e.clientX - at.left) / at.width * n));
  const i = Math.min(n - 1, Math.floor((e.clientY - at.top) / at.height * n));
  if (i < 0 || j < 0) return;
  const distance = cells[i * n + j] / %(levels)d * data.largest * data.factor;
  const told = distance.toPrecision(4) + " " + data.unit;
  said.textContent = data.names[i] + "  |  " + data.names[j] + ":  " + told;
});
</script></body></html>
"""


def as_html(matrix: Matrix, title: str) -> str:
    """A page with the matrix on a canvas; names and distance under the pointer."""
    cells, size = binned(matrix.seconds, _CELLS)
    largest = float(cells.max(initial=0.0))
    scaled = np.round(cells / (largest or 1.0) * _LEVELS).astype("<u2")
    names = [f"rank {rank} ({place})" if place else f"rank {rank}" for rank, place in _named(matrix)]
    if size > 1:
        names = [
            f"{names[begin]} to {names[min(begin + size, len(names)) - 1]}"
            for begin in range(0, len(names), size)
        ]
    factor, unit = _unit(largest)
    data = {
        "n": len(cells),
        "factor": factor,
        "unit": unit,
        "largest": largest,
        "names": names,
        "cells": base64.b64encode(scaled.tobytes()).decode(),
    }
    return _PAGE % {
        "title": escape(title),
        "subtitle": escape(_subtitle(matrix, largest)),
        "note": escape(_note(matrix, size)),
        # Names come from labels: none may end the script.
        "data": json.dumps(data).replace("<", "\\u003c"),
        "levels": _LEVELS,
    }


def write_png(matrix: Matrix, title: str, file: Path) -> None:
    """The same by matplotlib.

    Raises:
        ArgusWorkerError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgusWorkerError(
            "a PNG needs matplotlib: pip install 'argus-for-prometheus[plots]', or write an .html file"
        ) from error
    cells, size = binned(matrix.seconds, _CELLS)
    figure = Figure(figsize=(9, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    factor, unit = _unit(float(cells.max(initial=0.0)))
    shown = axes.imshow(cells * factor, interpolation="nearest")
    figure.colorbar(shown, label=f"W1, {unit}", shrink=0.8)
    ticks = np.unique(np.linspace(0, len(cells) - 1, min(len(cells), 12)).astype(int))
    told = _telling(matrix)
    named = [f"rank {matrix.ranks[tick * size]} {told[tick * size]}".rstrip() for tick in ticks]
    axes.set_xticks(ticks, named, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(ticks, named, fontsize=7)
    axes.set_title(textwrap.fill(title, 100), fontsize=9, parse_math=False)
    axes.set_xlabel(_note(matrix, size), fontsize=8)
    figure.savefig(file, format="png", dpi=120)


def _unit(seconds: float) -> tuple[float, str]:
    """(how many a second has, name) of the unit in which the largest distance reads well."""
    return (1e6, "µs") if seconds < 10e-3 else (1e3, "ms") if seconds < 10.0 else (1.0, "s")


def _telling(matrix: Matrix) -> list[str]:
    """The places without what all ranks have in common, which tells nothing."""
    parts = [place.split() for place in matrix.places]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    return [" ".join(part for part in of if part not in common) for of in parts]


def _named(matrix: Matrix) -> list[tuple[str, str]]:
    return list(zip(matrix.ranks, matrix.places, strict=True))


def _subtitle(matrix: Matrix, largest: float) -> str:
    factor, unit = _unit(largest)
    return (
        "Wasserstein-1 distance between the ranks' durations of the kernel, in the order of pp, tp, dp, "
        f"node. Dark: 0, bright: {largest * factor:.4g} {unit}. {len(matrix.ranks)} ranks."
    )


def _note(matrix: Matrix, size: int) -> str:
    notes = [matrix.note] if matrix.note else []
    if size > 1:
        notes.append(f"one cell is {size} x {size} ranks, the largest distance among them")
    return "; ".join(notes)
