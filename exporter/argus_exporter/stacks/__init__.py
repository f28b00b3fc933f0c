"""Call stacks of a rank: `folded` reads what a sampler wrote, `tree` takes what the rank samples of itself,
`totals` turns samples into series, and a `Sink` takes the whole stacks for the trace.
"""
