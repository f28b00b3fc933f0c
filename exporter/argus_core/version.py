"""The version of what is installed."""

from __future__ import annotations

from functools import cache


@cache
def installed_version() -> str:
    """Version of the distribution, looked up once; `unknown` in a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # as slow as all else that --help needs

    try:
        return version("argus-for-prometheus")
    except PackageNotFoundError:
        return "unknown"
