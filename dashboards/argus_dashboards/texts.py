"""Texts in PromQL: expressions with one sample, whose label `text` is what people read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_DAY: Final = 86400
_PADDED: Final = ".?(..)"
"""The last two of two or three letters."""


def put(rows: str, text: str, label: str = "text", pattern: str = "(.*)", into: str = "text") -> str:
    """`${1}` in the text is what the pattern finds in the label; without it the text stays as it was."""
    return f'label_replace({rows}, "{into}", "{text}", "{label}", "{pattern}")'


def constant(text: str, rows: str = "vector(1)") -> str:
    return put(rows, text, "", "")


def chosen(rows: str, label: str, texts: Iterable[tuple[str, str]]) -> str:
    """The text of the last of (pattern, text) that finds something in the label."""
    for pattern, text in texts:
        rows = put(rows, text, label, pattern)
    return rows


def joined(parts: Iterable[str]) -> str:
    """Those that are there, in their order; nothing where none is."""
    found, names = ["vector(0)"], []
    for number, part in enumerate(parts):
        names.append(f"t{number}")
        labelled = put(part, "$1", into=names[-1])
        found.append(f"+ on () group_left ({names[-1]}) (({labelled}) ^ 0 or on () vector(0))")
    labels = "".join(f', "{name}"' for name in names)
    return f'label_join(({" ".join(found)}) > 0, "text", ""{labels})'


def number(query: str, unit: str) -> str:
    """As cards have it, by the units of questions.libsonnet; with so many digits as PromQL can round to."""
    match unit:
        case "s":
            seconds = _rounded(f"{query} >= 1", 0.001, "${1}s")
            return f"{seconds} or on () {_rounded(f'1000 * ({query} < 1)', 0.1, '${1}ms')}"
        case "minute":
            return joined([*_date(query, "-"), _counted(f"hour({query})", " ${1}:"), _clock(query, " UTC")])
        case "Unix s":
            second = _counted(f"floor({query} % 60)", "${1} UTC")
            return joined([_counted(f"hour({query})", "${1}:"), _clock(query, ":"), second])
        case "change":
            return put(_rounded(f"100 * {query}", 1, "${1}%"), "+${1}", pattern="([^-].*)")
    scale, step, text = {
        "share": ("100 * ", 0.1, "${1}%"),
        "times": ("", 0.01, "${1}x"),
        "count": ("", 1, "$1"),
        "GPUs": ("", 0.1, "$1"),
        "GPU-hours": ("", 0.01, "${1} GPU-hours"),
    }[unit]
    return _rounded(f"{scale}{query}", step, text)


def stamp(query: str) -> str:
    """A Unix time as 20231114T2227."""
    return joined([*_date(query, ""), _counted(f"hour({query})", "T$1"), _clock(query, "")])


def _date(query: str, between: str) -> list[str]:
    return [
        put(f'count_values("text", year({query}))', f"${{1}}{between}"),
        _counted(f"month({query})", f"${{1}}{between}"),
        _counted(f"day_of_month({query})", "$1"),
    ]


def _clock(query: str, text: str) -> str:
    return _counted(f"minute({query})", f"${{1}}{text}")


def _counted(query: str, text: str) -> str:
    """Two digits."""
    return put(put(f'count_values("text", {query})', "0$1"), text, pattern=_PADDED)


def _rounded(query: str, step: float, text: str) -> str:
    return put(f'count_values("text", round({query}, {step}))', text)


def lasted(query: str) -> str:
    """Seconds as 2h 3m 4s."""
    sizes = ((_DAY, "d "), (3600, "h "), (60, "m "), (1, "s"))
    wraps = (10**9, _DAY, 3600, 60)
    return joined(
        put(f'count_values("text", floor(({query} >= {size}) % {wrap} / {size}))', f"${{1}}{unit}")
        for (size, unit), wrap in zip(sizes, wraps, strict=True)
    )
