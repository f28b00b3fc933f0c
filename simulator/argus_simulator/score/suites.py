"""Which scenarios a suite plays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.settings import SettingsError
from argus_simulator.lab import Variant, shipped, variants

SUITES: Final = ("dev", "all", "smoke")
SMOKE: Final = (
    ("faults/gpu-throttle", Variant("high", "")),
    ("faults/dataload-stall", Variant("high", "")),
    ("faults/hang-noncomm", Variant()),
    ("controls/stage-barrier", Variant()),
)
"""A slow GPU, a slow loader, a hang, and a healthy pipeline that is to be let be."""
_SECRET: Final = "argus-held-out-1"
"""In every hash that holds something out. Thresholds changed after seeing totals need a new one."""
_HELD_OUT_ROWS: Final = 3
_PAPER_ROWS: Final = frozenset(
    (
        "faults/gpu-throttle",
        "faults/pcie-degraded",
        "faults/ecc-intermittent",
        "faults/nvlink-degraded",
        "faults/fabric-congestion",
        "faults/rdma-link-quality",
        "faults/gc-async",
        "faults/dataload-stall",
        "faults/cpu-contention",
        "faults/moe-imbalance",
        "faults/no-overlap",
        "faults/compute-collapse",
        "faults/edp-pcie-link",
        "faults/pp-bubble",
        "faults/jit-shape-miss",
        "faults/ep-compute-decoy",
    )
)
"""Table 6 and cases 1 to 5 of ARGUS: always in the development suite."""


@dataclass(frozen=True)
class Playable:
    """One scenario by its name; the same one gives the same job."""

    name: str
    seed: int
    magnitude: str = ""
    topology: str = ""
    brief: bool = False
    """Half of the faulty part, which is enough for what a test should find."""
    held_out: bool = False
    """Other noise, a topology and a magnitude that no file has: see `scene`."""
    signals: str = "hooks"
    """What the producers send, see `ModelSettings`."""

    @property
    def title(self) -> str:
        # Files of two folders may be called alike.
        short = self.name if self.name.endswith(".yaml") else self.name.rpartition("/")[2]
        words = (short, self.magnitude, self.topology)
        return " ".join(word for word in words if word)


def playables(suite: str, seeds: Sequence[int], *, held_out: bool = False) -> list[Playable]:
    """What a suite plays with each of the seeds.

    `dev` plays one variant of a row, another one with the next seed; `all` plays every variant with every
    seed, and so does the name of one scenario or file, where more words choose among the variants.

    Raises:
        SettingsError: `suite` is neither one of `SUITES` nor a scenario.
    """
    return list(_playables(suite, seeds, held_out))


def _playables(suite: str, seeds: Sequence[int], held_out: bool) -> Iterator[Playable]:
    for seed in seeds:
        if suite == "smoke":
            for name, variant in SMOKE:
                yield Playable(name, seed, variant.magnitude, variant.topology, True, held_out)
        elif suite in SUITES:
            for name in rows(held_out=held_out):
                known = variants(name)
                chosen: Iterable[Variant] = (
                    known if suite == "all" else (known[_turn(name, seed, len(known))],)
                )
                for variant in chosen:
                    yield Playable(name, seed, variant.magnitude, variant.topology, held_out=held_out)
        else:
            short, *words = (suite,) if Path(suite).exists() else suite.split()
            name = short if Path(short).exists() or "/" in short else _full_name(short)
            for variant in _matching(name, words):
                yield Playable(name, seed, variant.magnitude, variant.topology, held_out=held_out)


def _matching(name: str, words: Sequence[str]) -> list[Variant]:
    """Variants of a file with these magnitudes or topologies."""
    known = variants(name)
    matching = [one for one in known if set(words) <= {one.magnitude, one.topology}]
    if not matching:
        allowed = ", ".join(f"{one.magnitude} {one.topology}".strip() for one in known)
        raise SettingsError(f"{name} has no variant {' '.join(words)!r}; allowed: {allowed}")
    return matching


def rows(*, held_out: bool) -> list[str]:
    """Scenario files of all rows that may be looked at; with `held_out`, of all."""
    every = [name for name in shipped() if name.startswith(("faults/", "controls/"))]
    return every if held_out else [name for name in every if name not in held_out_rows()]


def held_out_rows() -> tuple[str, ...]:
    """Fault rows that no development suite plays, chosen by a hash."""
    others = [name for name in shipped() if name.startswith("faults/") and name not in _PAPER_ROWS]
    return tuple(sorted(sorted(others, key=lambda name: _digest(name))[:_HELD_OUT_ROWS]))


def held_out_seeds(commit: str, count: int) -> list[int]:
    """Seeds that nobody chose, above all development seeds (0 to 999).

    Args:
        commit: of the release.
    """
    return [1000 + int(_digest(f"{commit} {number}")[:12], 16) % 10**9 for number in range(count)]


def _full_name(short: str) -> str:
    """`gpu-throttle` is `faults/gpu-throttle`."""
    return next((name for name in shipped() if name.rpartition("/")[2] == short), short)


def _turn(name: str, seed: int, count: int) -> int:
    """The variants take turns with the seeds; each row begins elsewhere."""
    return (int(_digest(name)[:8], 16) + seed) % count


def _digest(text: str) -> str:
    return hashlib.sha256(f"{_SECRET} {text}".encode()).hexdigest()
