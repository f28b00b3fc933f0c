"""TLS and basic auth from `--web.config.file`, in the format of the Prometheus exporter toolkit.

Source: docs/web-configuration.md of the Prometheus exporter toolkit. Keys that Python's TLS cannot honour are
refused instead of being read over. Paths are relative to the file. Passwords are bcrypt hashes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import bcrypt
from aiohttp import web
from aiohttp.typedefs import Middleware

from argus_core.settings import SettingsError, load, section, setting

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# Probes of Kubernetes have no password, and these paths tell nothing but that the exporter lives.
_WITHOUT_PASSWORD = frozenset(("/healthz", "/readyz"))
# A valid hash of no password: unknown users take as long as known ones.
_NOBODY = b"$2b$10$abcdefghijklmnopqrstuuAqSTWQ5DwBpyeOsMeNZGAFFAGdpR3Hi"


@dataclass(frozen=True)
class TlsConfig:
    cert_file: Path | None = setting(None, "certificate (PEM)")
    key_file: Path | None = setting(None, "private key (PEM)")
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = (
        setting("NoClientCert", "whether clients must show a certificate")
    )
    client_ca_file: Path | None = setting(None, "authority of client certificates (PEM)")
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = setting("TLS12", "oldest protocol")
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = setting("TLS13", "newest protocol")

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or neither")
        if self.client_auth_type != "NoClientCert" and self.client_ca_file is None:
            raise ValueError(f"client_ca_file is missing: client_auth_type {self.client_auth_type} needs it")


@dataclass(frozen=True)
class WebSecurity:
    """The whole file."""

    tls_server_config: TlsConfig = section(TlsConfig, "TLS")
    basic_auth_users: dict[str, str] = setting({}, "user names to bcrypt hashes")

    def __post_init__(self) -> None:
        for user, hashed in self.basic_auth_users.items():
            try:
                bcrypt.checkpw(b"", hashed.encode())
            except ValueError as error:
                raise ValueError(f"basic_auth_users.{user} is not a bcrypt hash") from error


def load_web_security(path: Path | None) -> WebSecurity:
    """Read and check the file; None gives plain HTTP without authentication.

    Raises:
        SettingsError: with file, key, value and what is allowed.
    """
    security = load(WebSecurity, path)
    if path is not None:
        ssl_context(security, path)
    return security


def ssl_context(security: WebSecurity, path: Path | None) -> ssl.SSLContext | None:
    """Server context, or None where the file gives no certificate.

    Raises:
        SettingsError: a certificate, key or authority cannot be used.
    """
    tls = security.tls_server_config
    if tls.cert_file is None or tls.key_file is None:
        return None
    base = path.parent if path is not None else Path()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    try:
        context.load_cert_chain(base / tls.cert_file, base / tls.key_file)
        if tls.client_ca_file is not None:
            context.load_verify_locations(base / tls.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"{path}: tls_server_config: cannot use the certificate, key or client authority: {error}"
        ) from error
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
    return context


class WebAccess:
    """Who may speak to the server, renewed while it runs: certificates expire, passwords change.

    Args:
        path: the file; None: plain HTTP without authentication.

    Raises:
        SettingsError: with file, key, value and what is allowed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._users: dict[str, str] = {}
        self._known: set[bytes] = set()
        security = load_web_security(path)
        self.context = ssl_context(security, path)
        """For the server's socket; None: plain HTTP. New connections see what was renewed."""
        self._take_users(security)

    @property
    def middleware(self) -> Middleware:
        return _authentication(self._users, self._known)

    def renew(self) -> None:
        """Read the file again: certificate, key, users. A further client authority is added to the old one.

        Raises:
            SettingsError: the file is wrong, or it would need another kind of server; what was stays.
        """
        security = load_web_security(self._path)
        fresh = ssl_context(security, self._path)
        if (fresh is None) != (self.context is None):
            raise SettingsError(
                f"{self._path}: TLS cannot be switched on or off while the exporter runs: restart it"
            )
        if self.context is not None and self._path is not None:
            tls, base = security.tls_server_config, self._path.parent
            if tls.cert_file is not None and tls.key_file is not None:
                self.context.load_cert_chain(base / tls.cert_file, base / tls.key_file)
            if tls.client_ca_file is not None:
                self.context.load_verify_locations(base / tls.client_ca_file)
            self.context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
        self._take_users(security)

    def _take_users(self, security: WebSecurity) -> None:
        self._users.clear()
        self._users.update(security.basic_auth_users)
        self._known.clear()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _authentication(users: dict[str, str], known: set[bytes]) -> Middleware:
    """Middleware that asks for basic auth when there are users; `known` remembers correct passwords.

    A correct password is remembered by an HMAC under a random key of this process: bcrypt takes some 50 ms
    on purpose, and a scraper comes every few seconds.
    """
    # One thread: guessers neither stop the records of the ranks nor take more than one core.
    guesses = ThreadPoolExecutor(max_workers=1, thread_name_prefix="argus-passwords")
    key = hashlib.sha256(bcrypt.gensalt()).digest()

    async def check(header: str) -> bool:
        scheme, _, encoded = header.partition(" ")
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if scheme.lower() != "basic":
            return False
        token = hmac.digest(key, f"{user}\0{password}".encode(), "sha256")
        if token in known:
            return True
        hashed = users.get(user)
        matches = await asyncio.get_running_loop().run_in_executor(
            guesses,
            bcrypt.checkpw,
            password.encode()[:72],
            hashed.encode() if hashed is not None else _NOBODY,
        )
        # The file may have been renewed meanwhile: what is no longer in it must not be remembered.
        if not matches or hashed is None or users.get(user) != hashed:
            return False
        known.add(token)
        return True

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        known_to_all = request.path in _WITHOUT_PASSWORD
        if users and not known_to_all and not await check(request.headers.get("Authorization", "")):
            return web.Response(
                status=401, text="Unauthorized\n", headers={"WWW-Authenticate": 'Basic realm="argus"'}
            )
        return await handler(request)

    return middleware
