"""The stacks channel: what the host of a rank executes, sampled from outside by py-spy.

`supervisor` runs one `py_spy` window after another for each local rank; `folded` reads what it wrote,
`totals` turns samples into series, and a `Sink` takes the whole stacks for the trace.
"""
