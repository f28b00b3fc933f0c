"""Keeps the GPU busy until it is killed: `python -m bench.gpu_day.compete` says a line when it does."""

from __future__ import annotations

import torch


def main() -> None:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    torch.mm(a, a)
    torch.cuda.synchronize()
    print("busy", flush=True)
    while True:
        for _ in range(50):
            torch.mm(a, a)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
