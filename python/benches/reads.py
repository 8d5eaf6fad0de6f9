"""Compare reads of 4 KiB by the Python package and by the C library, in turns.

    python benches/reads.py reflex://127.0.0.1:7420 ../target/dist/libnearflash_capi.a

The volume has at least 8 MiB. Import a release build of the package.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nearflash

HERE = Path(__file__).resolve().parent
ROUNDS = 7
BLOCKS = (1 << 23) // 512


def in_c(program: Path, url: str, depth: int, count: int) -> float:
    """Return the nanoseconds of a read in C."""
    words = [str(program), url, str(depth), str(count)]
    return float(subprocess.run(words, capture_output=True, check=True).stdout)


def in_python(url: str, depth: int, count: int) -> float:
    """Return the nanoseconds of a read in Python."""
    with nearflash.open(url) as volume:
        into = [bytearray(4096) for _ in range(depth)]
        start, lba = time.perf_counter_ns(), 0
        for _ in range(count // depth):
            if depth == 1:
                volume.readinto(lba % BLOCKS, into[0])
            else:
                volume.read_many([((lba + n * 8) % BLOCKS, part) for n, part in enumerate(into)])
            lba += depth * 8
        return (time.perf_counter_ns() - start) / count


def main(url: str, archive: str) -> None:
    """Print the medians, and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "reads"
        include = HERE.parents[1] / "crates/capi/include"
        libraries = [archive, "-lgcc_s", "-lm", "-lpthread", "-ldl"]
        words = ["cc", "-O2", f"-I{include}", str(HERE / "reads.c"), "-o", str(program)]
        subprocess.run([*words, *libraries], check=True)
        for depth, count in ((1, 20_000), (64, 256_000)):
            rounds = [
                (in_c(program, url, depth, count), in_python(url, depth, count))
                for _ in range(ROUNDS)
            ]
            c, python = (statistics.median(side) for side in zip(*rounds, strict=True))
            print(
                f"depth {depth}: C {c:.0f} ns, Python {python:.0f} ns a read; "
                f"rate of Python / C {c / python:.2f}, difference {python - c:.0f} ns"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
