"""The worker's questions.json: what a card says, from jsonnet/card/questions.libsonnet, as the alerts.

`python -m tools.generate_card` writes it; `--check` exits 1 when it is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import rjsonnet

from tools.generate_rules import ROOT
from tools.generated import write_or_check

_SOURCE: Final = Path("jsonnet/card/questions.libsonnet")
_TARGET: Final = Path("l3_worker/argus_l3_worker/reports/questions.json")


def render(root: Path = ROOT) -> str:
    """The whole file."""
    content = json.loads(rjsonnet.evaluate_file(str(root / _SOURCE)))
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    return write_or_check({ROOT / _TARGET: render()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
