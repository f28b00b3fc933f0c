"""The file of settings beside the socket: what is read from it, and whose file is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argus_core.settings_file import beside, read
from stranger import STRANGER, as_root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(beside(str(tmp_path / "exporter.sock")))


def test_it_lies_beside_the_socket(file: Path) -> None:
    assert file.name == "exporter.sock.env"


def test_lines_are_settings_and_the_rest_is_a_comment(file: Path) -> None:
    """Values are taken as they stand: no quotes, no shell."""
    file.write_text("# of the platform team\n\nARGUS_JOB=llm 7b\nARGUS_PARALLEL=tp=2,pp=4 \n")
    assert read(str(file)) == ({"ARGUS_JOB": "llm 7b", "ARGUS_PARALLEL": "tp=2,pp=4"}, [])


def test_no_file_is_nothing(file: Path) -> None:
    assert read(str(file)) == ({}, [])


@pytest.mark.parametrize(
    "line",
    ["PATH=/tmp", "ARGUS_JOB = a", "export ARGUS_JOB=a", "ARGUS_JOB", "LD_PRELOAD=/tmp/a.so", "ARGUS_A-B=1"],
)
def test_a_line_that_is_no_setting_of_ours_is_said(file: Path, line: str) -> None:
    """With number, file, the line, and what is allowed; the other lines count."""
    file.write_text(f"{line}\nARGUS_DEBUG=1\n")
    values, warnings = read(str(file))
    assert values == {"ARGUS_DEBUG": "1"}
    assert warnings == [f"line 1 of {file} is {line!r}; allowed: ARGUS_NAME=value"]


@pytest.mark.parametrize("name", ["ARGUS_SOCKET", "ARGUS_PRODUCER_PID"])
def test_what_only_a_variable_can_say_is_refused(file: Path, name: str) -> None:
    file.write_text(f"{name}=1\n")
    values, (warning,) = read(str(file))
    assert values == {}
    assert f"line 1 of {file} sets {name}" in warning


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"ARGUS_JOB=\xff\n", "it is not UTF-8"),
        (b"ARGUS_JOB=a\0b\n", "it has a NUL byte"),
        (b"#" * 70_000, "it has more than 65536 bytes"),
    ],
)
def test_a_file_that_is_no_text_is_not_used(file: Path, content: bytes, why: str) -> None:
    file.write_bytes(content)
    assert read(str(file)) == ({}, [f"{file} is not used: {why}"])


def test_only_a_plain_file_that_nobody_else_writes_is_used(file: Path, tmp_path: Path) -> None:
    """What may name a library to load is trusted no further than the socket; a pipe does not hold us up."""
    file.write_text("ARGUS_JOB=a\n")
    file.chmod(0o666)
    assert read(str(file)) == (
        {},
        [f"{file} is not used: others may write to it; to allow it: chmod go-w {file}"],
    )
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert "is not used: Too many levels of symbolic links" in read(str(file))[1][0]
    file.unlink()
    os.mkfifo(file)
    assert read(str(file)) == ({}, [f"{file} is not used: it is no plain file"])


@as_root
def test_a_strangers_file_counts_only_in_a_folder_of_trusted_hands(file: Path) -> None:
    """As with the socket: a service's own folder below one of root's, but none that everybody may fill."""
    file.write_text("ARGUS_JOB=theirs\n")
    os.chown(file, STRANGER, STRANGER)
    assert read(str(file)) == ({"ARGUS_JOB": "theirs"}, [])
    file.parent.chmod(0o1777)
    values, (warning,) = read(str(file))
    assert values == {}
    assert f"{file} is not used: it belongs to user {STRANGER}; allowed: " in warning
