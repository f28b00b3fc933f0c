"""How an exporter tells a rank that its stacks cannot be sampled from outside: a file beside the socket.

The wire goes one way, so that nothing an exporter does can disturb a training process. Whether py-spy may
read a process cannot be predicted from inside it (namespaces, Yama, capabilities and seccomp all have a say),
so the exporter tries, and leaves this mark where it was refused. The sampler in the rank looks for it.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

BY_CHOICE: Final = "by_choice"
"""What a rank that samples itself because its user wants that gives as the reason of a channel that is up."""


def refusal_path(socket: Path, rank: int, pid: int) -> Path:
    """The mark of one rank; `pid` is the one its HELLO says, in its own namespace."""
    return socket.with_name(f"{socket.name}.stacks-refused-{rank}-{pid}")


def all_refusals(socket: Path) -> Iterator[Path]:
    """Every mark beside a socket, such as an exporter that was killed leaves behind."""
    return socket.parent.glob(f"{socket.name}.stacks-refused-*")
