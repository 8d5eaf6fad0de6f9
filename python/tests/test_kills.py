"""A server that is killed again and again: each failure has a name, and nothing hangs."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path

import pytest
from conftest import Server

import nearflash

KILLS = 20

#: Seconds that requests wait for a server that is away. It is away for longer at times.
OUTAGE = 0.3


class _Killer(threading.Thread):
    """Kills the server, and starts it again: at once, or after the outage."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.done = threading.Event()

    def run(self) -> None:
        chance = random.Random(11)
        try:
            for _ in range(KILLS):
                time.sleep(chance.random() * 0.2)
                self._server.kill()
                time.sleep(chance.choice([0.0, 2 * OUTAGE]))
                self._server.start()
        finally:
            self.done.set()


#: Memory of the server is gone with it, so only failures are looked at here.
_FAILURES = (nearflash.ConnectionLost, nearflash.ConnectError, nearflash.Busy)


def _work(volume: nearflash.Volume, done: threading.Event, ended: list[str]) -> None:
    chance = random.Random(threading.get_ident())
    into = bytearray(4096)
    while not done.is_set():
        lba = chance.randrange(100) * 8
        try:
            match chance.randrange(4):
                case 0:
                    volume.readinto(lba, into)
                case 1:
                    volume.write(lba, into, durable=True)
                case 2:
                    volume.read_many([(lba, into), (0, bytearray(1 << 17))])
                case _:
                    volume.flush()
            ended.append("ok")
        except _FAILURES as failure:
            ended.append(type(failure).__name__)
        except BaseException as failure:
            ended.append(f"unexpected: {failure!r}")
            return


@pytest.mark.slow
def test_blocking_calls_outlive_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    killer = _Killer(server)
    ended: list[str] = []
    with nearflash.open(server.unix, outage=OUTAGE) as volume:
        workers = [
            threading.Thread(target=_work, args=(volume, killer.done, ended)) for _ in range(3)
        ]
        for thread in [killer, *workers]:
            thread.start()
        for thread in [killer, *workers]:
            thread.join()
        _await_answer(volume)
    server.kill()
    assert not [end for end in ended if end.startswith("unexpected")]
    assert "ok" in ended


def _await_answer(volume: nearflash.Volume) -> None:
    """The volume serves again after all."""
    end = time.monotonic() + 60
    while True:
        try:
            volume.write(0, bytes(512))
            return
        except _FAILURES:
            assert time.monotonic() < end


async def _many(url: str, done: threading.Event, ended: list[str]) -> None:
    async with nearflash.aio.open(url, outage=OUTAGE) as volume:
        while not done.is_set():
            reads = [volume.read(n * 8, 4096) for n in range(32)]
            writes = [volume.write(n * 8, bytes(4096)) for n in range(32)]
            for end in await asyncio.gather(*reads, *writes, return_exceptions=True):
                is_known = isinstance(end, _FAILURES)
                fine = "ok" if end is None or isinstance(end, bytes) else f"unexpected: {end!r}"
                ended.append(type(end).__name__ if is_known else fine)


@pytest.mark.slow
def test_futures_outlive_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    killer = _Killer(server)
    ended: list[str] = []
    killer.start()
    asyncio.run(_retry(server.unix, killer.done, ended))
    killer.join()
    server.kill()
    assert not [end for end in ended if end.startswith("unexpected")]
    assert "ok" in ended


async def _retry(url: str, done: threading.Event, ended: list[str]) -> None:
    while True:
        try:
            return await _many(url, done, ended)
        except _FAILURES:
            await asyncio.sleep(0.01)  # the server was away when the volume was opened
