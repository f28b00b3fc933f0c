"""`argus-exporter install-hook`: Python attaches ARGUS by itself, whatever a launcher did to its environment.

Each test has an environment of its own, with a stand-in for torch, and starts real interpreters in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from argus_core import wire
from argus_exporter.cli import main
from argus_exporter.commands.install_hook import MODULE, PTH, hook
from argus_training import boot_directory
from training.jobs import LOOP
from training.reader import Reader

TORCH = "__version__ = '2.0'\n"
ATTACHED = (
    "import sys, types, os\n"
    "told = lambda torch: print('attached', os.environ.get('ARGUS_SOCKET'), os.environ.get('ARGUS_JOB'))\n"
    "sys.modules['argus_training.attach'] = types.SimpleNamespace(attach=told)\n"
    "import torch"
)
SEEN = (
    "import sys; print([n for n in sys.modules if n.startswith(('argus_', '_argus')) and n != 'argus_hook'])"
)


class Environment:
    """A virtual environment that has torch and not ARGUS."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        self.site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        (self.site / "torch").mkdir()
        (self.site / "torch" / "__init__.py").write_text(TORCH)

    def starts(self, *arguments: str, **environ: str) -> str:
        """What Python prints, with these variables and no others."""
        result = subprocess.run(
            [self.python, *arguments], env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout.strip()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where an exporter would listen; its file of settings is there."""
    path = tmp_path / "s"
    Path(f"{path}.env").write_text("ARGUS_JOB=filed\n")
    return path


def install(environment: Environment, *arguments: str) -> int:
    return main(["install-hook", "--python", str(environment.python), *arguments])


@pytest.mark.parametrize("switches", [["-E"], ["-I"], ["-s", "-P"], []], ids=str)
def test_python_attaches_without_any_variable(
    environment: Environment, socket: Path, switches: list[str]
) -> None:
    """As below `env -i`: the socket is known from the installation, the settings from the file beside it."""
    assert install(environment, "--socket", str(socket)) == 0
    assert environment.starts(*switches, "-c", ATTACHED) == f"attached {socket} filed"


def test_a_socket_that_is_named_by_a_variable_goes_first(
    environment: Environment, socket: Path, tmp_path: Path
) -> None:
    install(environment, "--socket", str(tmp_path / "elsewhere"))
    assert environment.starts("-c", ATTACHED, ARGUS_SOCKET=str(socket)) == f"attached {socket} filed"


def test_the_private_folder_of_the_user_is_looked_into(environment: Environment, tmp_path: Path) -> None:
    """The socket itself will do; no name of it was installed."""
    install(environment)
    (tmp_path / "argus").mkdir()
    (tmp_path / "argus" / "exporter.sock").touch()
    assert environment.starts("-c", ATTACHED, XDG_RUNTIME_DIR=str(tmp_path)) == "attached None None"


def test_the_hook_looks_where_the_boot_does() -> None:
    """Twins: PLACES of the boot."""
    probe = (
        f"import sys; sys.path.insert(0, {str(boot_directory())!r}); import os, _argus_boot as boot\n"
        f"names = {{}}; exec({hook(None)!r}, names)\n"
        "print(names['_sockets']() == [place.format(os.getuid()) for place in boot.PLACES])"
    )
    command = [sys.executable, "-S", "-c", probe]
    said = subprocess.run(command, env={"ARGUS_DISABLE": "1"}, capture_output=True, check=True)
    assert said.stdout == b"True\n"


@pytest.mark.torch
def test_a_real_job_without_any_variable_is_observed(environment: Environment, socket: Path) -> None:
    """Real torch, from this environment, below `env -i` and `python -I`: the rank reports under its job."""
    torch = pytest.importorskip("torch")
    (environment.site / "torch" / "__init__.py").unlink()
    (environment.site / "torch").rmdir()
    (environment.site / "a.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    install(environment, "--socket", str(socket))
    with Reader(socket) as reader:
        assert environment.starts("-I", "-c", LOOP + "train()") == ""
        said = reader.ended()
    assert wire.decode_text(said.hellos[0].training_job) == "filed"
    assert {"forward", "backward", "optimizer"} <= set(said.count())


@pytest.mark.parametrize("case", ["no exporter", "switched off", "switched off in the file"])
def test_python_is_as_before_where_nothing_is_to_attach(
    environment: Environment, socket: Path, tmp_path: Path, case: str
) -> None:
    install(environment, "--socket", str(socket))
    variables = {"ARGUS_SOCKET": str(tmp_path / "nobody")} if case == "no exporter" else {}
    if case == "switched off":
        variables = {"ARGUS_DISABLE": "1"}
    if case == "switched off in the file":
        Path(f"{socket}.env").write_text("ARGUS_DISABLE=1\n")
    else:
        assert environment.starts("-c", SEEN, **variables) == "[]"
    assert environment.starts("-c", ATTACHED, **variables) == ""


def test_a_python_without_torch_loads_nothing_of_argus(environment: Environment, socket: Path) -> None:
    install(environment, "--socket", str(socket))
    (environment.site / "torch" / "__init__.py").unlink()
    (environment.site / "torch").rmdir()
    variables = {"ARGUS_SOCKET": str(socket)}
    assert environment.starts("-c", SEEN, **variables) == "['_argus_boot']"


def test_with_pythonpath_too_argus_attaches_once(environment: Environment, socket: Path) -> None:
    """As below `argus-exporter run` in an environment that has the hook."""
    install(environment, "--socket", str(socket))
    variables = {"PYTHONPATH": str(boot_directory()), "ARGUS_SOCKET": str(socket)}
    assert environment.starts("-c", ATTACHED, **variables) == f"attached {socket} filed"


def test_python_starts_when_argus_was_uninstalled(environment: Environment, socket: Path) -> None:
    """The hook leads nowhere: nothing is said."""
    install(environment, "--socket", str(socket))
    module = environment.site / MODULE
    lines = [
        "BOOT = '/nowhere'" if line.startswith("BOOT") else line for line in module.read_text().split("\n")
    ]
    module.write_text("\n".join(lines))
    assert environment.starts("-c", "import torch") == ""


def test_a_failure_of_ours_is_said_and_python_starts(environment: Environment, socket: Path) -> None:
    """One line on stderr; the process goes on."""
    install(environment, "--socket", str(socket))
    module = environment.site / MODULE
    module.write_text(module.read_text().replace("_argus_boot.start(socket)", "1 / 0"))
    command = [environment.python, "-c", "import torch; print('trains')"]
    result = subprocess.run(command, env={}, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (0, "trains\n")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("argus: not attached, the process goes on without it: ZeroDivisionError")


def test_the_exporters_own_python_does_not_attach(environment: Environment, socket: Path) -> None:
    """Nor does a launcher: the hook follows the same rule as `run`."""
    install(environment, "--socket", str(socket))
    script = environment.site / "torchrun"
    script.write_text(ATTACHED)
    assert environment.starts(str(script)) == ""


def test_it_says_what_it_did_and_where(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice is as good as once, and nothing is left in the end."""
    before = sorted(environment.site.iterdir())
    where = f"{environment.site} ({environment.python}, Python {sys.version.split()[0]})\n"
    for arguments, said in (
        ([], f"{PTH} and {MODULE} written into {where}"),
        ([], f"{PTH} and {MODULE} were already in {where}"),
        (["--socket", "/run/argus/exporter.sock"], f"{PTH} and {MODULE} written into {where}"),
        (["--remove"], f"{PTH} and {MODULE} removed from {where}"),
        (["--remove"], f"no hook in {where}"),
    ):
        assert install(environment, *arguments) == 0
        assert capsys.readouterr() == (said, "")
        environment.starts("-c", "")
    left = [path for path in sorted(environment.site.iterdir()) if path.name != "__pycache__"]
    assert left == before


def test_a_folder_that_cannot_be_written_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """/proc takes no file, of root neither."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(['/proc/sys', [3, 12, 1]])}'\n")
    python.chmod(0o755)
    assert main(["install-hook", "--python", str(python)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("argus-exporter: /proc/sys cannot be written to (")
    assert "--python" in err


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "cannot be run: No such file or directory"),
        ("#!/bin/sh\nexit 1\n", "is no Python interpreter that says where its packages are"),
        ("#!/bin/sh\necho '[\"/x\", [3, 8, 2]]'\n", "is Python 3.8.2; allowed: 3.9 or newer"),
    ],
)
def test_an_interpreter_that_will_not_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str | None, why: str
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    assert main(["install-hook", "--python", str(python)]) == 2
    assert capsys.readouterr().err == f"argus-exporter: --python {python} {why}\n"


def test_a_module_of_somebody_else_is_left_alone(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = environment.site / MODULE
    theirs.write_text("mine = 1\n")
    for arguments in ([], ["--remove"]):
        assert install(environment, *arguments) == 2
        assert f"{theirs} was not written by this command" in capsys.readouterr().err
    assert not (environment.site / PTH).exists()
