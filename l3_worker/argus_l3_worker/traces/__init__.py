"""Traces that the worker asks exporters for, and shows to people."""
