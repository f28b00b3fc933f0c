"""The command line that all our programs have.

A command is a module in `commands` of the program's package, named as the command: `add_arguments(parser)`
declares its options, `run(options)` does it and returns the exit status. A module without `run` has commands
of its own. Only the module of the command that is asked for is imported: `argus-exporter run` starts at once.

Exit status: 0 done; 1 the work failed; 2 a command line, file or configuration that cannot be used;
130 Ctrl-C; 141 whoever read our output went away. What is wrong is one line on stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from argus_core import log
from argus_core.errors import ArgusError, UserError
from argus_core.version import installed_version


@dataclass(frozen=True)
class Program:
    """One of our programs.

    Attributes:
        name: as users type it.
        description: what it is for.
        package: its Python package.
        commands: names and what each is for; their modules are `package.commands.NAME`.
        config: the class of its configuration file, as `module:Class`.
        extra: of the distribution, with what its commands import.
    """

    name: str
    description: str
    package: str
    commands: Mapping[str, str]
    config: str = ""
    extra: str = ""

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Do what the command line says; returns the exit status.

        Raises:
            SystemExit: 0 after `--help` and its like, 2 for a command line that cannot be parsed.
        """
        try:
            return self._run(arguments)
        except UserError as error:
            return self._fails(error, 2)
        except ArgusError as error:
            return self._fails(error, 1)
        except ModuleNotFoundError as error:
            if not self.extra or (error.name or "").startswith("argus_"):
                raise
            distribution = f"argus-for-prometheus[{self.extra}]"
            return self._fails(f"the package {error.name} is missing: pip install '{distribution}'", 2)
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            # `... | head` has what it wanted: no error of ours, nor of Python's when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141

    def _run(self, arguments: Sequence[str] | None) -> int:
        try:
            options = self.parser().parse_args(arguments)
            with log.on_stderr(options.log_level):
                status: int = options.run(options)
                return status
        finally:
            sys.stdout.flush()

    def _fails(self, why: object, status: int) -> int:
        print(f"{self.name}: {' '.join(str(why).splitlines())}", file=sys.stderr)
        return status

    def parser(self) -> argparse.ArgumentParser:
        """Knows the options of a command as soon as it parses a command line with it."""
        parser = _Parser(prog=self.name, description=self.description)
        parser.set_defaults(log_level="info", run=parser.shows_help)
        parser.add_argument(
            "--version",
            action=Prints,
            text=lambda _: f"{self.name} {installed_version()}",
            help="print the version and exit",
        )
        if self.config:
            parser.add_argument(
                "--help-config",
                action=Prints,
                text=lambda _: self._config_keys(),
                help="print every key of the configuration file and exit",
            )
        parser.add_argument(
            "--print-completion",
            action=Prints,
            nargs=None,
            choices=("bash", "zsh"),
            text=lambda shell: _completion(parser, shell),
            help="print a script that completes command lines in this shell, and exit",
        )
        commands = parser.add_subparsers(title="commands", metavar="COMMAND")
        for name, meaning in self.commands.items():
            module = f"{self.package}.commands.{name.replace('-', '_')}"
            commands.add_parser(name, help=meaning, module=module)
        return parser

    def _config_keys(self) -> str:
        from argus_core.config_flags import described  # brings YAML, which few commands need

        module, _, name = self.config.partition(":")
        return described(getattr(import_module(module), name))


class Prints(argparse.Action):
    """An option that prints what `text` makes of its value, and ends the program, as `--help` does."""

    def __init__(self, *, text: Callable[[Any], str], nargs: int | None = 0, **keywords: Any) -> None:
        super().__init__(**keywords | {"dest": argparse.SUPPRESS, "default": argparse.SUPPRESS}, nargs=nargs)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: object, __: object = None) -> None:
        print(self._text(values))
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Of a program or a command. No abbreviations: a new option would take one away from who uses it."""

    def __init__(self, *, module: str = "", **keywords: Any) -> None:
        super().__init__(**keywords, allow_abbrev=False)
        self._module = module
        self.add_argument(
            "--log.level",
            dest="log_level",
            choices=tuple(log.LEVELS),
            default=argparse.SUPPRESS,
            help="least severe events to log on stderr (default: info)",
        )

    def load(self) -> None:
        """Import the command's module and declare its options, once."""
        if self._module:
            module, self._module = import_module(self._module), ""
            self.set_defaults(run=getattr(module, "run", self.shows_help))
            module.add_arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.load()
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown options: {' '.join(unknown)}")
        return options, unknown

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: group.title != "commands")
        return super().format_help()

    def shows_help(self, _: argparse.Namespace) -> int:
        """What a command line without a command does."""
        self.print_help(sys.stderr)
        return 2

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    import shtab

    for each in _with_commands(parser):
        for action in each._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell))


def _with_commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    if isinstance(parser, _Parser):
        parser.load()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _with_commands(command)
