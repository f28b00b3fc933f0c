"""Read a published triple (count, p50, p99) of one KDE mode as a log-normal.

Source: ARGUS section 6.2, equation 2 (mu = ln p50, sigma = (ln p99 - ln p50) / 2.326).
The divisor here is the expected z of a *sample* p99 instead of 2.326: a small sample rarely
reaches its population's p99, so 2.326 reads sigma low (mean/true 0.49 at n = 5, 0.64 at n = 10,
0.88 at n = 50); with z_n the ratio is 0.96-1.02 for every n >= 2 (docs/evidence/modes.md).
"""

from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Log units. One event or all ties say nothing about spread; 0.2 % is about the narrowest kernel
# seen, and the L3 grid step is bounded below by the smallest sigma.
SIGMA_FLOOR: Final = 0.002

_NORMAL: Final = NormalDist()


def _table() -> tuple[Floats, Floats]:
    """Nodes of z_n over u = 1 / (n + 0.25): Blom's plotting position of the p99 is linear in u."""
    u = np.linspace(0.0, 0.8, 4097)
    z = np.array([_NORMAL.inv_cdf(0.99 - 0.6125 * value) for value in u])
    z[-1] = 0.0  # n = 1: exactly the median
    return u, z


_U, _Z = _table()


def expected_p99_z(count: Floats) -> Floats:
    """Standard normal quantile that the type-7 p99 of `count` samples is expected to reach.

    z_n = Phi^-1((0.99 (n - 1) + 1 - 0.375) / (n + 0.25)), interpolated linearly in 1 / (n + 0.25)
    to 1e-5; 0 for n <= 1, 2.326 for n to infinity.

    Source: Blom 1958 (expected normal order statistics); quantile type 7 of Hyndman & Fan 1996.
    """
    events = np.maximum(np.asarray(count, dtype=np.float64), 1.0)
    return np.asarray(np.interp(1.0 / (events + 0.25), _U, _Z), dtype=np.float64)


def sigma_from_p99(p50: Floats, p99: Floats, count: Floats) -> Floats:
    """Standard deviation of ln(duration) of a mode, in log units, never under SIGMA_FLOOR.

    Args:
        p50: medians in seconds, > 0; any shape that broadcasts with the others.
        p99: type-7 99th percentiles in seconds; below p50 counts as no spread.
        count: events of the mode; up to 1 counts as no spread.

    Returns:
        sigma, of the broadcast shape. NaN in p50 or p99 stays NaN.
    """
    spread = np.log(np.asarray(p99, dtype=np.float64) / np.asarray(p50, dtype=np.float64))
    z = expected_p99_z(count)
    spread, z = np.broadcast_arrays(spread, z)
    # Only NaN input is NaN in the answer: 0 / 0 (one event) is left at 0 and takes the floor.
    sigma = np.where(np.isnan(spread), np.nan, 0.0)
    np.divide(spread, z, out=sigma, where=z > 0.0)
    return np.maximum(sigma, SIGMA_FLOOR)


def lognormal_parameters(p50: Floats, p99: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Map triples to (mu, sigma) of ln(duration in seconds); shapes broadcast, both results share one.

    Raises nothing: where p50 is not a positive number, mu is NaN or -inf and sigma NaN or inf,
    so settle such samples before (the worker does where PromQL answers are decoded).

    Source: ARGUS equation 2, with the small-sample z_n (module docstring).
    """
    sigma = sigma_from_p99(p50, p99, count)
    mu = np.broadcast_to(np.log(np.asarray(p50, dtype=np.float64)), sigma.shape)
    return np.array(mu), sigma
