"""How many collectives of each process group torch says that this rank has entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from argus_training.identity import Layout
from argus_training.recorder import Recorder

_OF_ONE_STAGE: Final = {"cp", "dp", "edp", "ep", "tp"}
"""Groups in which no stage of a pipeline sends to another."""


class GroupCounts:
    """Takes torch's counts over to the shared page.

    Args:
        distributed: torch.distributed.distributed_c10d.
        group_name: ours of a process group of torch.
        counts_batches: NCCL's groups, too, count transfers between two ranks where they come in batches.
    """

    def __init__(
        self,
        recorder: Recorder,
        distributed: Any,
        group_name: Callable[[Any], str],
        layout: Callable[[], Layout],
        *,
        counts_batches: bool = False,
    ) -> None:
        self._recorder = recorder
        self._distributed = distributed
        self._group_name = group_name
        self._layout = layout
        self._counts_batches = counts_batches
        self.transfers: dict[str, int] = {}
        """Seen so far between two ranks, by group."""
        self.batches: dict[str, int] = {}
        """Of these."""

    def take(self) -> dict[str, str]:
        """The names of the groups that it counts, by torch's.

        Groups of one name are counted together; where a backend counts nothing, what is seen here counts.

        Other backends than NCCL count transfers between two ranks too, and with an older torch NCCL counts
        batches of them. Those of a pipeline are called in ways that are not seen here.
        """
        counts: dict[str, int] = {}
        transfers: dict[str, int] = {}
        names: dict[str, str] = {}
        uncounted = {""}
        for group, (backend, _) in list(self._distributed._world.pg_map.items()):
            name = names[str(group.group_name)] = self._group_name(group)
            if "nccl" not in backend:
                transfers[name] = self.transfers.get(name, 0)
            elif self._counts_batches:
                transfers[name] = self.batches.get(name, 0)
            try:
                counts[name] = counts.get(name, 0) + group._get_sequence_number_for_group()
            except RuntimeError:
                uncounted.add(name)
        if self._layout().sizes.get("pp", 1) > 1:
            uncounted |= transfers.keys() - _OF_ONE_STAGE
        counted = counts.keys() - uncounted
        for name in counted:
            self._recorder.counted(name, counts[name] - transfers.get(name, 0))
        return {torchs: name for torchs, name in names.items() if name in counted}
