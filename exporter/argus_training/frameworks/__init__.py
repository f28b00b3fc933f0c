"""Attach points of training frameworks, where torch's own do not show enough. One file per framework."""
