"""`make images`: the images of exporter and worker in dist/, without a daemon and without a registry.

    python -m tools.images [--wheel FILE] [--output FOLDER]

The lower layer is Debian 12 as far as our programs need it, from its packages; the upper one /opt/argus, with
the wheel and what its extras ask for. Both are unpacked again and started: exporter and worker must answer
/metrics, and the producer can be copied out of the exporter's. The last line is one of JSON. A builder makes
the same of deploy/containers/Containerfile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools import oci
from tools.generate_version import ROOT, declared

SUITE: Final = "bookworm"
_GLIBC: Final = 36  # 2.36, Debian 12's
PYTHON: Final = "3.11"
"""Debian 12's; the manifests name the folder of its packages."""
HOME: Final = "/opt/argus"
PACKAGES: Final = f"{HOME}/lib/python{PYTHON}/site-packages"
_DEBIAN: Final = (
    *(f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "media-types"),
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0"),
    *(
        "liblzma5",
        "libsqlite3-0",
        "libuuid1",
        "libcrypt1",
        "base-files",
        "netbase",
        "tzdata",
        "ca-certificates",
    ),
    # `cp` of the init container, and a shell for who looks into a pod
    *("coreutils", "libacl1", "libattr1", "libgmp10", "libselinux1", "libpcre2-8-0", "dash"),
)
_NOT_KEPT: Final = ("usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")
_USERS: Final = (
    "root:x:0:0:root:/root:/bin/sh\nargus:x:65532:65532:ARGUS:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
)
_GROUPS: Final = "root:x:0:\nargus:x:65532:\nnogroup:x:65534:\n"
_PATIENCE_S: Final = 60.0
_LOADED: Final = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


class Unavailable(Exception):
    """Images cannot be made, or started, on this machine: one line."""


class Refused(Exception):
    """An image does not do what it should: one line."""


@dataclass(frozen=True)
class Program:
    """A program with an image of its own."""

    name: str
    extras: str
    port: int
    user: str
    """Empty: root, unless the pod says otherwise."""
    flags: tuple[str, ...] = ()
    """For a start alone, without a configuration."""

    def config(self) -> dict[str, Any]:
        """As Containerfile has it."""
        return {
            "Entrypoint": [self.name],
            "Cmd": ["serve"],
            "Env": [f"PATH={HOME}/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
            "ExposedPorts": {f"{self.port}/tcp": {}},
            **({"User": self.user} if self.user else {}),
        }


PROGRAMS: Final = (
    Program(
        "argus-exporter",
        "exporter,trace,stacks,remote-write",
        9877,
        "",
        ("--socket=/tmp/own/exporter.sock",),
    ),
    Program("argus-l3-worker", "l3,trace", 9878, "65532:65532", ("--spool.dir=/tmp/spool",)),
)


def make(wheel: Path, output: Path) -> dict[str, Any]:
    """Make all images, and start them; what was measured.

    Raises:
        Unavailable: Debian's packages cannot be had.
        Refused: an image does not do what it should.
    """
    output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        base = system(Path(name) / "base")
        lower = oci.layer(base)
        files = [_image(program, wheel, base, lower, output) for program in PROGRAMS]
        made = time.monotonic() - began
        serves: bool | None = True
        try:
            for program, file in zip(PROGRAMS, files, strict=True):
                start(program, file, Path(name) / "unpacked" / program.name)
        except Unavailable as error:
            print(f"images: not started: {error}", file=sys.stderr)
            serves = None
    return {
        "images": [file.name for file in files],
        "images_mb": [round(file.stat().st_size / 1e6, 1) for file in files],
        "image_serves": serves,
        "image_seconds": round(made),
    }


def system(folder: Path) -> Path:
    """The lower layer: Debian's packages, unpacked.

    Raises:
        Unavailable: they cannot be had here.
    """
    if sys.platform != "linux":
        raise Unavailable("images are of this machine's kind, and this is no Linux")
    command = (ROOT / "tools" / "debian_packages.sh", "--security", SUITE, folder, *_DEBIAN)
    fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        raise Unavailable((fetched.stderr.strip() or "debian_packages.sh failed").splitlines()[-1])
    for part in _NOT_KEPT:
        shutil.rmtree(folder / part, ignore_errors=True)
    # What the packages' scripts would do.
    (folder / "etc/passwd").write_text(_USERS)
    (folder / "etc/group").write_text(_GROUPS)
    certificates = sorted((folder / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = folder / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_text("".join(one.read_text() for one in certificates))
    compile_all(folder, folder / f"usr/lib/python{PYTHON}")
    return folder


def compile_all(base: Path, packages: Path) -> None:
    """Bytecode beside the sources, by the image's own Python: its containers cannot write there."""
    libraries = ":".join(str(base / part / f"{os.uname().machine}-linux-gnu") for part in ("lib", "usr/lib"))
    [loader] = (base / "lib").glob("*/ld-linux-*.so.*")
    command = (loader, "--library-path", libraries, base / f"usr/bin/python{PYTHON}")
    flags = ("-q", "-j2", "-s", packages.parents[2], "-p", "/", "--invalidation-mode=unchecked-hash")
    variables = {**os.environ, "PYTHONHOME": str(base / "usr")}
    variables.pop("PYTHONPATH", None)
    subprocess.run((*command, "-m", "compileall", *flags, packages), env=variables, check=True)


def _image(program: Program, wheel: Path, base: Path, lower: oci.Layer, output: Path) -> Path:
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        environment(program, wheel, tree)
        compile_all(base, tree / PACKAGES.lstrip("/"))
        version = declared()
        target = output / f"{program.name}-{version}.tar"
        oci.write(target, f"{program.name}:{version}", [lower, oci.layer(tree)], program.config())
    return target


def environment(program: Program, wheel: Path, tree: Path) -> None:
    """A virtual environment at /opt/argus below `tree`, for Debian's Python, whatever Python makes it."""
    home, packages = tree / HOME.lstrip("/"), tree / PACKAGES.lstrip("/")
    platforms = [f"manylinux_2_{minor}_{os.uname().machine}" for minor in range(5, _GLIBC + 1)]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
    for_it = ("--only-binary=:all:", "--python-version", PYTHON, *(f"--platform={one}" for one in platforms))
    done = subprocess.run(
        (*pip, *for_it, "--target", packages, f"{wheel}[{program.extras}]"), capture_output=True, text=True
    )
    if done.returncode:
        raise Unavailable(f"pip cannot install the packages: {done.stderr.strip().splitlines()[-1]}")
    (packages / "bin").rename(home / "bin")
    (home / "bin/python").symlink_to(f"/usr/bin/python{PYTHON}")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for script in (home / "bin").iterdir():
        if not script.is_symlink() and (content := script.read_bytes()).startswith(b"#!"):
            script.write_bytes(f"#!{HOME}/bin/python\n".encode() + content.partition(b"\n")[2])


def start(program: Program, image: Path, root: Path) -> None:
    """Unpack an image and start it as a container would be.

    Raises:
        Unavailable: this machine lets nobody change the root.
        Refused: it does not answer.
    """
    config = oci.unpack(image, root)
    variables = dict(one.split("=", 1) for one in config["Env"])
    with _free_port() as port:
        command = [
            *config["Entrypoint"],
            *config["Cmd"],
            f"--web.listen-address=127.0.0.1:{port}",
            *program.flags,
        ]
    if program.name == "argus-exporter":
        library = f"{PACKAGES}/argus_core/libargus_cupti.so"
        _in(root, ("cp", "-r", f"{PACKAGES}/argus_core", f"{PACKAGES}/argus_training", "/tmp"), variables)
        _in(root, ("python", "-c", _LOADED, library), variables)
    log = root.parent / f"{root.name}.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            _contained(root, command, variables), stdout=said, stderr=said, start_new_session=True
        ) as running,
    ):
        try:
            page = _page(f"http://127.0.0.1:{port}/metrics", running)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    if "argus_" not in page:
        raise Refused(f"{image.name}: /metrics has no metric of ours: {log.read_text()[-800:]}")


def _in(root: Path, command: Sequence[str], variables: dict[str, str]) -> None:
    """Run a command in an unpacked image to its end."""
    done = subprocess.run(_contained(root, command, variables), capture_output=True, text=True)
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise Refused(f"{' '.join(command)} in the image: {done.stderr.strip()}")


def _contained(root: Path, command: Sequence[str], variables: dict[str, str]) -> list[str]:
    """A command with a root, processes and mounts of its own; needs no rights where user namespaces are."""
    unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"]
    settings = [f"{key}={value}" for key, value in variables.items()]
    return [*unshare, "chroot", str(root), "/usr/bin/env", "-i", *settings, *command]


def _page(url: str, server: subprocess.Popen[bytes]) -> str:
    """What it answers, as soon as it does; empty: it ended, or has not answered for a minute."""
    until = time.monotonic() + _PATIENCE_S
    while server.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return ""


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where to put them (dist/)")
    parser.add_argument("--wheel", type=Path, help="what to install (that of dist/)")
    options = parser.parse_args()
    wheel = options.wheel or next(options.output.glob("*-py3-none-manylinux*.whl"), None)
    if wheel is None:
        print(f"images: no wheel in {options.output}: `make dist` makes it", file=sys.stderr)
        return 1
    try:
        print(json.dumps(make(wheel.resolve(), options.output.resolve())))
    except (Refused, Unavailable) as problem:
        print(f"images: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
