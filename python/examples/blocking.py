import mmap
import sys

import nearflash

url = sys.argv[1] if len(sys.argv) > 1 else "reflex://127.0.0.1:7420"

with nearflash.open(url) as volume:
    print(f"{volume.size >> 20} MiB")
    volume.write(0, b"\7" * 4096, durable=True)  # block 0, eight blocks of 512 bytes
    assert volume.read(0, 4096) == b"\7" * 4096

    # Memory of your own: anything that exports a buffer.
    with mmap.mmap(-1, 1 << 20) as memory:
        volume.readinto(0, memory)

    # Many at once, in one call.
    parts = [bytearray(4096) for _ in range(64)]
    volume.read_many([(n * 8, part) for n, part in enumerate(parts)])
    assert parts[0] == b"\7" * 4096

    # If many programs try this at the same time, exactly one of them succeeds.
    try:
        volume.compare_and_write(0, expected=b"\7" * 512, new=bytes(512))
    except nearflash.CompareFailed:
        print("somebody else was faster")
