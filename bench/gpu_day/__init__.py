"""The first day on a GPU, ready to be had: `python -m bench.gpu_day --list`. docs/gpu-day.md says how."""
