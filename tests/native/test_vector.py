"""The reader of Prometheus' answers beside hostile ones: nothing is read beyond their end."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

from native.builds import SOURCE

ELEMENT = (
    b'{"metric":{"kernel":"gemm_\\u003c\\"4\\"\\u003e","mode":"%d","rank":"%d"},"value":[1790000000.1,"%s"]}'
)
VALUES = (b"0.00025", b"NaN", b"+Inf", b"-Inf", b"1e-05", b"210")
TRIALS = 20_000


def test_garbage_is_read_within_its_bounds(tmp_path: Path) -> None:
    """Answers cut anywhere, with bytes turned over, under the address and undefined behaviour sanitizers."""
    app, numeric = tmp_path / "read_vector", SOURCE / "numeric"
    flags = ("-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sources = (numeric / "testing" / "read_vector.cpp", numeric / "vector.cpp")
    subprocess.run(["g++", *flags, *map(str, sources), "-o", str(app)], check=True, timeout=120)
    rng = random.Random(0)
    told = bytearray()
    for _ in range(TRIALS):
        elements = (
            ELEMENT % (rng.randrange(3), rng.randrange(8), rng.choice(VALUES))
            for _ in range(rng.randrange(6))
        )
        answer = bytearray(b",".join(elements) + b"]")
        for _ in range(rng.choice((0, 0, 1, 3))):
            answer[rng.randrange(len(answer))] = rng.choice(b'"\\{}[]:,0\x00\xff')
        if rng.random() < 0.3:
            del answer[rng.randrange(len(answer) + 1) :]
        told += struct.pack("<q", len(answer)) + answer
    ended = subprocess.run([app], input=bytes(told), capture_output=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert TRIALS / 5 < int(ended.stdout) < TRIALS, "some are of the form, some are not"
