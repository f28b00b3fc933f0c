"""The C++ side and the Python side read one definition of the wire and of the variables."""

from __future__ import annotations

import re
from pathlib import Path

from argus_training import settings
from tools import generate_native

INJECTOR = Path(__file__).resolve().parents[2] / "native" / "injector"


def test_the_generated_headers_are_up_to_date() -> None:
    """As `make lint` checks them."""
    assert generate_native.main(["--check"]) == 0


def test_every_variable_of_the_library_is_in_the_table() -> None:
    """Nothing is read from the environment but by its generated name; the exceptions are other people's."""
    read = set(re.findall(r"table::k(\w+)\)", (INJECTOR / "environment.cpp").read_text()))
    declared = {
        name.removeprefix(settings.PREFIX).title().replace("_", "") for name in settings.READ_BY_INJECTOR
    }
    assert read == declared
    sources = "".join(path.read_text() for path in INJECTOR.glob("*.cpp"))
    assert set(re.findall(r'variable\("(\w+)"\)', sources)) == {
        "TORCHELASTIC_RUN_ID",
        "SLURM_JOB_NAME",
        "XDG_RUNTIME_DIR",
    }


def test_readers_table_names_only_known_variables() -> None:
    assert set(settings.READ_BY_INJECTOR) <= {variable.name for variable in settings.TABLE}
