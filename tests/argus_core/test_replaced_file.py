"""A file is replaced whole, and never through what somebody else has put beside it."""

from __future__ import annotations

import os
from pathlib import Path

from argus_core.replaced_file import replace_text


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "sd.json"
    for text in ("[]", "[1]"):
        replace_text(file, text, mode=0o640)
        assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    """Its name can be guessed; root would write to where the link leads."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("ssh-ed25519 mine")
    (tmp_path / f".sd.json.{os.getpid()}").symlink_to(precious)
    replace_text(tmp_path / "sd.json", "[]")
    assert precious.read_text() == "ssh-ed25519 mine"
    assert (tmp_path / "sd.json").read_text() == "[]"
    assert not (tmp_path / "sd.json").is_symlink()
