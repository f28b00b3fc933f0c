"""The exporter of a GPU host, and in `producer` what runs inside the training process.

This file imports nothing: the training process imports `argus_exporter.producer` through it.
"""
