import asyncio
import sys

import nearflash.aio


async def main(url: str) -> None:
    async with nearflash.aio.open(url) as volume:
        await asyncio.gather(*(volume.write(n * 8, bytes([n]) * 4096) for n in range(64)))
        data = await asyncio.gather(*(volume.read(n * 8, 4096) for n in range(64)))
        assert data[7] == b"\7" * 4096
        await volume.flush()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "reflex://127.0.0.1:7420"))
