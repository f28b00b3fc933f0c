"""The section that says where traces are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core.settings import SettingsError, from_mapping
from argus_core.store import StoreConfig, default_folder, open_store


def test_the_default_is_a_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exporter and worker of one host meet there without configuration."""
    for name in ("ARGUS_TRACE_STORE", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert open_store(StoreConfig()).name == str(tmp_path / "argus" / "traces")
    monkeypatch.setenv("ARGUS_TRACE_STORE", "/mnt/traces")
    assert default_folder() == Path("/mnt/traces")


def test_a_unit_keeps_traces_where_systemd_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user's home may be missing or forbidden; of several folders the first."""
    monkeypatch.delenv("ARGUS_TRACE_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/argus")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/argus:/var/lib/other")
    assert default_folder() == Path("/var/lib/argus/traces")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"type": "ftp"}, "store.type is 'ftp'; allowed: folder, s3"),
        ({"type": "s3"}, "store.bucket is ''; type s3 needs the name of a bucket"),
        ({"endpoint": "minio:9000"}, "store.endpoint is 'minio:9000'; allowed: a URL"),
        ({"presign_endpoint": "x"}, "store.presign_endpoint is 'x'"),
        ({"prefix": "/argus"}, "store.prefix is '/argus'; allowed: nothing, or a text that ends in /"),
        ({"attempts": 5}, "store.attempts cannot be set, it is always 3"),
    ],
)
def test_a_wrong_value_is_refused(content: dict[str, object], message: str) -> None:
    """With the key, the value and what is allowed."""
    with pytest.raises(SettingsError) as raised:
        from_mapping(StoreConfig, content, "argus.yaml", "store.")
    assert message in str(raised.value)
