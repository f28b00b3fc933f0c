"""The sitecustomize that leads PYTHONPATH: who attaches, what becomes importable, what comes after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_training import boot_directory
from exporter.exporter_process import config, exporter, scrape, value, wait_for

GATE = "import sys; print(any(getattr(f, '__name__', '') == '_AttachAfterTorch' for f in sys.meta_path))"


def python(
    *arguments: str,
    path: tuple[Path, ...] = (),
    executable: str = sys.executable,
    given: str | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    pythonpath = os.pathsep.join(str(entry) for entry in (boot_directory(), *path))
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [executable, *arguments],
        env={**keep, "PYTHONPATH": pythonpath, **environment},
        capture_output=True,
        text=True,
        input=given,
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
        ({"RANK": "0", "ARGUS_PRODUCER_PID": "0000000001"}, False),
        ({"RANK": "0", "ARGUS_PRODUCER_PID": "0000000000"}, True),
    ],
    ids=[
        "torchrun",
        "slurm",
        "openmpi",
        "plain",
        "switched off",
        "child of an observed rank",
        "and so written",
        "child of none",
    ],
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
        "import argus_core.wire, argus_core.link, argus_training, argus_training.attach\n"
        "print([n for n in ('prometheus_client', 'aiohttp', 'argus_l3_worker') if u.find_spec(n)])\n"
        "print([p for p in sys.path if 'argus' in p or p.endswith('/exporter')])\n"
        "print([n for n in ('numpy', 'torch', 'aiohttp', 'prometheus_client') if n in sys.modules])"
    )
    result = python("-c", program, executable=base, RANK="0")
    assert (result.stdout, result.stderr) == ("[]\n[]\n[]\n", "")


def test_boot_imports_nothing_of_the_producer_before_torch(torches: Path) -> None:
    """A rank that never imports torch pays for two finders, and for small modules that set variables."""
    base = getattr(sys, "_base_executable", sys.executable)
    probe = "import sys; print(sorted(n for n in sys.modules if n.startswith('argus')))"
    small = ["injection", "process_environment", "settings_file", "trust"]
    result = python("-c", probe, path=(torches,), RANK="0")
    assert result.stdout == f"{['argus_core', *(f'argus_core.{name}' for name in small)]}\n"
    without = "import importlib.util as u; assert not u.find_spec('torch'); " + probe
    result = python("-c", without, "-S", executable=base, RANK="0")
    if result.returncode:
        pytest.skip("torch is in the base environment")
    assert result.stdout == "[]\n"


def test_settings_of_the_file_are_variables_from_the_start(torches: Path, tmp_path: Path) -> None:
    """Below a launcher that dropped them: the injector and children read variables. A variable wins."""
    (tmp_path / "s.env").write_text("ARGUS_JOB=filed\nARGUS_MODEL=llama\n")
    result = python(
        "-c",
        "import os; print(os.environ['ARGUS_JOB'], os.environ['ARGUS_MODEL'])",
        path=(torches,),
        ARGUS_SOCKET=str(tmp_path / "s"),
        ARGUS_MODEL="named",
    )
    assert (result.stdout, result.stderr) == ("filed named\n", "")


def test_the_file_can_switch_argus_off(torches: Path, tmp_path: Path) -> None:
    (tmp_path / "s.env").write_text("ARGUS_DISABLE=1\n")
    result = python("-c", GATE, path=(torches,), ARGUS_SOCKET=str(tmp_path / "s"))
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    "environment", [{}, {"XDG_RUNTIME_DIR": "/run/user/7"}, {"ARGUS_SOCKET": "/run/s"}, {"ARGUS_SOCKET": ""}]
)
def test_the_boot_looks_where_the_producer_reports(environment: dict[str, str]) -> None:
    """Twins: link.default_socket_path."""
    probe = (
        "import _argus_boot as boot; from argus_core.link import default_socket_path\n"
        "print(str(default_socket_path()) == boot.default_socket())"
    )
    result = python(
        "-c", f"import sys; sys.path.insert(0, {str(boot_directory())!r}); {probe}", **environment
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


@pytest.mark.parametrize("there", ["exporter.sock", "exporter.sock.env"])
def test_a_launcher_that_drops_where_to_report_leaves_the_usual_places(
    there: str, torches: Path, tmp_path: Path
) -> None:
    """DeepSpeed's for several nodes hands on PYTHONPATH alone; ssh makes an XDG_RUNTIME_DIR of its own."""
    (tmp_path / there).touch()
    places = f"('/nowhere/{{0}}/exporter.sock', {str(tmp_path / 'exporter.sock')!r})"
    boot = (
        f"import sys; sys.path.insert(0, {str(boot_directory())!r})\n"
        f"import os, _argus_boot as boot; boot.PLACES = {places}; boot.start()\n"
        "print(os.environ.get('ARGUS_SOCKET'))"
    )

    def reports_to(**environment: str) -> str:
        result = python("-c", boot, PYTHONPATH=str(torches), RANK="0", **environment)
        assert result.stderr == ""
        return result.stdout.strip()

    home = tmp_path / "argus"
    assert reports_to(XDG_RUNTIME_DIR=str(tmp_path)) == str(tmp_path / "exporter.sock")
    assert reports_to(ARGUS_SOCKET="/mine") == "/mine"
    home.mkdir()
    (home / there).touch()
    assert reports_to(XDG_RUNTIME_DIR=str(tmp_path)) == "None", "the default place goes first"


ATTACHED = """
import sys, types
def told(torch):
    complete = getattr(torch, "last", None)
    sys.stdout.write("attached to a torch that is %s\\n" % ("whole" if complete else "unfinished"))
sys.modules["argus_training.attach"] = types.SimpleNamespace(attach=told)
"""
"""Stands for the rest of the producer: says what it was attached to."""

PROBES = {
    "plain": "import torch",
    "find_spec": "import importlib.util as u; assert u.find_spec('torch').loader; import torch",
    "find_spec twice": "import importlib.util as u; u.find_spec('torch'); u.find_spec('torch'); import torch",
    "find_loader": (
        "import pkgutil, warnings; warnings.simplefilter('ignore')\n"
        "pkgutil.find_loader('torch'); import torch"
    ),
    "submodule": "import importlib.util as u; u.find_spec('torch.nn'); import torch.nn",
    "lazily": (
        "import importlib.util as u; spec = u.find_spec('torch'); spec.loader = u.LazyLoader(spec.loader)\n"
        "torch = sys.modules['torch'] = u.module_from_spec(spec); spec.loader.exec_module(torch)\n"
        "import colorsys; print('not loaded yet'); assert torch.last"
    ),
    "by hand": (
        "import importlib.util as u; spec = u.find_spec('torch'); torch = u.module_from_spec(spec)\n"
        "sys.modules['torch'] = torch; spec.loader.exec_module(torch)"
    ),
    "import that fails first": (
        "import os; os.environ['TORCH_FAILS'] = '1'\n"
        "try: import torch\nexcept ImportError: del os.environ['TORCH_FAILS']; import torch"
    ),
    "reload": "import importlib, torch; importlib.reload(torch)",
    "patched __import__": (
        "import builtins; before = builtins.__import__\n"
        "builtins.__import__ = lambda *a, **k: before(*a, **k)\nimport torch"
    ),
    "from C": "import ctypes; ctypes.pythonapi.PyImport_ImportModule(b'torch')",
    "in a thread": (
        "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join()"
    ),
    "a finder that asks all others": (
        "class Asking:\n"
        "    def find_spec(self, *args):\n"
        "        others = [one for one in sys.meta_path if one is not self and hasattr(one, 'find_spec')]\n"
        "        return next(filter(None, (one.find_spec(*args) for one in others)), None)\n"
        "sys.meta_path.insert(0, Asking()); import torch"
    ),
    "past us, by a finder in front": (
        "from importlib.machinery import PathFinder\n"
        "sys.meta_path.insert(0, PathFinder); import torch; sys.meta_path.pop(0); import _symtable"
    ),
    "past us, by its file": (
        "import importlib.util as u; from importlib.machinery import PathFinder\n"
        "spec = u.spec_from_file_location('torch', PathFinder.find_spec('torch').origin)\n"
        "torch = sys.modules['torch'] = u.module_from_spec(spec); spec.loader.exec_module(torch)\n"
        "import colorsys"
    ),
}


@pytest.fixture(scope="module")
def torches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small `torch`, whose import looks up others, as the real one does."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "torch").mkdir()
    (folder / "torch" / "nn.py").touch()
    (folder / "torch" / "__init__.py").write_text(
        "import os\nif 'TORCH_FAILS' in os.environ: raise ImportError('not now')\n"
        "__version__ = '2.0'\nimport torch.nn, plistlib\nlast = True\n"
    )
    return folder


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_however_torch_is_looked_up_argus_attaches_once(probe: str, torches: Path) -> None:
    """And to a torch whose import has ended. transformers, datasets and accelerate ask before they import."""
    result = python("-c", ATTACHED + probe, path=(torches,), RANK="0")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        *(["not loaded yet"] if "Lazy" in probe else []),
        "attached to a torch that is whole",
    ]


@pytest.mark.parametrize(
    "start",
    ["-m", "-P", "-s", "script", "standard input", "zipapp", "spawn", "fork", "forkserver", "preloaded"],
)
def test_however_the_process_is_started_argus_attaches(start: str, torches: Path, tmp_path: Path) -> None:
    """Each start looks modules up in its own way; the children of multiprocessing too."""
    probe = "import importlib.util as u; u.find_spec('torch'); import torch\n"
    script = tmp_path / "__main__.py"
    script.write_text(ATTACHED + probe)
    shutil.copy(script, tmp_path / "train.py")
    if start in ("spawn", "fork", "forkserver", "preloaded"):
        (tmp_path / "work.py").write_text(ATTACHED + "def work():\n    " + probe + "    import colorsys\n")
        method = "forkserver" if start == "preloaded" else start
        script.write_text(
            "import multiprocessing, work\nif __name__ == '__main__':\n"
            + (
                "    multiprocessing.set_forkserver_preload(['torch', 'work'])\n"
                if start == "preloaded"
                else ""
            )
            + f"    child = multiprocessing.get_context({method!r}).Process(target=work.work)\n"
            "    child.start(); child.join()\n"
        )
    if start == "zipapp":
        zipapp.create_archive(tmp_path, tmp_path.with_suffix(".pyz"))
    arguments: dict[str, list[str]] = {
        "-m": ["-m", "train"],
        "-P": ["-P", str(script)],
        "-s": ["-s", str(script)],
        "standard input": ["-"],
        "zipapp": [str(tmp_path.with_suffix(".pyz"))],
    }
    result = python(
        *arguments.get(start, [str(script)]), path=(torches, tmp_path), RANK="0", given=script.read_text()
    )
    assert (result.stdout, result.stderr) == ("attached to a torch that is whole\n", "")


def test_torch_within_an_archive_is_waited_for(torches: Path, tmp_path: Path) -> None:
    """Its loader is that of all modules of the archive: one that is imported between is none of ours."""
    archive = shutil.make_archive(str(tmp_path / "site"), "zip", torches)
    probe = "import importlib.util as u; u.find_spec('torch'); import between; import torch"
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("between.py", "")
    result = python("-c", ATTACHED + probe, path=(Path(archive),), RANK="0")
    assert (result.stdout, result.stderr) == ("attached to a torch that is whole\n", "")


def test_who_only_asks_for_torch_sees_what_it_would_without_us(torches: Path) -> None:
    """The loader is of its own type, and nothing is said."""
    probe = "import importlib.util as u; print(type(u.find_spec('torch').loader).__name__)"
    result = python("-c", ATTACHED + probe, path=(torches,), RANK="0")
    assert (result.stdout, result.stderr) == ("SourceFileLoader\n", "")


def test_variables_are_set_while_there_is_one_thread(torches: Path, tmp_path: Path) -> None:
    """At the start: room for the mark of the producer, and the slot of CUDA."""
    packages = tmp_path / "argus"
    shutil.copytree(boot_directory(), packages / "argus_training" / "boot")
    shutil.copytree(Path(wire.__file__).parent, packages / "argus_core")
    library = packages / "argus_core" / "libargus_cupti.so"
    library.write_bytes(b"\x7fELF..\0GLIBC_2.14\0libc.so.6\0")
    probe = "import os; print([os.environ.get(n) for n in ('ARGUS_PRODUCER_PID', 'CUDA_INJECTION64_PATH')])"

    def seen(**environment: str) -> str:
        path = os.pathsep.join((str(packages / "argus_training" / "boot"), str(torches)))
        return python("-c", probe, PYTHONPATH=path, **environment).stdout

    assert seen() == f"{['0000000000', str(library)]}\n"
    assert seen(ARGUS_DISABLE_KERNELS="1") == f"{['0000000000', None]}\n"
    assert seen(ARGUS_DISABLE="1") == f"{[None, None]}\n"
    assert seen(CUDA_INJECTION64_PATH="/opt/nsys.so") == f"{['0000000000', '/opt/nsys.so']}\n"


@pytest.mark.parametrize(("initialised", "lines"), [("'gloo'", 1), ("None", 0)])
def test_process_that_was_never_observed_says_so_at_its_end(
    torches: Path, initialised: str, lines: int
) -> None:
    """sys.meta_path was built anew, so nothing of ours saw torch: one line, where it was part of a group."""
    group = (
        f"sys.modules['torch.distributed.distributed_c10d'] = types.SimpleNamespace(_backend={initialised})"
    )
    ours = "any(name in str(one) for name in ('_AttachAfterTorch', '_OwnPackages'))"
    probe = f"sys.meta_path[:] = [one for one in sys.meta_path if not {ours}]; import torch\n"
    result = python("-c", ATTACHED + probe + group, path=(torches,), RANK="0")
    assert result.stdout == ""
    assert (
        result.stderr.count("argus: this process was not observed")
        == len(result.stderr.splitlines())
        == lines
    )


def test_process_that_was_never_observed_tells_the_exporter(
    torches: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose log is where an operator looks, and which cannot see into other PID namespaces."""
    program = (
        "import sys, types\nours = ('_AttachAfterTorch', '_OwnPackages')\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, '__name__', '') not in ours]\n"
        "import torch\n"
        "sys.modules['torch.distributed.distributed_c10d'] = types.SimpleNamespace(_backend='gloo')\n"
    )
    said = "a process with a rank has ended, and ARGUS was not attached to it"
    told = {"RANK": "5", "ARGUS_JOB": "j", "ARGUS_SOCKET": str(tmp_path / "s")}
    with exporter(config(tmp_path / "s")) as running:
        result = python("-c", program, path=(torches,), **told)
        assert result.stderr.count("argus: ") == 1, result.stderr
        wait_for(lambda: caplog.text.count(said) == 1, "a line of the log")
        assert "rank=5" in caplog.text
        assert value(scrape(running.url), "argus_rank_up", rank="5") is None, "it neither came nor was lost"

        def hello() -> wire.Hello:
            return wire.hello(pid=os.getpid(), rank=5, training_job="j", monotonic_ns=1, realtime_ns=1)

        rank = Link(tmp_path / "s", hello)
        rank.add(wire.ChannelState(0, 0, 0, wire.Channel.PHASES, 1))
        rank.flush()
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="5") == 1.0, "the rank")
        python("-c", program, path=(torches,), **told)
        wait_for(lambda: caplog.text.count(said) == 2, "another line, of a child that has its number")
        page = scrape(running.url)
        assert value(page, "argus_rank_up", rank="5") == 1.0
        assert value(page, "argus_channel_up", rank="5", channel="phases") == 1.0
        rank.close()


@pytest.mark.torch
def test_libraries_that_probe_for_torch_leave_the_job_observed(tmp_path: Path) -> None:
    """The real torch below a library that asks for it as transformers does, `import library, torch`."""
    pytest.importorskip("torch")
    (tmp_path / "library.py").write_text(
        "import importlib.metadata, importlib.util\n"
        "available = importlib.util.find_spec('torch') is not None\n"
        "version = importlib.metadata.version('torch')\n"
    )
    result = python("-c", "import library, torch", path=(tmp_path,), RANK="0", ARGUS_DEBUG="1")
    assert result.stderr.count("argus: attached rank=0") == 1
