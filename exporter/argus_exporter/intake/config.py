"""Who may connect, and where."""

from __future__ import annotations

import grp
from dataclasses import dataclass
from pathlib import Path

from argus_core.settings import constant, setting
from argus_exporter.ranks.peers import AllowedUsers


@dataclass(frozen=True)
class SocketConfig:
    path: Path | None = setting(
        None, "socket that producers connect to; default: $ARGUS_SOCKET, else a private folder of the user"
    )
    allowed_users: tuple[str | int, ...] = setting(
        (),
        "names or ids of the users whose training may connect, beside root and the exporter's own; "
        "* allows every user of this host",
    )
    group: str | None = setting(
        None, "group that may reach the socket (mode 0660); default: all users once any is allowed, else none"
    )
    connections_per_user: int = constant(
        1024, "connections of one user's processes: a rank has one to three, a host some 50"
    )

    def __post_init__(self) -> None:
        try:
            AllowedUsers(self.allowed_users)
        except ValueError as error:
            raise ValueError(f"allowed_users: {error}") from error
        if self.group is not None:
            try:
                grp.getgrnam(self.group)
            except KeyError:
                raise ValueError(
                    f"group is {self.group!r}; allowed: the name of a group of this host"
                ) from None
