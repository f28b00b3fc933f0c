"""The short form of `python -m bench.anatomy`: its promises hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import anatomy


@pytest.mark.slow
@pytest.mark.traces
def test_the_anatomy_keeps_its_promises(traces: Path, capsys: pytest.CaptureFixture[str]):
    """Random worlds as in cells of a nanosecond, real traces as their events say, few series.

    What a kernel costs is judged where nothing else runs: by `make verify`.
    """
    assert anatomy.main(["--worlds", "100", "--kernels", "50000", "--traces", str(traces)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["different"] == 0
    assert result["traces"] == 16
    assert result["error_share"] <= 0.01
    assert result["series_per_rank"] <= 30
    assert result["ns_per_kernel"] > 0
