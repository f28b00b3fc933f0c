"""Hostile input for everything that reads what others wrote: the wire and the importers.

`python -m bench.fuzz` mutates with a generator of our own, in child processes that it watches for exceptions,
leaks and hangs; `python -m bench.fuzz.guided TARGET` runs the same entry points under atheris, which is
guided by coverage.
"""
