"""Field configuration of a panel: defaults, and the overrides that match a name."""

from __future__ import annotations

import re

from argus_dashboards.theme import Json


def of(panel: Json, name: str) -> Json:
    """What holds for the field (column or series) called `name`."""
    config = panel["fieldConfig"]
    field = {**config["defaults"], "custom": dict(config["defaults"].get("custom", {}))}
    for override in config["overrides"]:
        matcher = override["matcher"]
        if matcher["id"] == "byName":
            hit = matcher["options"] == name
        else:
            hit = re.search(matcher["options"].strip("/"), name) is not None
        for property_ in override["properties"] if hit else ():
            key = property_["id"]
            if key.startswith("custom."):
                field["custom"][key.removeprefix("custom.")] = property_["value"]
            else:
                field[key] = property_["value"]
    return field
