"""The process of a job that is to be asked: where its RAS listens, and which NCCL it has.

Read from /proc, so nothing of the process runs for it. What a program set for itself after its start
(os.environ) and NCCL's own files (/etc/nccl.conf, ~/.nccl.conf) do not show there.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from argus_exporter.ras.client import Address
from argus_exporter.ras.errors import RasRefused
from argus_exporter.ras.report import Report
from argus_exporter.ras.versions import WITH_RAS, Version, refuse_unsafe

_LIBRARY: Final = re.compile(r"\s(/\S.*/libnccl\.so[.\d]*)$", re.MULTILINE)
_IN_ITS_NAME: Final = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")
_WHEEL: Final = re.compile(r"nvidia_nccl_\w+-(\d+\.\d+\.\d+)\b.*\.dist-info$")


@dataclass(frozen=True)
class JobProcess:
    """A process of the job, on this host.

    Attributes:
        pid: as we see it.
        known_as: its pid in its own pid namespace, as NCCL writes it.
        address: of its RAS, as its environment has it.
        version: of its NCCL; None where no library of that name is loaded (NCCL linked into another one), or
            the version is not in a file name.
        shares_network: whether its network is ours, so that `localhost` is the same.
    """

    pid: int
    known_as: int
    address: Address
    version: Version | None
    shares_network: bool

    def reachable(self) -> Address:
        """Its address, as we can connect to it: one of this host's, whatever the process says.

        Raises:
            RasRefused: its network is not ours, or the address is elsewhere.
        """
        if not self.shares_network:
            raise RasRefused(
                f"process {self.pid} has a network of its own, so its {self.address} is not ours: run this "
                f"in its container, or as root by nsenter --net --target {self.pid}"
            )
        host = self.address.host
        if host not in ("localhost", socket.gethostname()) and not is_this_host(host):
            raise RasRefused(
                f"NCCL_RAS_ADDR of process {self.pid} is {self.address}, which is no address of this host: "
                "give --address where it is meant"
            )
        return self.address

    def refuse_unsafe(self, insists: bool) -> None:
        """Raises:
        RasRefused: its NCCL has no RAS, or asking it could harm the job and nobody insists.
        """
        if self.version is not None and (self.version < WITH_RAS or not insists):
            refuse_unsafe(self.version)

    def is_named_by(self, report: Report) -> bool:
        """Whether a report has it: its pid, on this host."""
        return any(
            place.pid == self.known_as and (not self.shares_network or is_this_host(place.host))
            for place in report.places()
        )


def process_of(pid: int, proc: Path = Path("/proc")) -> JobProcess:
    """Look at a process.

    Raises:
        RasRefused: there is none, it may not be looked at, or its RAS is off or has no address.
    """
    folder = proc / str(pid)
    try:
        environment = _environment(folder)
        status = (folder / "status").read_text()
        maps = (folder / "maps").read_text(errors="replace")
        shares_network = (folder / "ns" / "net").readlink() == (proc / "self" / "ns" / "net").readlink()
    except FileNotFoundError as error:
        raise RasRefused(f"there is no process {pid} here") from error
    except OSError as error:
        raise RasRefused(
            f"process {pid} cannot be looked at ({error.strerror}): run this as its user or as root"
        ) from error
    if environment.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        raise RasRefused(f"process {pid} has no RAS: it was started with NCCL_RAS_ENABLE=0")
    try:
        set_to = environment.get("NCCL_RAS_ADDR", "")
        address = Address.parse(set_to) if set_to else Address()
    except ValueError as error:
        raise RasRefused(f"NCCL_RAS_ADDR of process {pid}: {error}") from error
    names = re.search(r"^NSpid:\s+(.+)$", status, re.MULTILINE)  # Linux 4.1
    return JobProcess(
        pid=pid,
        known_as=int(names[1].split()[-1]) if names else pid,
        address=address,
        version=_version(folder, maps),
        shares_network=shares_network,
    )


def _environment(folder: Path) -> dict[str, str]:
    entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    return {name: value for name, equals, value in (one.partition("=") for one in entries) if equals}


def _version(folder: Path, maps: str) -> Version | None:
    """By the name of the library, or by the wheel that it came with."""
    found: set[str] = set()
    for library in set(_LIBRARY.findall(maps)):
        if named := _IN_ITS_NAME.search(library):
            found.add(named[1])
        else:  # .../site-packages/nvidia/nccl/lib/libnccl.so.2, as the process sees its files
            packages = (folder / "root" / library.lstrip("/")).parent.parent.parent.parent
            found |= {named[1] for one in _listed(packages) if (named := _WHEEL.match(one.name))}
    return Version.parse(found.pop()) if len(found) == 1 else None


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def is_link_local(host: str) -> bool:
    """Whether it is an address that says nothing without the interface to which it belongs."""
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False


def is_this_host(host: str) -> bool:
    """Whether it is an address of this host: one can be bound to. Names are not looked up."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if address.is_link_local:
        return True  # NCCL leaves out the scope, without which none can be bound to
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
