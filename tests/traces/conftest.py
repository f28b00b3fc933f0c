"""Fixtures of trace analysis."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_simulator.traces.cases import Case, make


@pytest.fixture(scope="session")
def masked_stage() -> Case:
    """8 ranks, 1F1B: one rank of the last stage is slow in backward (ARGUS case 3)."""
    return make("argus-case-3", 11)


@pytest.fixture
def files(masked_stage: Case, tmp_path: Path) -> list[Path]:
    """The files of `masked_stage`, by rank."""
    paths = [tmp_path / f"{rank}.perfetto-trace" for rank in range(len(masked_stage.files))]
    for path, data in zip(paths, masked_stage.files, strict=True):
        path.write_bytes(data)
    return paths
