"""All ranks that this host's exporter knows, and how they come and go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.place.topology_file import NO_TOPOLOGY, Topology
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.config import RankConfig
from argus_exporter.ranks.live import LivePage
from argus_exporter.ranks.peers import is_trusted, user_name
from argus_exporter.ranks.rank_state import RankState, StepSink

_DEPARTED: Final = 64
"""Ranks that are gone, of which it is still known how: those of a whole host, several times over."""


@dataclass(frozen=True)
class Departed:
    """A rank whose series have ended: who, when (monotonic seconds), and how."""

    identity: Identity
    at: float
    how: str


class RankRegistry:
    """The ranks by training job and number. One thread (the event loop) calls it."""

    def __init__(
        self,
        config: RankConfig,
        clock: Callable[[], float] = time.monotonic,
        topology: Topology = NO_TOPOLOGY,
    ) -> None:
        self._config = config
        self._topology = topology
        self._clock = clock
        self.step_sinks: list[StepSink] = []
        """Each is called with every finished step of a rank, and returns at once."""
        self._ranks: dict[tuple[str, int], RankState] = {}
        self.departed: deque[Departed] = deque(maxlen=_DEPARTED)
        """The last ones to go, the latest at the end."""

    @property
    def clock(self) -> Callable[[], float]:
        return self._clock

    def reconfigure(self, config: RankConfig, topology: Topology = NO_TOPOLOGY) -> None:
        """Take a new configuration, for the ranks that are here and for those to come."""
        self._config, self._topology = config, topology
        for state in self._ranks.values():
            state.reconfigure(config, topology)

    def hello(self, identity: Identity, attachment: Attachment, page: LivePage | None = None) -> RankState:
        """The rank that a new connection speaks for.

        Raises:
            WireError: the rank is another user's, or there are too many ranks. `page` stays the caller's.
        """
        state = self._ranks.get(identity.key)
        if state is not None and not self._goes_on(state, attachment, identity, page):
            self._forget(state, "another process took its place")
            state = None
        if state is None:
            limit = self._config.ranks.limit
            if len(self._ranks) >= limit:
                raise wire.WireError(
                    "ranks_limit", f"{limit} ranks are here already, lost ones among them: no more are taken"
                )
            state = self._ranks[identity.key] = RankState(
                identity, self._config, self._clock, self._topology, self.step_sinks
            )
        state.attach(attachment, identity, page)
        return state

    def _goes_on(
        self, state: RankState, attachment: Attachment, identity: Identity, page: LivePage | None
    ) -> bool:
        """Whether the connection belongs to the rank as we know it; else the rank begins anew.

        Raises:
            WireError: another user's processes speak for the rank.
        """
        if state.uid not in (None, attachment.uid) and not is_trusted(attachment.uid):
            if state.connected:
                raise wire.WireError(
                    "rank_owner",
                    f"rank {state.identity.rank} of {state.identity.training_job} is connected as user "
                    f"{user_name(state.uid or 0)}, not {user_name(attachment.uid)}: name the jobs apart",
                )
            return False
        return not state.left or state.is_process_of(attachment, identity, page)

    def detach(self, state: RankState, attachment: Attachment, *, said_bye: bool) -> None:
        """A connection ended; with BYE of the one that counts, the rank's series end with the next scrape."""
        state.detach(attachment, said_bye=said_bye)
        if state.left and not state.channels.attachments:
            self._forget(state, "its training process said goodbye")

    def forget_lost(self) -> None:
        """Drop ranks that were lost `ranks.forget_seconds` ago."""
        limit = self._clock() - self._config.ranks.forget_seconds
        for state in list(self._ranks.values()):
            if state.lost_at is not None and state.lost_at <= limit:
                self._forget(state, f"lost, and not back within {self._config.ranks.forget_seconds:.0f} s")

    def knows(self, state: RankState) -> bool:
        """Whether the state is still that of a rank, and not one that was forgotten or begun anew."""
        return self._ranks.get(state.identity.key) is state

    def _forget(self, state: RankState, how: str) -> None:
        if self.knows(state):
            del self._ranks[state.identity.key]
            self.departed.append(Departed(state.identity, self._clock(), how))
        state.close()

    def __iter__(self) -> Iterator[RankState]:
        """Those that are published: connected or lost, by training job and rank."""
        here = (state for state in self._ranks.values() if not state.left)
        return iter(sorted(here, key=lambda state: state.identity.key))

    def __len__(self) -> int:
        return len(self._ranks)
