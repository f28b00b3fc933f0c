"""Causes that durations of kernels can tell, by the names of the table of causes, and who acts on them."""

from __future__ import annotations

from typing import Final

from argus_core.causes import TEAMS
from argus_l3_worker.triples import Kind

GPU_COMPUTE: Final = "gpu-compute"
"""Compute kernels are slower, as a throttled GPU's are."""
GPU_TRANSFER: Final = "gpu-transfer"
"""Copies are slower: PCIe or host memory."""
LINK_SLOW: Final = "link-slow"
"""Collectives of a whole process group take longer, and none of its ranks is late."""
GPU_MEMORY: Final = "gpu-memory"
"""Few launches of one rank take far longer, the usual ones do not: what memory errors leave behind as they
are corrected. On a whole host or rack it is what they share that makes bursts, such as power or cooling:
`gpu-compute`."""
WORKLOAD: Final = "workload"
"""Other work, not slower work: kernels run more or less often in the same steps."""
COLLECTIVE_LATE: Final = "collective-late"
COLLECTIVE_WAIT: Final = "collective-wait"

OF_KIND: Final[dict[Kind, str]] = {
    "compute": GPU_COMPUTE,
    "transfer": GPU_TRANSFER,
    "collective": LINK_SLOW,
}
"""What slower kernels of a kind mean; a single rank's collectives are judged inverted instead."""


def team_of(cause: str) -> str:
    """The team that acts on a cause; none, where a rank only waits."""
    return "none" if cause == COLLECTIVE_WAIT else TEAMS[cause]
