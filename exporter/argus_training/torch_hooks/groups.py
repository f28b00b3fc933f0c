"""Process groups with a description: `new_group(ranks, group_desc="tensor_parallel")` tells the layout.

Patched: `torch.distributed.new_group`, which every rank calls for every group, and `split_group` of the whole
job. A group that only its members make (`use_local_synchronization`) is not enough: no rank sees them all.
Only ranks and words are kept.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from argus_training.hook import Hook
from argus_training.partitions import Partitions


class GroupsHook(Hook):
    name = "groups"

    def attach(self, torch: Any) -> None:
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d

        self._partitions = Partitions()
        self._world_size: Callable[[], int] = distributed_c10d.get_world_size
        for name, groups_of in (("new_group", _one), ("split_group", _split)):
            original = getattr(distributed_c10d, name, None)
            if original is None or "group_desc" not in inspect.signature(original).parameters:
                continue  # torch 2.3 brought descriptions, 2.6 split_group
            wrapper = self._wrap(original, groups_of)
            exported = getattr(torch.distributed, name, None) is original
            self.replace(distributed_c10d, name, wrapper)
            if exported:
                self.replace(torch.distributed, name, wrapper)

    def _wrap(
        self,
        original: Callable[..., Any],
        groups_of: Callable[[dict[str, Any]], Iterable[Sequence[int] | None]],
    ) -> Callable[..., Any]:
        bind = inspect.signature(original).bind_partial

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            group = original(*args, **kwargs)
            try:
                if self.alive:
                    arguments = bind(*args, **kwargs).arguments
                    description = arguments.get("group_desc")
                    for ranks in groups_of(arguments) if description else ():
                        self._made(str(description), ranks)
            except Exception as error:
                self.failed(error)
            return group

        return make

    def _made(self, description: str, ranks: Sequence[int] | None) -> None:
        world_size = self._world_size()
        members = range(world_size) if ranks is None else ranks
        found = self._partitions.add(description, members, world_size)
        if found is not None:
            self.observer.note_groups(*found)


def _one(arguments: dict[str, Any]) -> Iterable[Sequence[int] | None]:
    """The ranks of `new_group`; None: all."""
    return (arguments.get("ranks"),)


def _split(arguments: dict[str, Any]) -> Iterable[Sequence[int] | None]:
    """The parts of `split_group`; of a part of the job the other ranks hear nothing."""
    return arguments.get("split_ranks") or () if arguments.get("parent_pg") is None else ()
