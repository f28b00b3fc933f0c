"""How sure a share or a rate is that was counted a few times."""

from __future__ import annotations

import math

from scipy.special import gammaincinv

_Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(hits: float, trials: int) -> tuple[float, float]:
    """95 % interval of a share.

    Args:
        hits: successes; the sum of shares between 0 and 1 also makes sense.
        trials: how many there were; without any the interval is 0 to 1.

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    if trials == 0:
        return 0.0, 1.0
    share, z2 = hits / trials, _Z95**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def poisson_upper(events: int, confidence: float = 0.95) -> float:
    """One-sided upper bound of the mean behind a count: 3.0 for none at 95 %.

    The mean at which a count this low or lower has probability 1 - confidence (Garwood 1936).
    """
    return float(gammaincinv(events + 1, confidence))
