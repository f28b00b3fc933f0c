"""Configuration files: a wrong one is refused with file, key, value and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from argus_core.settings import SettingsError, constant, document, load, section, setting


@dataclass(frozen=True)
class Inner:
    GONE: ClassVar = {"width": "all are as wide"}

    seconds: float = setting(60.0, "a length")
    method: Literal["a", "b"] = setting("a", "a choice")
    depth: int = constant(6, "nobody should turn it")
    derived: int | None = constant(None, "it follows from the length")

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds is {self.seconds}; allowed: a number above 0")


@dataclass(frozen=True)
class Outer:
    inner: Inner = section(Inner, "a section")
    path: Path | None = setting(None, "a path")
    table: dict[str, str] = setting({}, "a table")
    users: tuple[str | int, ...] = setting((), "a list")


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return file


def test_no_file_gives_the_defaults():
    """The defaults are a complete configuration."""
    assert load(Outer, None) == Outer()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path: Path):
    """Whole numbers are numbers; a text is a path where one is asked for."""
    file = write(tmp_path, "inner: {seconds: 5}\npath: /x\ntable: {a: b}\n")
    assert load(Outer, file) == Outer(Inner(5.0), Path("/x"), {"a": "b"})


def test_a_list_keeps_the_type_of_each_item(tmp_path: Path):
    """User names and numeric ids may stand side by side."""
    assert load(Outer, write(tmp_path, "users: [train, 1001]")).users == ("train", 1001)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inner: {second: 5}", r"unknown key inner\.second; did you mean inner\.seconds\?"),
        ("iner: {}", r"unknown key iner; did you mean inner\?"),
        ("inner: {seconds: fast}", r"inner\.seconds is 'fast'; allowed: a number"),
        (
            "inner: {depth: 7}",
            r"inner\.depth cannot be set, it is always 6: nobody should turn it; take it out",
        ),
        ("inner: {derived: 7}", r"inner\.derived cannot be set: it follows from the length; take it out"),
        ("inner: {width: 7}", r"inner\.width is gone: all are as wide; take it out"),
        ("inner: {seconds: 0}", r"inner\.seconds is 0\.0; allowed: a number above 0"),
        ("inner: {method: c}", r"inner\.method is 'c'; allowed: a, b"),
        ("inner: 3", r"inner\. must be a mapping"),
        ("users: root", r"users must be a list, not 'root'"),
        ("users: [root, 1.5]", r"users\[1\] is 1\.5; allowed: a text or a whole number"),
        ("- 1", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("inner: {seconds: true}", r"inner\.seconds is True; allowed: a number"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_what_is_allowed(tmp_path: Path, text: str, says: str):
    """The message alone is enough to mend the file."""
    file = write(tmp_path, text)
    with pytest.raises(SettingsError, match=says) as caught:
        load(Outer, file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path):
    """Not a traceback: the path, and why."""
    with pytest.raises(SettingsError, match=r"absent\.yaml: cannot read"):
        load(Outer, tmp_path / "absent.yaml")


def test_every_key_is_documented():
    """What `--help-config` prints covers nested sections."""
    keys = ["inner.seconds", "inner.method", "path", "table", "users"]
    assert [key for key, *_ in document(Outer)] == keys
