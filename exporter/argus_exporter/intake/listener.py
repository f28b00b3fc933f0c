"""The socket that producers connect to: where it lies and who can reach it."""

from __future__ import annotations

import grp
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.log import Log
from argus_exporter.intake.config import SocketConfig
from argus_exporter.ranks.peers import AllowedUsers

log = Log(__name__)

_BACKLOG: Final = 128


class SocketTaken(Exception):
    """The socket is not to be had: another exporter listens on it, or its folder is not safe."""


@dataclass(frozen=True)
class Access:
    """Modes of the socket and of a folder that we make for it. `gid` None: the group stays as it is."""

    socket_mode: int
    folder_mode: int
    gid: int | None = None


def access_of(config: SocketConfig) -> Access:
    """Nobody else reaches the socket, unless other users are allowed: then its group, or all; whoever reaches
    it is asked for his uid (`SO_PEERCRED`) all the same."""
    if config.group is not None:
        return Access(0o660, 0o710, grp.getgrnam(config.group).gr_gid)
    if AllowedUsers(config.allowed_users).others:
        return Access(0o666, 0o711)
    return Access(0o600, 0o700)


def listen(path: Path, access: Access) -> socket.socket:
    """A listening, non-blocking socket; a dead one is replaced.

    Raises:
        SocketTaken: a live exporter has it, something else lies there, or others could replace it.
        OSError: the folder cannot be made or the socket not bound.
    """
    _make_folder(path.parent, access)
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise SocketTaken(f"{path} exists and is not a socket; name another with --socket")
        if is_listening(path):
            raise SocketTaken(f"{path} is in use by another exporter; stop it or name another with --socket")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        if access.gid is not None:
            os.chown(path, -1, access.gid)
        path.chmod(access.socket_mode)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def is_listening(path: Path) -> bool:
    """Whether a live exporter has the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _make_folder(folder: Path, access: Access) -> None:
    """A folder that is there already keeps its mode: somebody chose it."""
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o700)
        if access.gid is not None:
            os.chown(folder, -1, access.gid)
        folder.chmod(access.folder_mode)
        return
    # Who owns the folder or a link to it, or may write to it, could put a socket of his own in place of ours.
    status = folder.stat()
    strangers = {status.st_uid, folder.lstat().st_uid} - {0, os.getuid()}
    if strangers:
        raise SocketTaken(
            f"{folder} belongs to another user (uid {strangers.pop()}), who could replace the socket; "
            "name another place with --socket"
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise SocketTaken(
            f"every user may write to {folder} and could replace the socket; "
            f"name another place with --socket, or: chmod o-w {folder}"
        )
    reached = status.st_mode & (stat.S_IXOTH if access.gid is None else stat.S_IXOTH | stat.S_IXGRP)
    if access.socket_mode != 0o600 and not reached:
        log.warning(
            "allowed users cannot reach the socket",
            folder=folder,
            mode=f"{stat.S_IMODE(status.st_mode):o}",
            remedy=f"chmod it to {access.folder_mode:o}, or name another place",
        )
