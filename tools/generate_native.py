"""C++ headers of the native libraries from their Python sources: the wire, NCCL's memory, and variables.

`python -m tools.generate_native` writes them; `--check` exits 1 and names what is out of date.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from argus_core import nccl_page, wire
from argus_training import settings
from tools.generated import write_or_check

NATIVE = Path(__file__).resolve().parent.parent / "native"
INJECTOR = NATIVE / "injector"
NCCL = NATIVE / "nccl"

RECORDS = (wire.Hello, wire.Name, wire.Kernel, wire.NcclOperation, wire.ChannelState)
"""What the library sends; the other records belong to the phases."""

_C_TYPES = {
    "b": "std::int8_t",
    "B": "std::uint8_t",
    "h": "std::int16_t",
    "H": "std::uint16_t",
    "i": "std::int32_t",
    "I": "std::uint32_t",
    "q": "std::int64_t",
    "Q": "std::uint64_t",
    "d": "double",
}
_NOTE = "// Generated from {source} by `make generate`; do not edit."


def wire_header() -> str:
    """native/injector/wire.hpp."""
    lines = [
        _NOTE.format(source="exporter/argus_core/wire.py"),
        "#pragma once",
        "",
        "#include <cstddef>",
        "#include <cstdint>",
        "",
        "namespace argus::wire {",
        "",
        f"inline constexpr std::uint32_t kMagic = 0x{wire.MAGIC:08x};",
        f"inline constexpr std::uint16_t kVersion = {wire.VERSION};",
        f"inline constexpr std::size_t kMaxMessageBytes = {wire.MAX_MESSAGE_BYTES};",
        f"inline constexpr std::size_t kNameBytes = {wire.NAME_BYTES};",
        f"inline constexpr std::size_t kStepMarkBytes = {wire.STEP_MARK_BYTES};",
        f"inline constexpr std::uint32_t kStepMarkValue = 0x{wire.STEP_MARK_VALUE:08x};",
        f"inline constexpr std::uint32_t kStepMarks = 0x{wire.STEP_MARKS:04x};",
        f"inline constexpr std::uint32_t kLaunchedByNccl = 0x{wire.LAUNCHED_BY_NCCL:08x};",
        f"inline constexpr std::uint32_t kLaunchedSlot = {wire.LAUNCHED_SLOT};",
        f"inline constexpr std::uint32_t kLaunchedGeneration = {wire.LAUNCHED_GENERATION};",
        f"inline constexpr std::uint32_t kLaunchedOne = 0x{wire.LAUNCHED_ONE:04x};",
        f"inline constexpr std::uint32_t kListed = {wire.LISTED};",
        "",
    ]
    for enumeration, underlying in (
        (wire.MessageType, "std::uint16_t"),
        (wire.Operation, "std::uint8_t"),
        (wire.Channel, "std::uint8_t"),
    ):
        lines.append(f"enum class {enumeration.__name__} : {underlying} {{")
        lines += [f"  k{_camel(member.name)} = {member.value}," for member in enumeration]
        lines += ["};", ""]
    lines += ["#pragma pack(push, 1)", ""]
    names = ("magic", "version", "type", "count", "sequence", "dropped")
    lines += _struct("Header", wire.HEADER.format, names, wire.HEADER.size, "Leads every message.")
    for record in RECORDS:
        fields = tuple(field.name for field in dataclasses.fields(record))
        summary = (record.__doc__ or "").strip().splitlines()[0]
        lines += _struct(record.__name__, record.FORMAT.format, fields, record.FORMAT.size, summary)
    lines += ["#pragma pack(pop)", "", "}  // namespace argus::wire", ""]
    return "\n".join(lines)


def settings_header(read: Sequence[str]) -> str:
    """settings_table.hpp of a library: names and defaults of the variables that it reads."""
    lines = [
        _NOTE.format(source="exporter/argus_training/settings.py"),
        "#pragma once",
        "",
        '#include "variables.hpp"',
        "",
        "namespace argus::table {",
        "",
    ]
    for variable in settings.TABLE:
        if variable.name not in read:
            continue
        name = "k" + _camel(variable.name.removeprefix(settings.PREFIX))
        lines.append(f"/// {variable.help}")
        if variable.type is bool:
            lines.append(f'inline constexpr Switch {name}{{"{variable.name}"}};')
        elif variable.type is int:
            values = f"{variable.default}, {variable.minimum}"
            lines.append(f'inline constexpr Number {name}{{"{variable.name}", {values}}};')
        elif variable.allowed:
            if len(variable.allowed) > 3 or variable.allowed[0] != variable.default:
                raise ValueError(f"{variable.name}: struct Choice holds three, the default first")
            values = ", ".join(f'"{value}"' for value in variable.allowed)
            lines.append(f'inline constexpr Choice {name}{{"{variable.name}", {{{values}}}}};')
        else:
            lines.append(f'inline constexpr Text {name}{{"{variable.name}"}};')
    lines += ["", "}  // namespace argus::table", ""]
    return "\n".join(lines)


def page_header() -> str:
    """native/nccl/page.hpp."""
    lines = [
        _NOTE.format(source="exporter/argus_core/nccl_page.py"),
        "#pragma once",
        "",
        "#include <cstddef>",
        "#include <cstdint>",
        "",
        "namespace argus::page {",
        "",
        f"inline constexpr std::uint32_t kMagic = 0x{nccl_page.MAGIC:08x};",
        f"inline constexpr std::uint32_t kVersion = {nccl_page.VERSION};",
        f"inline constexpr std::size_t kHeaderBytes = {nccl_page.HEADER_BYTES};",
        f"inline constexpr std::size_t kSize = {nccl_page.SIZE};",
        f"inline constexpr std::uint32_t kCommunicators = {nccl_page.COMMUNICATORS};",
        f"inline constexpr std::uint32_t kPeers = {nccl_page.PEERS};",
        f"inline constexpr std::uint32_t kOtherPeers = 0x{nccl_page.OTHER_PEERS:08x};",
        f"inline constexpr std::uint32_t kFunctions = {len(nccl_page.FUNCTIONS)};",
        f"inline constexpr std::uint32_t kStepStates = {len(nccl_page.STEP_STATES)};",
        f"inline constexpr std::uint32_t kLive = {nccl_page.LIVE};",
        f"inline constexpr std::uint32_t kFinalized = {nccl_page.FINALIZED};",
        "inline constexpr std::uint64_t kSizeLimits[] = {"
        + ", ".join(map(str, nccl_page.SIZE_LIMITS))
        + "};",
        "inline constexpr const char* kFunctionNames[] = {"
        + ", ".join(f'"{name}"' for name in nccl_page.FUNCTIONS)
        + "};",
        "",
    ]
    lines.append("enum class Function : std::uint32_t {")
    lines += [
        f"  k{name[0].upper()}{name[1:]} = {number}," for number, name in enumerate(nccl_page.FUNCTIONS)
    ]
    lines += ["};", ""]
    for name, words in (
        ("State", nccl_page.STATES),
        ("Reason", nccl_page.REASONS),
        ("Former", nccl_page.FORMER),
    ):
        lines.append(f"enum class {name} : std::uint32_t {{")
        lines += [f"  k{_camel(word or 'none')} = {number}," for number, word in enumerate(words)]
        lines += ["};", ""]
    for name, layout, fields, summary in (
        ("Header", nccl_page.HEADER, nccl_page.HEADER_FIELDS, "Of the whole memory."),
        ("Operation", nccl_page.OPERATION, nccl_page.OPERATION_FIELDS, "Of one function."),
        ("Kernels", nccl_page.KERNELS, nccl_page.KERNELS_FIELDS, "By function, and by class of size."),
        ("Peer", nccl_page.PEER, nccl_page.PEER_FIELDS, "Of one member that steps go to."),
        ("Identity", nccl_page.COMMUNICATOR, nccl_page.COMMUNICATOR_FIELDS, "Leads a communicator."),
    ):
        lines += _struct(name, layout.format, fields, layout.size, summary, arrays=True)
    lines += [
        "struct Communicator {",
        "  Identity identity;",
        "  Operation operations[kFunctions];",
        "  Kernels kernels;",
        "  Peer peers[kPeers];",
        "};",
        f"static_assert(sizeof(Communicator) == {nccl_page.COMMUNICATOR_BYTES});",
        "",
        "}  // namespace argus::page",
        "",
    ]
    return "\n".join(lines)


def _struct(
    name: str, format_: str, fields: Sequence[str], size: int, summary: str | None, arrays: bool = False
) -> list[str]:
    """A packed struct for a little-endian `struct` format whose values are `fields`.

    `arrays`: a count before a code is one field, an array.
    """
    lines = [f"/// {summary}"] if summary else []
    lines.append(f"struct {name} {{")
    remaining = iter(fields)
    padding = 0
    for count, code in _items(format_):
        if code == "x":
            lines.append(f"  std::uint8_t padding{padding or ''}[{count}] = {{}};")
            padding += 1
        elif code == "s":
            lines.append(f"  char {next(remaining)}[{count}] = {{}};")
        elif arrays and count > 1:
            lines.append(f"  {_C_TYPES[code]} {next(remaining)}[{count}] = {{}};")
        else:
            lines += [f"  {_C_TYPES[code]} {next(remaining)} = 0;" for _ in range(count)]
    if next(remaining, None) is not None:
        raise ValueError(f"{name}: format {format_!r} has fewer values than fields {tuple(fields)}")
    return [*lines, "};", f"static_assert(sizeof({name}) == {size});", ""]


def _items(format_: str) -> Iterator[tuple[int, str]]:
    if not format_.startswith("<"):
        raise ValueError(f"format {format_!r} is not little-endian and packed (<)")
    for count, code in re.findall(r"(\d*)([a-zA-Z])", format_):
        yield int(count or 1), code


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    files = {
        INJECTOR / "wire.hpp": wire_header(),
        INJECTOR / "settings_table.hpp": settings_header(settings.READ_BY_INJECTOR),
        NCCL / "settings_table.hpp": settings_header(settings.READ_BY_NCCL),
        NCCL / "page.hpp": page_header(),
    }
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
