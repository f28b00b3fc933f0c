"""Alertmanager: the repository's test configuration, pointed at our webhook receiver."""

from __future__ import annotations

from pathlib import Path

from argus_simulator.stack.errors import StackError

_PLACEHOLDER = "http://webhook.test"


def configuration_file(repository: Path) -> Path:
    """The test configuration.

    Raises:
        StackError: it is not there.
    """
    path = repository / "alertmanager" / "test" / "alertmanager.yml"
    if not path.is_file():
        raise StackError(f"no Alertmanager configuration for tests at {path}; check out the whole repository")
    return path


def configuration(source: Path, webhook: str) -> str:
    """The configuration's text with the receivers' base URL put in.

    Raises:
        StackError: the file is not readable or has no place for the URL.
    """
    try:
        text = source.read_text()
    except OSError as error:
        raise StackError(f"{source}: cannot read the Alertmanager configuration: {error.strerror}") from error
    if _PLACEHOLDER not in text:
        raise StackError(
            f"{source}: no receiver at {_PLACEHOLDER}, so no alert would reach the receiver here"
        )
    return text.replace(_PLACEHOLDER, webhook)
