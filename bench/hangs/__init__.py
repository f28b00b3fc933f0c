"""Random hangs, from what each rank would say of itself to the page: `python -m bench.hangs`."""
