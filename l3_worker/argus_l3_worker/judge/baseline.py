"""Has a GPU become slower than it was itself?

Chips differ for life, by 1 to 3 %, and in a role of few ranks that hides one that becomes 5 or 10 % slower
from its peers. It does not hide it from what the GPU itself was in the same role over the last hours, since
what makes chips differ does not change. One that is slow from the start is left to its peers.

All is in shifts against the role, so that a change of work for all is none. Whatever else moves all ranks of
a role, as when one GPU is replaced and the role's median moves, is taken off with the median change since
the GPU has been there: what came with it is no change of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import significant
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.triples import Floats

# Of fewer half hours neither the median nor the spread is known: two hours.
_LEAST_BLOCKS: Final = 4
# Share of the change that the newest window must still show: who has recovered is not accused any longer.
_STILL: Final = 0.5
# The error of a median of n normal values, in their deviations, squared and times n.
_MEDIAN_ERROR: Final = np.pi / 2.0


def own_evidence(
    now: Floats, recent: Floats, past: Floats, by_role: Segments, config: JudgeConfig, recent_blocks: int
) -> Floats:
    """Log shift of each rank against its GPU's own past, where it counts as an anomaly, else 0.

    Noise is the largest of two: how far the GPU's own half hours lie apart, of which `recent` is of some;
    and how far the changes of the ranks do, in its role and in all roles of the job.

    Args:
        now, recent: log shift against the role in the newest window, and median of the recent half hours,
            shape (ranks,), NaN where unknown.
        past: medians of the half hours before that, the oldest first, shape (ranks, half hours), NaN where
            unknown.
        by_role: the ranks of each role.
        recent_blocks: half hours that `recent` is of.
    """
    there = ~np.isnan(past)
    known, began = there.sum(axis=1), there.argmax(axis=1)
    usual, change = np.full((2, len(past)), np.nan)
    for begin in np.unique(began[known >= _LEAST_BLOCKS]).tolist():
        since = past[:, begin:]
        of_then = Segments([since.shape[1]] * len(since)).medians(since.ravel())
        chosen = (began == begin) & (known >= _LEAST_BLOCKS)
        usual[chosen] = of_then[chosen]
        change[chosen] = by_role.centred(recent - of_then)[chosen]
    # The standard deviation: of a handful of values a robust one is twice as uncertain.
    squares = np.where(there, past - usual[:, None], 0.0) ** 2
    apart = np.sqrt(np.nan_to_num(squares).sum(axis=1) / np.maximum(known - 1, 1))
    error = apart * np.sqrt(1.0 / recent_blocks + _MEDIAN_ERROR / np.maximum(known, 1))
    still = change + by_role.centred(now - recent)
    found = significant(change, error, float(np.log1p(config.own_effect)), config, parts=by_role)
    return np.where((found > 0.0) & (still > _STILL * found), found, 0.0)
