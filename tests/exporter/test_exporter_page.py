"""The examples of docs/exporter.md are what the exporter takes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from argus_core.settings import from_mapping
from argus_exporter.config import ExporterConfig
from argus_exporter.place.topology_file import load_topology

PAGE = Path(__file__).parents[2] / "docs" / "exporter.md"


def example(key: str) -> str:
    """The YAML block whose mapping has that key."""
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if key in yaml.safe_load(block)]
    return found


def test_the_topology_of_the_page_is_taken(tmp_path: Path):
    """Sizes for a pattern, and ranks one by one."""
    file = tmp_path / "topology.yaml"
    file.write_text(example("pretrain-*"))
    jobs = load_topology(file).jobs
    assert jobs["pretrain-*"].world_size == 8 * 16 * 4
    assert jobs["vision-language"].ranks[1].node == "gpu-17"


def test_the_remote_write_of_the_page_is_taken():
    """Every key exists."""
    config = from_mapping(ExporterConfig, yaml.safe_load(example("remote_write")), str(PAGE))
    assert config.remote_write.labels == {"cluster": "a"}


def test_every_limit_that_the_page_names_is_one_of_the_code():
    """A reason that nobody counts would be looked for in vain."""
    sources = "".join(
        path.read_text() for path in Path(__file__).parents[2].glob("exporter/argus_exporter/**/*.py")
    )
    named = set(
        re.findall(
            r"`((?:\w+_limit|remote_write_(?:queue|refused|order)|peer_uid|rank_owner))`", PAGE.read_text()
        )
    )
    assert {reason for reason in named if f'"{reason}"' not in sources} == set()
    assert len(named) >= 9
