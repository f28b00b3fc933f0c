"""What exporter, worker and simulator share: metric catalogue, wire records, numerics.

This file imports nothing: the training process loads `argus_core.wire` and must not pay for numpy.
"""
