"""Recorded traces: read, summarised, resampled, and played to an exporter as if they happened now.

Packages depend one way: readers (`kineto`, `event_log`, chosen by `reader`) make `RankRecording`s; `summary`,
`resample` and `player` take them; `command` is the edge.
"""
