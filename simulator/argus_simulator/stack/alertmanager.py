"""Alertmanager: the repository's test configuration, with our receiver in place of its webhooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from argus_simulator.stack.errors import StackError


def configuration_file(repository: Path) -> Path:
    """The test configuration: production routes with group waits of about a second.

    Raises:
        StackError: it was not generated.
    """
    path = repository / "alertmanager" / "alertmanager.test.yaml"
    if not path.is_file():
        raise StackError(f"no Alertmanager configuration at {path}; run `make generate` in {repository}")
    return path


def configuration(source: Path, webhook: str) -> str:
    """The configuration's text with every webhook sent to `webhook`, on the path that it had.

    Raises:
        StackError: the file is not readable, not a configuration, or has no webhook.
    """
    try:
        content: Any = yaml.safe_load(source.read_text())
        webhooks = [hook for receiver in content["receivers"] for hook in receiver.get("webhook_configs", ())]
        for hook in webhooks:
            hook["url"] = webhook + urlsplit(hook["url"]).path
    except OSError as error:
        raise StackError(f"{source}: cannot read the Alertmanager configuration: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise StackError(f"{source}: not an Alertmanager configuration: {error!r}") from error
    if not webhooks:
        raise StackError(f"{source}: no receiver has a webhook, so no alert would be delivered here")
    # Relative to the configuration's folder, which is no longer the one that we write to.
    content["templates"] = [str(source.parent.absolute() / name) for name in content.get("templates") or ()]
    return yaml.safe_dump(content, sort_keys=False)
