"""Templates of the mixin are filled without `%`, which C++ jsonnet interprets character by character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rjsonnet

LIBRARY = Path(__file__).resolve().parents[2] / "jsonnet/lib/text.libsonnet"


@pytest.mark.parametrize(
    ("template", "values", "filled"),
    [
        ("%(a)s > %(b)s", "{ a: 'up', b: 0.05 }", "up > 0.05"),
        ("%(a)s / %(a)s", "{ a: 'up' }", "up / up"),
        ("%(a)s", "{ a: 1209600 }", "1209600"),
        ("%(a)s", "{ a: 1 / 3 }", "0.33333"),
        ("%(ab)s %(a)s", "{ a: 1, ab: 2 }", "2 1"),
        ("rate(x[5m]) % 2", "{}", "rate(x[5m]) % 2"),
    ],
)
def test_every_place_takes_its_value(template: str, values: str, filled: str) -> None:
    """Text as it is; numbers as PromQL has them, whole ones with all their digits."""
    snippet = f"(import '{LIBRARY}').fill('{template}', {values})"
    assert json.loads(rjsonnet.evaluate_snippet("test", snippet)) == filled


@pytest.mark.slow
def test_both_engines_render_the_same_rules() -> None:
    """Users have C++ jsonnet; rules/ is written by the Rust one."""
    jsonnet = pytest.importorskip("_jsonnet")
    snippet = f"(import '{LIBRARY.parents[1] / 'mixin.libsonnet'}').prometheusRules"
    both = [engine("test", snippet) for engine in (rjsonnet.evaluate_snippet, jsonnet.evaluate_snippet)]
    assert json.loads(both[0]) == json.loads(both[1])
