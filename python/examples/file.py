import io
import sys

import nearflash

url = sys.argv[1] if len(sys.argv) > 1 else "reflex://127.0.0.1:7420"

with nearflash.open(url) as volume, io.BufferedRandom(nearflash.File(volume), 1 << 20) as file:
    file.write(b"a line\nand another\n")
    file.seek(0)
    assert file.readline() == b"a line\n"
