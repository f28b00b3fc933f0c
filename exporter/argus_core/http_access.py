"""How our HTTP clients prove who they are and check whom they talk to, configured as Prometheus' own clients.

Files are read again at each use, so that a rotated secret or certificate needs no restart.

Source: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config (basic_auth,
authorization, tls_config), `headers` of remote_write there, and the older bearer_token_file.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from argus_core.settings import SettingsError, require, section, setting
from argus_core.version import installed_version

# Set by the client itself; a value of the user's would break requests or be overwritten silently.
_RESERVED_HEADERS: Final = frozenset(
    {"authorization", "content-encoding", "content-type", "content-length", "host", "accept-encoding"}
    | {"user-agent", "x-prometheus-remote-write-version", "transfer-encoding", "connection"}
)


class AccessError(SettingsError):
    """A file that a request needs cannot be read or used now; it is read again for the next request."""


def _require_one_line(key: str, text: str) -> None:
    """No header has several lines. Spaces and line ends around a text are taken off, as of a file's."""
    require(text.strip().isprintable(), f"{key} holds control characters; allowed: one line of text")


@dataclass(frozen=True)
class BasicAuth:
    """User and password."""

    username: str = setting("", "user; empty: no basic auth")
    password: str = setting("", "password; better in password_file")
    password_file: Path | None = setting(None, "file with the password, read at each use")

    def __post_init__(self) -> None:
        if self.password and self.password_file is not None:
            raise ValueError("password and password_file exclude one another: give one of them")
        _require_one_line("password", self.password)
        if not self.username and (self.password or self.password_file is not None):
            raise ValueError("username is empty; allowed: the user whom the password belongs to")


@dataclass(frozen=True)
class Authorization:
    """The Authorization header."""

    type: str = setting("Bearer", "scheme of the header")
    credentials: str = setting("", "what follows the scheme; better in credentials_file")
    credentials_file: Path | None = setting(None, "file with the credentials, read at each use")

    def __post_init__(self) -> None:
        if self.credentials and self.credentials_file is not None:
            raise ValueError("credentials and credentials_file exclude one another: give one of them")
        _require_one_line("credentials", self.credentials)
        _require_one_line("type", self.type)
        if not self.type.strip() or self.type.strip().lower() == "basic":
            raise ValueError(f"type is {self.type!r}; allowed: a scheme such as Bearer; basic_auth for Basic")

    @property
    def given(self) -> bool:
        return bool(self.credentials) or self.credentials_file is not None


@dataclass(frozen=True)
class TlsConfig:
    """Whom we trust, and the certificate that we show."""

    ca_file: Path | None = setting(None, "authority of the server's certificate (PEM); null: the system's")
    cert_file: Path | None = setting(None, "our own certificate (PEM), for servers that ask for one")
    key_file: Path | None = setting(None, "its key (PEM)")
    server_name: str = setting("", "name that the server's certificate must have; empty: that of the URL")
    insecure_skip_verify: bool = setting(False, "do not check the server's certificate")

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or neither")


@dataclass(frozen=True)
class AccessConfig:
    """Keys of an HTTP client, named as in Prometheus' configuration."""

    basic_auth: BasicAuth = section(BasicAuth, "user and password")
    authorization: Authorization = section(Authorization, "the Authorization header")
    bearer_token_file: Path | None = setting(None, "file with a bearer token, read at each use")
    tls_config: TlsConfig = section(TlsConfig, "whom we trust, and the certificate that we show")
    headers: dict[str, str] = setting({}, "further headers, such as X-Scope-OrgID for a tenant")

    def __post_init__(self) -> None:
        given = {
            "basic_auth": bool(self.basic_auth.username),
            "authorization": self.authorization.given,
            "bearer_token_file": self.bearer_token_file is not None,
        }
        if sum(given.values()) > 1:
            named = " and ".join(key for key, is_given in given.items() if is_given)
            raise ValueError(f"{named} exclude one another: give one of them")
        for name, value in self.headers.items():
            if name.lower() in _RESERVED_HEADERS:
                raise ValueError(f"headers.{name} is set by ARGUS itself; allowed: other headers")
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"headers.{name} is no header name; allowed: letters, digits, - and _")
            if not value.isprintable():
                raise ValueError(f"headers.{name} holds control characters; allowed: one line of text")

    @property
    def access_given(self) -> bool:
        """Whether any key differs from the default."""
        return any(getattr(self, name) != getattr(_NOTHING, name) for name in _ACCESS_KEYS)


_ACCESS_KEYS: Final = ("basic_auth", "authorization", "bearer_token_file", "tls_config", "headers")
_NOTHING: Final = AccessConfig()


class Access:
    """Arguments of every request to one server.

    Args:
        key: name of the configuration section, as messages call it.
        program: who asks, for the server's logs.
    """

    def __init__(self, config: AccessConfig, key: str, program: str) -> None:
        self._config = config
        self._user_agent = f"{program}/{installed_version()}"
        self.key = key
        self._context: ssl.SSLContext | None = None
        self._context_of: tuple[tuple[Path, int, int], ...] | None = None

    def arguments(self) -> dict[str, Any]:
        """`headers`, `ssl` and `server_hostname` for aiohttp.

        Redirects are not followed: they would hand a secret to whoever the server names.

        Raises:
            AccessError: a file cannot be read or used.
        """
        arguments: dict[str, Any] = {"headers": self._headers(), "allow_redirects": False}
        tls = self._config.tls_config
        if tls != _NOTHING.tls_config:
            arguments["ssl"] = self._ssl_context()
        if tls.server_name:
            arguments["server_hostname"] = tls.server_name
        return arguments

    def _headers(self) -> dict[str, str]:
        config, headers = self._config, {"User-Agent": self._user_agent, **self._config.headers}
        if config.basic_auth.username:
            password = self._secret(
                config.basic_auth.password, config.basic_auth.password_file, "basic_auth.password_file"
            )
            pair = f"{config.basic_auth.username}:{password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif config.authorization.given:
            credentials = self._secret(
                config.authorization.credentials,
                config.authorization.credentials_file,
                "authorization.credentials_file",
            )
            headers["Authorization"] = f"{config.authorization.type.strip()} {credentials}"
        elif config.bearer_token_file is not None:
            headers["Authorization"] = (
                f"Bearer {self._secret('', config.bearer_token_file, 'bearer_token_file')}"
            )
        return headers

    def _secret(self, value: str, path: Path | None, key: str) -> str:
        if path is None:
            return value.strip()
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise AccessError(
                f"{self.key}.{key}: cannot read {path} ({reason}), so the server would refuse us: "
                "correct the path or its permissions"
            ) from error
        if not text.isprintable() or not text:
            raise AccessError(f"{self.key}.{key}: {path} must hold one line of text, and nothing else")
        return text

    def _ssl_context(self) -> ssl.SSLContext:
        """One context as long as its files stay the same: connections are kept by it."""
        tls = self._config.tls_config
        files = [path for path in (tls.ca_file, tls.cert_file, tls.key_file) if path is not None]
        try:
            state = tuple((path, (found := path.stat()).st_mtime_ns, found.st_size) for path in files)
            if self._context is None or state != self._context_of:
                context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
                if tls.insecure_skip_verify:
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                if tls.cert_file is not None:
                    context.load_cert_chain(tls.cert_file, tls.key_file)
                self._context, self._context_of = context, state
        except OSError as error:  # ssl.SSLError is one
            named = error.filename or " and ".join(str(path) for path in files)
            raise AccessError(
                f"{self.key}.tls_config: cannot use {named} ({error.strerror or error}): "
                "name readable PEM files, the key without a passphrase"
            ) from error
        return self._context


def refusal_hint(status: int, key: str) -> str:
    """What to do about an answer that is about who we are or where we ask; empty for other answers."""
    if status in (401, 403):
        return (
            f"check {key}.basic_auth, {key}.authorization, {key}.bearer_token_file, and for a tenant "
            f"{key}.headers (X-Scope-OrgID of Mimir and Cortex, THANOS-TENANT of Thanos)"
        )
    if 300 <= status < 400:
        return f"redirects are not followed: let the URL in {key} be where it points"
    return ""


def require_url(key: str, url: str, *, or_empty: bool = False) -> None:
    """Raises:
    ValueError: it is no URL of ours, or it holds a secret.
    """
    host = url.partition("//")[2].partition("/")[0]
    # URLs are in every log line.
    require("@" not in host, f"{key} holds a user or password; allowed: basic_auth for them")
    allowed = "http://... or https://..." + (", or empty" if or_empty else "")
    is_url = url.startswith(("http://", "https://")) or (or_empty and not url)
    require(is_url, f"{key} is {url!r}; allowed: {allowed}")
