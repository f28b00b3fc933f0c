"""TLS and basic auth, as a user of the Prometheus exporter toolkit configures them."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlsplit

import bcrypt
import pytest
import trustme

from argus_core.settings import SettingsError
from argus_exporter.config import ExporterConfig
from argus_exporter.publish.web_config import load_web_security
from exporter.exporter_process import config, exporter, wait_for

REFUSED = "certificate required|reset|closed|refused|disconnected|EOF"


def certificate(folder: Path, name: str, authority: trustme.CA) -> None:
    """NAME.pem and NAME.key for 127.0.0.1, and the authority's own certificate beside them."""
    issued = authority.issue_cert("127.0.0.1", common_name=name)
    issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    issued.private_key_pem.write_to_path(folder / f"{name}.key")
    authority.cert_pem.write_to_path(folder / "authority.pem")


def secured(tmp_path: Path, text: str) -> ExporterConfig:
    file = tmp_path / "web.yaml"
    file.write_text(text)
    plain = config(tmp_path / "exporter.sock")
    return dataclasses.replace(plain, web=dataclasses.replace(plain.web, config_file=file))


def fetch(
    url: str, context: ssl.SSLContext | None = None, login: str | None = None, path: str = "/metrics"
) -> int:
    request = urllib.request.Request(f"{url}{path}")
    if login is not None:
        request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_basic_auth_lets_in_who_knows_the_password(tmp_path: Path):
    """Right password twice (the second from memory), wrong password, unknown user, nothing."""
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    with exporter(secured(tmp_path, f"basic_auth_users:\n  alice: {hashed}\n")) as running:
        assert fetch(running.url, login="alice:s3cret") == 200
        assert fetch(running.url, login="alice:s3cret") == 200
        assert fetch(running.url, login="alice:wrong") == 401
        assert fetch(running.url, login="bob:s3cret") == 401
        assert fetch(running.url) == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_needs_no_password(tmp_path: Path, path: str):
    """Kubernetes has none to give, and would end a pod that asks it for one."""
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    with exporter(secured(tmp_path, f"basic_auth_users:\n  alice: {hashed}\n")) as running:
        assert fetch(running.url, path=path) == 200
        assert [fetch(running.url, path=other) for other in ("/", f"{path}/", f"/x{path}")] == [401] * 3


class Guesses:
    """bcrypt.checkpw that notes how many computations run at once; `go` lets them end."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = self.done = 0
        self._lock = threading.Lock()

    def __call__(self, password: bytes, _: bytes) -> bool:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.go.wait(30)
        with self._lock:
            self.running -= 1
            self.done += 1
        return password == b"s3cret"


def guess(url: str, password: str) -> socket.socket:
    """A request whose answer nobody has read yet."""
    at = urlsplit(url)
    connection = socket.create_connection((at.hostname, at.port), timeout=30)
    login = b64encode(f"alice:{password}".encode()).decode()
    connection.send(f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\r\n".encode())
    return connection


def test_passwords_are_tried_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also of those who hang up before the answer. Meanwhile who is known is served, and the ranks are."""
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    with exporter(secured(tmp_path, f"basic_auth_users:\n  alice: {hashed}\n")) as running:
        assert fetch(running.url, login="alice:s3cret") == 200
        guesses = Guesses()
        monkeypatch.setattr(bcrypt, "checkpw", guesses)
        for turn in range(20):
            guess(running.url, f"wrong{turn}").close()
        waiting = [guess(running.url, f"guess{turn}") for turn in range(20)]
        assert fetch(running.url, login="alice:s3cret") == 200
        wait_for(lambda: guesses.running > 0, "the first guess is tried")
        guesses.go.set()
        for connection in waiting:
            assert b"401 Unauthorized" in connection.recv(1000)
            connection.close()
        assert guesses.done >= 20
        assert guesses.most == 1


def test_a_password_that_was_replaced_while_it_was_tried_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would let its owner in for as long as the exporter runs."""
    before, after = (bcrypt.hashpw(word, bcrypt.gensalt(4)).decode() for word in (b"s3cret", b"fresh"))
    with exporter(secured(tmp_path, f"basic_auth_users:\n  alice: {before}\n")) as running:
        guesses = Guesses()
        monkeypatch.setattr(bcrypt, "checkpw", guesses)
        with guess(running.url, "s3cret") as connection:
            wait_for(lambda: guesses.running > 0, "the old password is tried")
            monkeypatch.undo()
            secured(tmp_path, f"basic_auth_users:\n  alice: {after}\n")
            running.access.renew()
            guesses.go.set()
            assert b"401 Unauthorized" in connection.recv(1000)
        assert fetch(running.url, login="alice:s3cret") == 401
        assert fetch(running.url, login="alice:fresh") == 200


def test_tls_serves_https_only(tmp_path: Path):
    """A client that trusts the certificate is served; plain HTTP is not."""
    certificate(tmp_path, "server", trustme.CA())
    text = "tls_server_config: {cert_file: server.pem, key_file: server.key}"
    with exporter(secured(tmp_path, text)) as running:
        assert running.url.startswith("https://")
        assert fetch(running.url, ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))) == 200
        with pytest.raises(OSError, match=REFUSED):
            fetch(running.url.replace("https", "http"))


def test_a_new_certificate_and_a_new_password_need_no_restart(tmp_path: Path):
    """As after SIGHUP: who knew the old password does not get in, and the new authority is needed."""
    certificate(tmp_path, "server", trustme.CA())
    old_authority = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    tls = "tls_server_config: {{cert_file: server.pem, key_file: server.key}}"
    text = tls + "\nbasic_auth_users: {{alice: {}}}\n"
    settings = secured(tmp_path, text.format(bcrypt.hashpw(b"old", bcrypt.gensalt(4)).decode()))
    with exporter(settings) as running:
        assert fetch(running.url, old_authority, "alice:old") == 200
        certificate(tmp_path, "server", trustme.CA())
        secured(tmp_path, text.format(bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()))
        running.reconfigure(settings)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(running.url, old_authority, "alice:new")
        new_authority = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        assert fetch(running.url, new_authority, "alice:new") == 200
        assert fetch(running.url, new_authority, "alice:old") == 401
        (tmp_path / "web.yaml").write_text("basic_auth_users: {}\n")
        with pytest.raises(SettingsError, match="TLS cannot be switched on or off"):
            running.reconfigure(settings)
        assert fetch(running.url, new_authority, "alice:new") == 200


def test_mutual_tls_asks_for_a_certificate_of_the_authority(tmp_path: Path):
    """Without one the handshake fails."""
    authority = trustme.CA()
    certificate(tmp_path, "server", authority)
    certificate(tmp_path, "client", authority)
    text = (
        "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: authority.pem,"
        " client_auth_type: RequireAndVerifyClientCert}"
    )
    with exporter(secured(tmp_path, text)) as running:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        with pytest.raises(OSError, match=REFUSED):
            fetch(running.url, context)
        context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        assert fetch(running.url, context) == 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls_server_config: {cert_file: a.pem}", "cert_file and key_file belong together"),
        ("tls_server_config: {cert_file: a.pem, key_file: b.key}", "cannot use the certificate"),
        ("tls_server_config: {client_auth_type: RequireAnyClientCert}", "allowed: NoClientCert"),
        ("tls_server_config: {client_auth_type: VerifyClientCertIfGiven}", "client_ca_file is missing"),
        ("basic_auth_users: {alice: plain}", "basic_auth_users.alice is not a bcrypt hash"),
        ("basic_auth: {}", r"did you mean basic_auth_users\?"),
    ],
)
def test_a_file_that_cannot_be_honoured_is_refused(tmp_path: Path, text: str, says: str):
    """Never read over: a wrong security file must not serve in the open."""
    file = tmp_path / "web.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=says) as caught:
        load_web_security(file)
    assert str(file) in str(caught.value)
