"""The compiled hot loops of argus_core: libargus_numeric, loaded by ctypes where it was built.

Sources and contracts: native/numeric. Each function has a numpy twin, which is its test oracle and
its fallback: callers ask `library()` and keep to numpy when it answers None. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import json
import os
import sysconfig
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from argus_core.log import Log

if TYPE_CHECKING:
    from argus_core.modes import Tuning

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

_NAME: Final = "libargus_numeric.so"
_ABI: Final = 4
_OTHER_FORM: Final = -3
"""kArgusOtherForm of native/numeric/export.hpp."""

_log = Log(__name__)


class NativeError(RuntimeError):
    """The library refused a call: a mistake of the wrapper here, never of the data."""


def library() -> Library | None:
    """The compiled library, loaded once a process; None where it is absent or ARGUS_NO_NATIVE is set."""
    if os.environ.get("ARGUS_NO_NATIVE", "0") not in ("", "0"):
        return None
    return _installed()


class Library:
    """Typed calls into one loaded libargus_numeric. Any thread; workspaces are kept per thread."""

    def __init__(self, path: Path) -> None:
        """Load `path`.

        Raises:
            OSError: not a loadable library.
            NativeError: a library of another interface version.
        """
        self.path = path
        self._dll = ctypes.CDLL(str(path))
        abi = self._function("argus_numeric_abi")()
        if abi != _ABI:
            raise NativeError(
                f"{path} has interface {abi}, this Python needs {_ABI}: "
                "install the package again so that both come from one source"
            )
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self._modes_bytes = self._function("argus_modes_workspace_bytes", integer)
        self._modes_split = self._function(
            "argus_modes_split",
            *(pointer, pointer, integer, ctypes.POINTER(_Tuning), pointer, integer, pointer, integer),
        )
        self._modes_counts = self._function(
            "argus_modes_counts",
            *(pointer, pointer, integer, integer, ctypes.POINTER(_Tuning), pointer, integer),
            *(pointer, integer, pointer),
        )
        self._w1_mixtures_bytes = self._function("argus_w1_mixtures_workspace_bytes", integer, integer)
        self._w1_mixtures = self._function(
            "argus_w1_mean_of_mixtures",
            *(pointer, pointer, pointer, integer, integer, pointer, integer),
            *(pointer, integer, pointer, integer, pointer),
        )
        self._vector_bytes = self._function("argus_vector_workspace_bytes", integer, integer)
        self._vector_read = self._function(
            "argus_vector_read",
            *(pointer, integer, ctypes.POINTER(ctypes.c_char_p), integer, integer, pointer, integer),
            *(pointer, pointer, pointer, pointer, ctypes.POINTER(ctypes.c_int64)),
        )
        self._local = threading.local()

    def split_modes(self, events: Floats, logs: Floats, tuning: Tuning) -> list[tuple[int, float, float]]:
        """Modes of one window as (count, p50, p99), ascending; twin of modes._split_into_modes.

        Args:
            events: seconds, ascending, finite, > 0, shape (n,), n >= 1.
            logs: their natural logarithms.
            tuning: resolved configuration.
        """
        events = np.ascontiguousarray(events, dtype=np.float64)
        logs = np.ascontiguousarray(logs, dtype=np.float64)
        if logs.shape != events.shape or events.ndim != 1:
            raise ValueError(f"events {events.shape} and logs {logs.shape} must be vectors of one length")
        capacity = events.size // tuning.min_count + 1
        modes = np.empty(capacity, dtype=_MODE)
        needed = self._modes_bytes(capacity)
        found = self._modes_split(
            events.ctypes.data,
            logs.ctypes.data,
            events.size,
            ctypes.byref(_Tuning.of(tuning)),
            self._workspace(needed),
            needed,
            modes.ctypes.data,
            capacity,
        )
        rows: list[tuple[int, float, float]] = modes[: _checked(found, "argus_modes_split")].tolist()
        return rows

    def mode_counts(self, events: Floats, logs: Floats, tuning: Tuning) -> NDArray[np.int64]:
        """Events of each mode of several windows, shape (windows, most), 0 where there are fewer modes.

        Args:
            events: of each window as `split_modes` takes them, shape (windows, n), n >= 1.
            logs: their natural logarithms.
            tuning: resolved configuration for n events.
        """
        events = np.ascontiguousarray(events, dtype=np.float64)
        logs = np.ascontiguousarray(logs, dtype=np.float64)
        if logs.shape != events.shape or events.ndim != 2:
            raise ValueError(f"events {events.shape} and logs {logs.shape} must be tables of one shape")
        windows, count = events.shape
        capacity = count // tuning.min_count + 1
        modes, counts = np.empty(capacity, dtype=_MODE), np.empty((windows, capacity), dtype=np.int64)
        needed = self._modes_bytes(capacity)
        answer = self._modes_counts(
            events.ctypes.data,
            logs.ctypes.data,
            windows,
            count,
            ctypes.byref(_Tuning.of(tuning)),
            self._workspace(needed),
            needed,
            modes.ctypes.data,
            capacity,
            counts.ctypes.data,
        )
        _checked(answer, "argus_modes_counts")
        return counts

    def w1_mean_of_mixtures(
        self, mixtures: tuple[Floats, Floats, Floats], points: Floats, weights: Floats
    ) -> Floats:
        """Mean W1 distance of each rank to all others, for several quadratures at once.

        scores[w, i] = sum_g weights[w, g] * mean over j != i of |F_i(points[g]) - F_j(points[g])|, by one
        ranking a grid point instead of all pairs: O(G R), and no matrix of F.

        Args:
            mixtures: log-normal, (weight, mu, sigma), each of shape (R, modes), mu and sigma > 0 in log
                units; weight 0 where a rank lacks a mode.
            points: grid in log units, shape (G,).
            weights: quadrature weights of the grid points, shape (W, G): interval lengths in seconds
                for W1, in log units for log-W1.

        Returns:
            Shape (W, R), in the units of the weights; 0 where R is 1. F is within 3e-8 of the exact normal
            distribution's; ranks are exact up to 1.2e-10 in F.

        Source: ARGUS section 6.2 (W1 between reconstructed CDFs); docs/evidence/wasserstein.md (one ranking).
        """
        weight, mu, sigma = (np.ascontiguousarray(part.T, dtype=np.float64) for part in mixtures)
        points = np.ascontiguousarray(points, dtype=np.float64)
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        fits = weight.shape == mu.shape == sigma.shape and weight.ndim == 2 and weight.size
        if not fits or weights.shape[1:] != points.shape or not (sigma > 0.0).all():
            raise ValueError(
                f"weight {weight.T.shape}, mu {mu.T.shape} and sigma {sigma.T.shape} must be (R, modes) with "
                f"sigma > 0, weights {weights.shape} (W, G) for points {points.shape}"
            )
        modes, ranks = weight.shape
        scores = np.empty((weights.shape[0], ranks))
        needed = self._w1_mixtures_bytes(ranks, modes)
        answer = self._w1_mixtures(
            *(part.ctypes.data for part in (weight, mu, sigma)),
            modes,
            ranks,
            points.ctypes.data,
            points.size,
            weights.ctypes.data,
            weights.shape[0],
            self._workspace(needed),
            needed,
            scores.ctypes.data,
        )
        _checked(answer, "argus_w1_mean_of_mixtures")
        return scores

    def read_vector(
        self, answer: bytes, begin: int, labels: Sequence[str], capacity: int
    ) -> tuple[list[tuple[list[str], Codes]], Floats, int] | None:
        """The elements of an instant vector from `begin` on, where they are as Prometheus writes them.

        Args:
            labels: the only ones that elements have; one that is absent counts as empty.
            capacity: elements at most.

        Returns:
            (by label: its distinct values and which of them each element has, shape (n,); the elements'
            values, shape (n,); where their closing bracket ends), or None where anything has another form.

        Raises:
            ValueError: an escape, or a character, that JSON does not know.
        """
        shape = len(labels), capacity
        codes, places = np.empty(shape, np.int32), np.empty((*shape, 2), np.int64)
        distinct, values, read = np.empty(len(labels), np.int64), np.empty(capacity), ctypes.c_int64()
        needed = self._vector_bytes(len(labels), capacity)
        workspace = np.empty(needed, np.uint8)  # too large to be kept
        rows = self._vector_read(
            (ctypes.cast(ctypes.c_char_p(answer), ctypes.c_void_p).value or 0) + begin,
            len(answer) - begin,
            (ctypes.c_char_p * len(labels))(*(label.encode() for label in labels)),
            len(labels),
            capacity,
            workspace.ctypes.data,
            needed,
            codes.ctypes.data,
            places.ctypes.data,
            distinct.ctypes.data,
            values.ctypes.data,
            ctypes.byref(read),
        )
        if rows == _OTHER_FORM:
            return None
        _checked(rows, "argus_vector_read")
        columns = []
        for of_label, many, code in zip(places, distinct, codes, strict=True):
            written = (answer[begin + at : begin + at + size] for at, size in of_label[:many].tolist())
            names = [str(json.loads(b'"%b"' % name)) for name in written]
            if len(set(names)) < len(names):
                return None  # one value, written in two ways
            columns.append((names, code[:rows]))
        return columns, values[:rows], begin + read.value

    def _function(self, name: str, *arguments: type[ctypes._CDataType]) -> ctypes._NamedFuncPointer:
        function = self._dll[name]
        function.argtypes = arguments
        function.restype = ctypes.c_int64
        return function

    def _workspace(self, size: int) -> int:
        """Address of this thread's scratch memory, grown to `size` bytes and then kept."""
        held: NDArray[np.int64] | None = getattr(self._local, "workspace", None)
        if held is None or held.nbytes < size:
            held = np.empty(-(-size // 8), dtype=np.int64)
            self._local.workspace = held
        return held.ctypes.data


class _Tuning(ctypes.Structure):
    """struct ArgusModeTuning of native/numeric/modes.hpp."""

    _fields_ = (
        ("min_count", ctypes.c_int64),
        ("max_depth", ctypes.c_int64),
        ("grid_points_fewest", ctypes.c_int64),
        ("grid_points_most", ctypes.c_int64),
        ("prominence", ctypes.c_double),
        ("boundary_spacing", ctypes.c_double),
        ("bandwidth_floor", ctypes.c_double),
        ("bandwidth_floor_seconds", ctypes.c_double),
        ("tail_log_ratio", ctypes.c_double),
        ("tail_deviations", ctypes.c_double),
    )

    @classmethod
    def of(cls, tuning: Tuning) -> _Tuning:
        return cls(
            tuning.min_count,
            tuning.max_depth,
            *tuning.grid_points,
            tuning.prominence,
            tuning.boundary_spacing,
            tuning.bandwidth_floor,
            tuning.bandwidth_floor_seconds,
            tuning.tail_log_ratio,
            tuning.tail_deviations,
        )


# struct ArgusMode of native/numeric/modes.hpp.
_MODE: Final = np.dtype([("count", np.int64), ("p50", np.float64), ("p99", np.float64)])


def _checked(answer: int, function: str) -> int:
    if answer < 0:
        raise NativeError(f"{function} answered {answer}; see ArgusNumericError in native/numeric/export.hpp")
    return answer


@cache
def _installed() -> Library | None:
    for path in _places():
        if not path.is_file():
            continue
        try:
            return Library(path)
        except (OSError, NativeError, AttributeError) as error:
            _log.warning("compiled numerics are not used, numpy does the work (slower)", error=error)
            return None
    return None


def _places() -> list[Path]:
    """Beside this file in a wheel; in site-packages where an editable install keeps what it compiled."""
    installed = (sysconfig.get_path(key) for key in ("platlib", "purelib"))
    return [Path(__file__).parent / _NAME, *(Path(folder) / "argus_core" / _NAME for folder in installed)]
