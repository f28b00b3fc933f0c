"""Who may connect: the processes of our own user, of root, and of the users that the configuration names."""

from __future__ import annotations

import functools
import os
import pwd
import socket
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

ANY_USER: Final = "*"


class Peer(NamedTuple):
    """The other end of a connection, as the kernel vouches for it. pid 0: invisible from our namespace."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Source: unix(7), SO_PEERCRED. What was so when the peer connected."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


class AllowedUsers:
    """Which uids may speak to us.

    Args:
        users: names or numeric ids beside root and ourselves; `*` allows every user of the host.

    Raises:
        ValueError: a name that this host does not know, or a negative id.
    """

    def __init__(self, users: Iterable[str | int] = ()) -> None:
        self.any = False
        self._uids = {0, os.getuid()}
        for user in users:
            if user == ANY_USER:
                self.any = True
            else:
                self._uids.add(_uid(user))

    def __contains__(self, uid: int) -> bool:
        return self.any or uid in self._uids

    @property
    def others(self) -> bool:
        """Whether anybody but root and ourselves may connect."""
        return self.any or len(self._uids) > len({0, os.getuid()})


def is_trusted(uid: int) -> bool:
    """Root and ourselves may speak for the rank of any user: they could read its memory anyway."""
    return uid in (0, os.getuid())


@functools.lru_cache(maxsize=256)  # asked on the event loop; a directory service may be slow
def user_name(uid: int) -> str:
    """For log lines: the name where the host knows one, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _uid(user: str | int) -> int:
    if isinstance(user, int) or user.isdecimal():
        if int(user) < 0:
            raise ValueError(f"user id {user} is negative; allowed: names of users, ids of 0 or more, or *")
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(
            f"there is no user {user!r} on this host; allowed: names of users, their numeric ids, or *"
        ) from None
