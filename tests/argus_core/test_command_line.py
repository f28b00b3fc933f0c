"""What the command lines of all our programs have in common."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core.command_line import Program
from argus_core.version import installed_version
from argus_exporter.cli import PROGRAM as EXPORTER
from argus_l3_worker.cli import PROGRAM as WORKER
from argus_simulator.cli import PROGRAM as SIMULATOR

PROGRAMS = pytest.mark.parametrize("program", [EXPORTER, WORKER, SIMULATOR], ids=lambda program: program.name)
CONFIGURED = pytest.mark.parametrize(
    ("program", "command"),
    [(EXPORTER, "serve"), (EXPORTER, "trace list"), (WORKER, "once"), (WORKER, "trace x")],
)
COMMANDS = pytest.mark.parametrize(
    ("program", "command"),
    [(program, command) for program in (EXPORTER, WORKER, SIMULATOR) for command in program.commands],
    ids=lambda one: one.name if isinstance(one, Program) else one,
)


def printed(program: Program, *arguments: str) -> int:
    """The exit status of options that print something and end the program."""
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@PROGRAMS
def test_the_version_is_the_distributions(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(program, "--version") == 0
    assert capsys.readouterr().out == f"{program.name} {installed_version()}\n"


@PROGRAMS
def test_help_begins_with_the_commands(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    """Options come behind them; without a command it is the same on stderr, status 2."""
    assert printed(program, "--help") == 0
    shown = capsys.readouterr().out
    commands = shown[shown.index("\ncommands:") : shown.index("\noptions:")]
    listed = re.findall(r"^    ([\w-]+) ", commands, re.M)
    assert listed == list(program.commands)
    assert program.main([]) == 2
    assert capsys.readouterr().err == shown


@COMMANDS
def test_each_command_has_its_module(
    program: Program, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its help is what the module declares, and the log's level may stand behind it too."""
    assert printed(program, command, "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {program.name} {command} ")
    assert "--log.level" in shown


@PROGRAMS
def test_a_wrong_option_is_one_line(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    """With the option, and where to read on; an abbreviation is none of ours."""
    for option in ("--colour", "--vers"):
        assert printed(program, option) == 2
        message = capsys.readouterr().err
        assert message == f"{program.name}: unknown options: {option}; see {program.name} --help\n"


@CONFIGURED
def test_an_unknown_key_is_one_line(
    program: Program, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File, key, and what was probably meant."""
    file = tmp_path / "config.yaml"
    file.write_text("traces:\n  stoer: {}\n")
    assert program.main([*command.split(), "--config", str(file)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{program.name}: {file}: unknown key traces.stoer; did you mean traces.store?")
    assert message.count("\n") == 1


@CONFIGURED
def test_the_keys_of_the_file_are_printed(
    program: Program, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Allowed values, default and help; with or without a command."""
    assert printed(program, "--help-config") == 0
    shown = capsys.readouterr().out
    assert "traces.store.type (folder or s3; default folder)\n    where traces are kept\n" in shown
    words = command.removesuffix(" x").split()
    assert printed(program, *words, "--help-config") == 0
    assert capsys.readouterr().out == shown


@PROGRAMS
def test_the_shell_takes_the_completion(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """bash reads it, and completes commands, their options and files with it."""
    assert printed(program, "--print-completion", "zsh") == 0
    assert capsys.readouterr().out.startswith("#compdef " + program.name)
    assert printed(program, "--print-completion", "bash") == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    ask = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        'complete -p "$1" | { read -ra words; "${words[-2]}"; echo "${COMPREPLY[@]}"; }'
    )
    for words, completed in (
        (["ru" if "run" in program.commands else "doc"], "run" if "run" in program.commands else "doctor"),
        (["--log.level", "w"], "warn"),
        ([next(iter(program.commands)), "--log"], "--log.level"),
    ):
        command = ["bash", "-c", ask, "bash", str(script), program.name, *words]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
            completed
        ]


PROBE = """
import logging, os, signal, sys
from argus_core.errors import ArgusError, UserError
from argus_core.log import Log

def add_arguments(parser):
    parser.add_argument("how")

def run(options):
    Log("argus_probe").info("begun")
    if options.how == "user":
        raise UserError("rank is -1;\\nallowed: 0 or more")
    if options.how == "work":
        raise ArgusError("Prometheus is away")
    if options.how == "missing":
        import argus_none_such.part
    if options.how == "extra":
        import none_such
    if options.how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    print("done")
    return 0
"""


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program whose only command does what it is told."""
    folder = tmp_path / "argus_probe" / "commands"
    folder.mkdir(parents=True)
    (folder / "try.py").write_text(PROBE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    return Program("probe", "Tries.", package="argus_probe", commands={"try": "try it"}, extra="l3")


@pytest.mark.parametrize(
    ("how", "status", "says"),
    [
        ("well", 0, ""),
        ("work", 1, "probe: Prometheus is away\n"),
        ("user", 2, "probe: rank is -1; allowed: 0 or more\n"),
        ("extra", 2, "probe: the package none_such is missing: pip install 'argus-for-prometheus[l3]'\n"),
        ("interrupt", 130, ""),
    ],
)
def test_a_failure_is_one_line_and_a_status(
    probe: Program, how: str, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a user can cause is 2, work that failed is 1, Ctrl-C is the shell's 130."""
    # A shell ignores it for what it runs in the background, which may be these tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert probe.main(["--log.level", "error", "try", how]) == status
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == says


def test_a_defect_of_ours_is_no_users_fault(probe: Program) -> None:
    """A module of ours that is not there comes with its traceback."""
    with pytest.raises(ModuleNotFoundError, match="argus_none_such"):
        probe.main(["try", "missing"])


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["try", "well"], 1),
        (["--log.level", "warn", "try", "well"], 0),
        (["try", "well", "--log.level", "warn"], 0),
        (["--log.level", "error", "try", "--log.level", "debug", "well"], 1),
    ],
)
def test_the_level_may_stand_before_and_behind_the_command(
    probe: Program, arguments: list[str], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one nearest to the work counts."""
    assert probe.main(arguments) == 0
    assert capsys.readouterr().err.count("msg=begun") == lines


def test_only_the_module_that_is_asked_for_is_imported() -> None:
    """`run` becomes the training command: it waits neither for numpy nor for YAML."""
    ask = (
        "import sys; from argus_exporter.cli import main; main(['run', '--', '/none/such']); "
        "print(sorted({'numpy', 'aiohttp', 'yaml', 'asyncio', 'shtab'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_went_away_is_no_error() -> None:
    """`argus-exporter catalogue | head`: status 141 and silence."""
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "argus_exporter.cli", "catalogue"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
