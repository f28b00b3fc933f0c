"""What our programs say in one line on stderr, and which exit status it is."""

from __future__ import annotations


class ArgusError(Exception):
    """The work failed; the message says what is so, why it matters and what to do. Exit status 1."""


class UserError(ArgusError):
    """A command line, file or configuration that cannot be used: a person has to act. Exit status 2."""
