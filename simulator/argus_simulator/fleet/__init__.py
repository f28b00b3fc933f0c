"""`argus-simulator fleet`: jobs of 1,000 to 100,000 ranks, as the series of their exporters.

A part of the job in which every kind of replica is played, as everything in the lab, and its series are
written for all ranks: to Prometheus, or to a file.
"""
