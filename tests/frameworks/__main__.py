"""`make frameworks`: runs all programs, one at a time, and writes docs/frameworks.json and its page.

`python -m tests.frameworks --torch 2.15.0` runs those that need nothing but torch, with that one: it is
installed beside the other, with all of its CUDA (5 GB). `make verify` does so with the oldest and the newest.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tools import generate_frameworks

FOLDER = Path(__file__).parent
PROGRAMS = [sys.executable, "-m", "pytest", "-v", str(FOLDER)]


def main() -> int:
    """Exit status of the tests; nothing is written where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    parser.add_argument("--torch", metavar="VERSION", help="another torch; writes nothing")
    torch = parser.parse_args().torch
    if torch:
        return with_torch(torch)
    with tempfile.TemporaryDirectory() as figures:
        done = subprocess.run(PROGRAMS, env=os.environ | {"FIGURES": figures}, check=False)
        return done.returncode or write(Path(figures))


def with_torch(torch: str) -> int:
    """Exit status of the programs that need it alone."""
    folder = FOLDER.parents[1] / ".venv" / f"torch-{torch}"
    if not folder.is_dir():
        partly = folder.with_name(f"{folder.name}.partly")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(partly)]
        subprocess.run([*install, f"torch=={torch}"], check=True)
        partly.rename(folder)
    return subprocess.run(PROGRAMS, env=os.environ | {"OTHER_TORCH": str(folder)}, check=False).returncode


def write(figures: Path) -> int:
    """The figures of all programs as JSON, and the page of it."""
    found = sorted((json.loads(path.read_text()) for path in figures.iterdir()), key=lambda one: one["order"])
    named = (FOLDER / "packages.txt").read_text().partition("\n\n")[0]  # before what they need
    packages = [line.replace("==", " ") for line in named.splitlines() if not line.startswith("#")]
    told = {
        "packages": [f"torch {version('torch')}", *packages],
        "steps": found[0]["iterations"][0][1],
        "machine": f"{os.cpu_count()} cores, {os.uname().machine}, one program at a time",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "programs": {one.pop("name"): one for one in found},
    }
    generate_frameworks.FIGURES.write_text(json.dumps(told, indent=1) + "\n")
    return generate_frameworks.main()


if __name__ == "__main__":
    sys.exit(main())
