"""Configuration files of all components: one YAML file into nested frozen dataclasses.

A wrong file is refused at start with the file, the key, the value and what is allowed.
The dataclass is the documentation: every key is a `setting` with its help, and a class may check itself
in `__post_init__` by raising `ValueError("field: what is wrong and what is allowed")`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from argus_core.errors import UserError

T = TypeVar("T")


class SettingsError(UserError):
    """The configuration is not usable; the message names file, key, value and what is allowed."""


def setting(default: Any, help_: str) -> Any:
    """A documented field."""
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata={"help": help_})
    return dataclasses.field(default=default, metadata={"help": help_})


def constant(default: Any, why: str) -> Any:
    """A field that no file sets, with the reason of its value: nobody should turn it. Tests do, in code."""
    return dataclasses.field(default=default, metadata={"why": why})


def _keys(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls) if "why" not in field.metadata}


def _refusals(cls: type[Any]) -> dict[str, str]:
    """Why keys cannot be set: constants, and what a class lists as `GONE`, by key."""
    refused = {key: f"is gone: {why}" for key, why in getattr(cls, "GONE", {}).items()}
    for field in dataclasses.fields(cls):
        if "why" in field.metadata:
            value = "" if field.default is None else f", it is always {field.default}"
            refused[field.name] = f"cannot be set{value}: {field.metadata['why']}"
    return refused


def section(cls: type[T], help_: str) -> T:
    """A documented nested section with its own defaults."""
    field: T = dataclasses.field(default_factory=cls, metadata={"help": help_})
    return field


def load(cls: type[T], path: Path | None) -> T:
    """Read `path` into `cls`; no path gives the defaults.

    Raises:
        SettingsError: unreadable file, not YAML, unknown key, wrong type, or a value out of range.
    """
    if path is None:
        return from_mapping(cls, {}, "defaults")
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the configuration: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise SettingsError(f"{path}: not valid YAML: {detail}") from error
    return from_mapping(cls, {} if content is None else content, str(path))


def from_mapping(cls: type[T], content: object, where: str, prefix: str = "") -> T:
    """Check and convert a parsed mapping; `where` is named in errors."""
    if not isinstance(content, Mapping):
        raise SettingsError(f"{where}: {prefix or 'the file'} must be a mapping of keys, not {content!r}")
    hints = typing.get_type_hints(cls)
    fields = _keys(cls)
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key in (refusals := _refusals(cls)):
            raise SettingsError(f"{where}: {prefix}{key} {refusals[str(key)]}; take it out")
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"; did you mean {prefix}{close[0]}?" if close else ""
            allowed = ", ".join(fields)
            raise SettingsError(f"{where}: unknown key {prefix}{key}{hint} (allowed here: {allowed})")
        values[key] = _convert(hints[key], value, where, f"{prefix}{key}")
    try:
        return cls(**values)
    except ValueError as error:
        raise SettingsError(f"{where}: {prefix}{error}") from error


def override(settings: T, key: str, value: object, prefix: str = "") -> T:
    """`settings` with another value for a key such as `web.listen_address`, checked as in a file.

    Raises:
        SettingsError: the value is out of range.
    """
    name, _, rest = key.partition(".")
    if rest:
        value = override(getattr(settings, name), rest, value, f"{prefix}{name}.")
    try:
        return dataclasses.replace(settings, **{name: value})  # type: ignore[type-var]
    except ValueError as error:
        raise SettingsError(f"command line: {prefix}{error}") from error


def document(cls: type[Any], prefix: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """(key, allowed values, default, help) of every setting, for `--help` texts and docs."""
    hints = typing.get_type_hints(cls)
    defaults = cls()
    for field in _keys(cls).values():
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from document(hint, f"{prefix}{field.name}.")
        else:
            default, help_ = getattr(defaults, field.name), field.metadata.get("help", "")
            yield f"{prefix}{field.name}", _describe(hint), default, help_


def changed_keys(one: object, other: object, prefix: str = "") -> list[str]:
    """Sections and keys that differ, for the log; values may be secrets."""
    found = []
    for field in dataclasses.fields(one):  # type: ignore[arg-type]
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if mine == theirs:
            continue
        if hasattr(mine, "__dataclass_fields__"):
            found += changed_keys(mine, theirs, f"{prefix}{field.name}.")
        else:
            found.append(prefix + field.name)
    return found


def _convert(hint: Any, value: Any, where: str, key: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_mapping(hint, value, where, f"{key}.")
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        inner = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        if len(inner) == 1:
            return _convert(inner[0], value, where, key)
        for candidate in inner:
            with contextlib.suppress(SettingsError):
                return _convert(candidate, value, where, key)
        raise SettingsError(f"{where}: {key} is {value!r}; allowed: {_describe(hint)}")
    if origin is Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            raise SettingsError(f"{where}: {key} is {value!r}; allowed: {', '.join(map(str, allowed))}")
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where}: {key} must be a mapping, not {value!r}")
        _, item = typing.get_args(hint)
        return {str(k): _convert(item, v, where, f"{key}.{k}") for k, v in value.items()}
    if origin is tuple:
        if not isinstance(value, list):
            raise SettingsError(f"{where}: {key} must be a list, not {value!r}")
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, v, where, f"{key}[{index}]") for index, v in enumerate(value))
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise SettingsError(f"{where}: {key} is {value!r}; allowed: {_describe(hint)}")
    return value


def _describe(hint: Any) -> str:
    """What a value may be, in words."""
    arguments = typing.get_args(hint)
    match typing.get_origin(hint):
        case origin if origin is Literal:
            return " or ".join(map(str, arguments))
        case typing.Union | types.UnionType:
            return " or ".join(_describe(argument) for argument in arguments)
        case origin if origin is dict:
            return f"a mapping of names to {_describe(arguments[1])}"
        case origin if origin is tuple:
            return f"a list, each {_describe(arguments[0])}"
    names: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        Path: "a path",
        type(None): "nothing",
    }
    return names.get(hint, str(hint))


def require(holds: bool, message: str) -> None:
    """For `__post_init__`: refuse the value with this message.

    Raises:
        ValueError: it does not hold.
    """
    if not holds:
        raise ValueError(message)


def require_positive(owner: object, *names: str) -> None:
    """Each of these fields is above 0 and finite, or not set (None).

    Raises:
        ValueError: one is not.
    """
    for name in names:
        value = getattr(owner, name)
        allowed = "1 or more" if isinstance(value, int) else "a number above 0"
        require(value is None or 0 < value < float("inf"), f"{name} is {value!r}; allowed: {allowed}")
