"""Passwords, tokens and certificates become what a request carries; what cannot be used is named, unread."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import trustme

from argus_core.http_access import Access, AccessConfig, AccessError, require_url
from argus_core.settings import SettingsError, from_mapping

PASSWORD = "open sesame"


def access(**keys: object) -> Access:
    return Access(from_mapping(AccessConfig, keys, "test"), "prometheus", "argus-test")


def authorization(of: Access) -> str:
    return str(of.arguments()["headers"]["Authorization"])


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_each_form_of_prometheus_becomes_its_header(tmp_path: Path) -> None:
    """basic_auth, authorization and bearer_token_file, with secrets in the file or beside it."""
    file = tmp_path / "secret"
    file.write_text(f"{PASSWORD}\n")
    name = str(file)
    assert authorization(access(basic_auth={"username": "argus", "password": "x"})) == basic("argus", "x")
    assert authorization(access(basic_auth={"username": "argus", "password_file": name})) == basic(
        "argus", PASSWORD
    )
    assert authorization(access(authorization={"credentials": "abc"})) == "Bearer abc"
    given = {"type": "ApiKey", "credentials_file": name}
    assert authorization(access(authorization=given)) == f"ApiKey {PASSWORD}"
    assert authorization(access(bearer_token_file=name)) == f"Bearer {PASSWORD}"


def test_a_line_end_around_a_secret_is_no_part_of_it() -> None:
    """A YAML block ends with one; sent in a header it would fail every request."""
    given = {"type": "ApiKey\n", "credentials": f"{PASSWORD}\n"}
    assert authorization(access(authorization=given)) == f"ApiKey {PASSWORD}"
    assert authorization(access(basic_auth={"username": "argus", "password": "x\n"})) == basic("argus", "x")


def test_a_renewed_authority_is_used_from_then_on(tmp_path: Path) -> None:
    """The context is kept, and with it connections, until a file changes."""
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    used = access(tls_config={"ca_file": str(file)})
    first = used.arguments()["ssl"]
    assert used.arguments()["ssl"] is first
    file.write_bytes(trustme.CA().cert_pem.bytes() + trustme.CA().cert_pem.bytes())
    assert used.arguments()["ssl"] is not first


@pytest.mark.parametrize("content", ["", "two\nlines\n", None])
def test_a_secret_that_is_none_is_named_by_key_and_file(tmp_path: Path, content: str | None) -> None:
    """Missing, empty, or more than a line: which key, which file; never what is in it."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AccessError, match=rf"prometheus\.bearer_token_file: .*{file}") as caught:
        access(bearer_token_file=str(file)).arguments()
    assert "two" not in str(caught.value)


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    """Not PEM, and not there."""
    file = tmp_path / "ca.pem"
    file.write_text("nonsense")
    for path in (file, tmp_path / "absent.pem"):
        with pytest.raises(AccessError, match=rf"prometheus\.tls_config: cannot use {path}"):
            access(tls_config={"ca_file": str(path)}).arguments()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"basic_auth": {"username": "a"}, "bearer_token_file": "/t"}, "basic_auth and bearer_token_file"),
        ({"basic_auth": {"username": "a", "password": "b", "password_file": "/t"}}, "password_file exclude"),
        ({"basic_auth": {"password": "b"}}, "username is empty"),
        ({"authorization": {"type": "Basic", "credentials": "b"}}, "basic_auth for Basic"),
        ({"tls_config": {"cert_file": "/c"}}, "cert_file and key_file belong together"),
        ({"headers": {"Authorization": "x"}}, "set by ARGUS itself"),
        ({"headers": {"X-Scope-OrgID": "a\nb"}}, "control characters"),
        ({"authorization": {"credentials": "two\nlines"}}, "credentials holds control characters"),
        ({"authorization": {"type": "Bea\nrer", "credentials": "b"}}, "type holds control characters"),
        ({"basic_auth": {"username": "a", "password": "b\nc"}}, "password holds control characters"),
    ],
)
def test_a_contradiction_is_refused_at_start(keys: dict[str, object], named: str) -> None:
    """With the section, and without the secret."""
    with pytest.raises(SettingsError, match=named) as caught:
        from_mapping(AccessConfig, keys, "l3.yaml", "prometheus.")
    assert "prometheus." in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:9090", "url is 'localhost:9090'; allowed: http://... or https://..."),
        ("", "url is ''; allowed: http://... or https://..."),
        ("http://user:pass@host", "url holds a user or password; allowed: basic_auth for them"),
        ("ftp://user:pass@host/x", "url holds a user or password; allowed: basic_auth for them"),
    ],
)
def test_what_is_no_url_of_ours_is_refused(url: str, says: str) -> None:
    """Without the password that it holds, as the URL of every client is in its log."""
    with pytest.raises(ValueError) as caught:
        require_url("url", url)
    assert str(caught.value) == says


def test_a_url_may_hold_braces_an_at_sign_in_its_path_and_be_left_out() -> None:
    """Only what stands before the path could be a user."""
    require_url("url", "http://[{node}]:9877/a@b")
    require_url("url", "", or_empty=True)
