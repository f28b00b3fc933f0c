"""Scenarios that nobody has tuned to: derived from a file and a seed, never written into one.

Gamma noise instead of lognormal, a magnitude between two of the file's, and one of two topologies with more
replicas than any file has.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from argus_simulator.lab import Scenario, load_scenario, shipped
from argus_simulator.lab.scenario import MAGNITUDES

_STREAM: Final = 0x4E1D
_BETWEEN: Final = (0.25, 0.75)
"""How far between two magnitudes; at either end it would be one of them."""
_MORE_REPLICAS: Final = (1.5, 2.0)
"""The two topologies: so many times the replicas of the file's."""
_RANKS: Final = 32
"""Of which the smaller topology is taken where the larger one would have more."""


def held_out_scenario(name: str, seed: int, magnitude: str, topology: str) -> Scenario:
    """The scenario that a seed derives from a file's variant.

    Raises:
        SettingsError: no such file, or its content is not usable.
    """
    random = np.random.default_rng([_STREAM, seed, *name.encode()])
    content = derive(yaml.safe_load(_text(name)) or {}, magnitude, topology, random)
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        file = Path(folder) / f"{Path(name).stem}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_scenario(str(file), seed=seed)


def derive(
    content: Mapping[str, Any], magnitude: str, topology: str, random: np.random.Generator
) -> dict[str, Any]:
    """A file without variants."""
    derived = copy.deepcopy(dict(content))
    magnitudes: dict[str, Any] = derived.pop("magnitudes", {})
    topologies: dict[str, Any] = derived.pop("topologies", {})
    between = float(random.uniform(*_BETWEEN))
    more = float(random.choice(_MORE_REPLICAS))
    if topologies:
        _merge(derived, topologies[topology or next(iter(topologies))])
    known = [level for level in MAGNITUDES if level in magnitudes]
    if known:
        # The next one above, or below the highest.
        at = min(known.index(magnitude) if magnitude in known else 0, max(len(known) - 2, 0))
        _merge(
            derived, _blend(magnitudes[known[at]], magnitudes[known[min(at + 1, len(known) - 1)]], between)
        )
    _merge(derived, {"noise": {"family": "gamma"}, "topology": _wider(derived.get("topology", {}), more)})
    return derived


def _text(name: str) -> str:
    if name in shipped():
        return (resources.files("argus_simulator") / "scenarios" / f"{name}.yaml").read_text()
    return Path(name).read_text()


def _wider(topology: Mapping[str, Any], more: float) -> dict[str, int]:
    """More replicas, in whole expert groups."""
    replicas, experts = int(topology.get("dp", 8)), int(topology.get("ep", 1))
    others = int(topology.get("tp", 1)) * int(topology.get("pp", 1))
    if replicas * more * others > _RANKS:
        more = min(_MORE_REPLICAS)
    return {"dp": max(round(replicas * more / experts), 2) * experts}


def _blend(low: Any, high: Any, share: float) -> Any:
    """Numbers between, on a logarithmic scale; whatever is no number as in the first."""
    if isinstance(low, Mapping) and isinstance(high, Mapping):
        return {key: _blend(low[key], high.get(key, low[key]), share) for key in low}
    if isinstance(low, bool) or not isinstance(low, int | float) or not isinstance(high, int | float):
        return low
    between = low * (high / low) ** share if low > 0 and high > 0 else low + (high - low) * share
    return round(between) if isinstance(low, int) and isinstance(high, int) else round(between, 6)


def _merge(content: dict[str, Any], replacements: Mapping[str, Any]) -> None:
    for key, value in replacements.items():
        if isinstance(value, Mapping) and isinstance(content.get(key), dict):
            _merge(content[key], value)
        else:
            content[key] = copy.deepcopy(value)
