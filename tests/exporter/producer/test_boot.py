"""The sitecustomize that leads PYTHONPATH: who attaches, what becomes importable, what comes after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from argus_exporter.producer import boot_directory

GATE = "import sys; print(any(getattr(f, '__name__', '') == '_AttachAfterTorch' for f in sys.meta_path))"


def python(
    *arguments: str, path: tuple[Path, ...] = (), executable: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    pythonpath = os.pathsep.join(str(entry) for entry in (boot_directory(), *path))
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [executable, *arguments],
        env={**keep, "PYTHONPATH": pythonpath, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("environment", "attaches"),
    [
        ({"RANK": "0"}, True),
        ({"SLURM_PROCID": "1"}, True),
        ({"OMPI_COMM_WORLD_RANK": "1"}, True),
        ({}, True),
        ({"RANK": "0", "ARGUS_DISABLE": "1"}, False),
        ({"RANK": "0", "ARGUS_PRODUCER_PID": "1"}, False),
    ],
    ids=["torchrun", "slurm", "openmpi", "plain", "switched off", "child of an observed rank"],
)
def test_what_may_train_attaches(environment: dict[str, str], attaches: bool) -> None:
    """Also without a launcher: who trains is seen later. Not what an observed rank starts."""
    result = python("-c", GATE, **environment)
    assert (result.stdout.strip(), result.stderr) == (str(attaches), "")


@pytest.mark.parametrize("module", ["torch.distributed.run", "torch.distributed.launch"])
def test_launcher_does_not_attach(tmp_path: Path, module: str) -> None:
    """`srun torchrun` gives the launcher a rank of its own: it is not one. A stand-in for torch's module."""
    package = tmp_path / module.rpartition(".")[0].replace(".", "/")
    package.mkdir(parents=True)
    for part in (package, package.parent):
        (part / "__init__.py").touch()
    (package / f"{module.rpartition('.')[2]}.py").write_text(GATE)
    assert python("-m", module, path=(tmp_path,), SLURM_PROCID="0").stdout.strip() == "False"


def test_script_argument_that_names_a_launcher_is_no_launcher(tmp_path: Path) -> None:
    """Only program and switches are looked at."""
    script = tmp_path / "train.py"
    script.write_text(GATE)
    assert python(str(script), "--log", "torchrun.log", RANK="0").stdout.strip() == "True"


def test_next_sitecustomize_runs(tmp_path: Path) -> None:
    """A cluster's own sitecustomize works as before, in ranks and elsewhere, and is what is imported."""
    (tmp_path / "sitecustomize.py").write_text("mine = 1\nprint('site')")
    for environment in ({"RANK": "0"}, {}):
        result = python(
            "-c", "import sitecustomize; print(sitecustomize.mine)", path=(tmp_path,), **environment
        )
        assert (result.stdout, result.stderr) == ("site\n1\n", "")


def test_other_environment_sees_our_two_packages_only() -> None:
    """A training environment without ARGUS: its sys.path stays as it is, our dependencies stay out."""
    base = getattr(sys, "_base_executable", sys.executable)
    if base == sys.executable or sys.prefix == sys.base_prefix:
        pytest.skip("no second Python environment here")
    program = (
        "import sys, importlib.util as u\n"
        "import argus_core.wire, argus_core.link, argus_exporter.producer, argus_exporter.producer.attach\n"
        "print([n for n in ('prometheus_client', 'aiohttp', 'argus_l3_worker') if u.find_spec(n)])\n"
        "print([p for p in sys.path if 'argus' in p or p.endswith('/exporter')])\n"
        "print([n for n in ('numpy', 'torch', 'aiohttp', 'prometheus_client') if n in sys.modules])"
    )
    result = python("-c", program, executable=base, RANK="0")
    assert (result.stdout, result.stderr) == ("[]\n[]\n[]\n", "")


def test_boot_imports_nothing_of_ours_before_torch() -> None:
    """A rank that never imports torch pays for two finders."""
    result = python("-c", "import sys; print([n for n in sys.modules if n.startswith('argus')])", RANK="0")
    assert result.stdout == "[]\n"
