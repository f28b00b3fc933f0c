"""Kernel records to what is published of them: pairs, streams, windows, modes, running totals."""
