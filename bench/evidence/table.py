"""A table of figures: what every measurement here answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Figures by row and column; each row has the same columns."""

    title: str
    rows: Mapping[str, Mapping[str, float]]

    def __str__(self) -> str:
        columns = list(next(iter(self.rows.values())))
        label = max(map(len, self.rows))
        widths = [max(10, len(column)) for column in columns]
        lines = [self.title, "  ".join([f"  {'':{label}}", *map(str.rjust, columns, widths)])]
        for name, row in self.rows.items():
            cells = (f"{value:.3g}".rjust(width) for value, width in zip(row.values(), widths, strict=True))
            lines.append("  ".join([f"  {name:{label}}", *cells]))
        return "\n".join(lines)
