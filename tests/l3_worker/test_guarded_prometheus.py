"""Passwords, tokens, certificates, tenants: against a Prometheus that asks for them, and what goes wrong."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import trustme
import yaml
from bench.servers import PrometheusServer

from argus_core.settings import from_mapping
from argus_l3_worker.cli import main
from argus_l3_worker.config import Config
from l3_worker.backends import Backend
from l3_worker.fleets import fleet
from l3_worker.published_fleet import Fleet

PASSWORD = "open sesame"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_results_go_to_prometheus_as_queries_do_unless_told_otherwise() -> None:
    """One password for both, while the receiver is Prometheus itself; never a password for another server."""
    reading = {"url": "https://p", "basic_auth": {"username": "a", "password": "b"}}
    same = from_mapping(Config, {"prometheus": reading}, "test")
    assert same.write_access == (same.prometheus, "prometheus")
    other = from_mapping(Config, {"prometheus": reading, "write": {"url": "https://mimir"}}, "test")
    assert other.write_access == (other.write, "write")


def test_tenant_and_token_are_sent() -> None:
    """Headers reach queries and remote write alike; answers are asked for as they are."""
    with Backend() as backend:
        config = {
            "prometheus": {"url": backend.url, "headers": {"X-Scope-OrgID": "team-a"}},
            "write": {"url": f"{backend.url}/api/v1/push", "authorization": {"credentials": "abc"}},
        }
        assert main(["once", "--write", "--config", str(written(backend.folder, config))]) == 0
    queries = [request for request in backend.requests if request.path == "/api/v1/query"]
    assert queries and all(request.headers["X-Scope-OrgID"] == "team-a" for request in queries)
    assert all(request.headers["Accept-Encoding"] == "identity" for request in queries)
    pushes = [request.headers for request in backend.requests if request.path == "/api/v1/push"]
    assert len(pushes) == 2  # what rules read, and the rest
    for headers in pushes:
        assert headers["Authorization"] == "Bearer abc"
        assert (headers["Content-Encoding"], "X-Scope-OrgID" in headers) == ("snappy", False)


def test_a_redirect_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """A secret goes to nobody but the server that was named."""
    with Backend() as backend:
        backend.redirect_to = f"{backend.url}/elsewhere"
        config = {"prometheus": {"url": backend.url, "authorization": {"credentials": "abc"}}}
        assert main(["once", "--config", str(written(backend.folder, config))]) == 1
    assert "let the URL in prometheus be where it points" in capsys.readouterr().err
    assert all(request.path != "/elsewhere" for request in backend.requests)


@pytest.mark.parametrize(
    ("status", "error", "named"),
    [
        (404, "page not found", "/prometheus of Mimir and Cortex"),
        (400, 'unsupported path requested: "/api/v1/query"', "/select/0/prometheus of vmselect"),
        (401, "no org id", "prometheus.headers (X-Scope-OrgID"),
    ],
)
def test_a_query_that_is_refused_for_us_names_what_to_set(
    status: int, error: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path of each engine, and the header of a tenant."""
    with Backend(answer=lambda _: (status, {"errorType": "x", "error": error})) as backend:
        assert (
            main(["once", "--config", str(written(backend.folder, {"prometheus": {"url": backend.url}}))])
            == 1
        )
    assert named in capsys.readouterr().err


def written(folder: Path, config: object) -> Path:
    file = folder / "l3.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


# A real Prometheus that serves TLS, asks for a password and for a certificate.


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[PrometheusServer]:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on PATH: run tools/setup.sh")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = authority.issue_cert("prometheus.internal", "127.0.0.1")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    client = authority.issue_cert("argus-l3-worker")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    (tmp_path / "password").write_text(PASSWORD)
    tls = {
        "cert_file": str(tmp_path / "server.pem"),
        "key_file": str(tmp_path / "server.key"),
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(tmp_path / "ca.pem"),
    }
    users = {"argus": bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}
    web = tmp_path / "web.yml"
    web.write_text(yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": users}))
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    running = PrometheusServer(
        folder,
        arguments=[f"--web.config.file={web}"],
        context=context,
        headers={"Authorization": basic("argus", PASSWORD)},
    )
    try:
        yield running.start()
    finally:
        running.stop()


def reading(server: PrometheusServer, files: Path, **changes: object) -> dict[str, object]:
    tls = {
        "ca_file": str(files / "ca.pem"),
        "cert_file": str(files / "client.pem"),
        "key_file": str(files / "client.key"),
        "server_name": "prometheus.internal",
    }
    auth = {"username": "argus", "password_file": str(files / "password")}
    return {"url": server.url, "basic_auth": auth, "tls_config": tls, **changes}


@pytest.mark.servers
def test_a_guarded_prometheus_is_read_and_written(
    guarded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TLS by an authority of one's own, a client certificate, a password file: verdicts come back."""
    now = float(int(time.time()))
    job = Fleet(guarded)
    for window in range(3):
        job.publish(now - 60 * (2 - window), 64 * (window + 1), fleet(8, seed=window, slow={"3": 1.2}))
    file = written(tmp_path, {"prometheus": reading(guarded, tmp_path)})
    assert main(["once", "--config", str(file), "--time", str(now), "--json", "--write"]) == 0
    assert json.loads(capsys.readouterr().out)["culprits"] == ["3"]
    assert guarded.query('argus_l3_anomaly{kernel="all"}', now)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"basic_auth": {"username": "argus", "password": "hunter2"}}, "check prometheus.basic_auth"),
        ({"tls_config": {}}, "prometheus.tls_config"),
        ({"tls_config": {"insecure_skip_verify": True}}, "cannot be asked"),  # shows no certificate
    ],
)
def test_a_guarded_prometheus_says_what_is_wrong(
    guarded: PrometheusServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    named: str,
) -> None:
    """Exit 1, the key to mend, no secret and no traceback."""
    file = written(tmp_path, {"prometheus": reading(guarded, tmp_path, **change)})
    assert main(["once", "--config", str(file)]) == 1
    message = capsys.readouterr().err
    assert named in message
    assert "hunter2" not in message and "Traceback" not in message
