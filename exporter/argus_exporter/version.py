"""The version of what is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Version of the distribution; `unknown` in a tree that was never installed."""
    try:
        return version("argus-for-prometheus")
    except PackageNotFoundError:
        return "unknown"
