"""Traces of single ranks: raw records in a ring on local disk, encoded for Perfetto when somebody wants them.

`segments`, `segment_index` and `ring` keep what comes over the wire. `window` is what one file will show,
made by `reader` (from the ring) or `imported` (from another tool's file). `encode` writes it, with
`kernel_packets` for the bulk and `packets` for the rest. `outbox` and `uploads` bring it to the store;
`sampling`, `requests` and `service` decide when. docs/traces.md describes the format.
"""
