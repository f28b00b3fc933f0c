"""Where samples of single steps are written to, and how we prove who we are. Secrets come from files only."""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

import yaml

from argus_core.remote_write import HEADERS
from argus_core.settings import SettingsError, require_positive, setting

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = ("training_job", "rank", "__name__")


@dataclass(frozen=True)
class RemoteWriteConfig:
    url: str = setting(
        "",
        "where to write argus_iteration_seconds, one sample a step (/api/v1/write of Prometheus); empty: off",
    )
    labels: dict[str, str] = setting({}, "labels to add to each sample, such as those that your scrapes add")
    basic_auth_user: str = setting("", "user name for basic auth")
    basic_auth_password_file: Path | None = setting(None, "file with the password of that user")
    bearer_token_file: Path | None = setting(None, "file with a bearer token, instead of basic auth")
    headers_file: Path | None = setting(
        None, "YAML file of further HTTP headers, such as X-Scope-OrgID for a tenant"
    )
    ca_file: Path | None = setting(
        None, "authority of the receiver's certificate (PEM); default: the system's"
    )
    interval_seconds: float = setting(5.0, "how often samples are sent")
    timeout_seconds: float = setting(15.0, "longest wait for one request")
    queue_samples: int = setting(
        50_000, "samples kept while the receiver is away (some 200 bytes each); the oldest go first, counted"
    )

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(
                f"url is {self.url!r}; allowed: http://... or https://..., or empty to write nothing"
            )
        if bool(self.basic_auth_user) != (self.basic_auth_password_file is not None):
            raise ValueError(
                "basic_auth_user and basic_auth_password_file belong together: give both or neither"
            )
        if self.basic_auth_user and self.bearer_token_file is not None:
            raise ValueError("bearer_token_file and basic_auth_user exclude one another: give one of them")
        for name in self.labels:
            if not _LABEL.fullmatch(name) or name in _OURS:
                raise ValueError(
                    f"labels.{name} is no label to add; allowed: letters, digits and _, and none of "
                    f"{', '.join(_OURS)}"
                )
        require_positive(self, "interval_seconds", "timeout_seconds", "queue_samples")


def request_headers(config: RemoteWriteConfig) -> dict[str, str]:
    """Headers of every request.

    Raises:
        SettingsError: a file cannot be read or holds something else than it should.
    """
    headers = dict(HEADERS)
    if config.headers_file is not None:
        headers |= _headers_of(config.headers_file)
    if config.bearer_token_file is not None:
        headers["Authorization"] = f"Bearer {_secret(config.bearer_token_file, 'bearer_token_file')}"
    if config.basic_auth_password_file is not None:
        password = _secret(config.basic_auth_password_file, "basic_auth_password_file")
        pair = base64.b64encode(f"{config.basic_auth_user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    return headers


def client_context(config: RemoteWriteConfig) -> ssl.SSLContext | bool:
    """How the receiver's certificate is checked; True: as the system does.

    Raises:
        SettingsError: the authority cannot be read.
    """
    if config.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(config.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"remote_write.ca_file: cannot use {config.ca_file}: {error}") from error


def _secret(path: Path, key: str) -> str:
    text = _read(path, key).strip()
    if not text or not text.isprintable():
        raise SettingsError(f"remote_write.{key}: {path} must hold one line of text")
    return text


def _headers_of(path: Path) -> dict[str, str]:
    try:
        content = yaml.safe_load(_read(path, "headers_file"))
    except yaml.YAMLError as error:
        raise SettingsError(f"remote_write.headers_file: {path} is not valid YAML") from error
    if not isinstance(content, dict) or not all(
        isinstance(text, str) and text.isprintable() for pair in content.items() for text in pair
    ):
        raise SettingsError(f"remote_write.headers_file: {path} must map header names to texts")
    return content


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"remote_write.{key}: cannot read {path}: {error}") from error
