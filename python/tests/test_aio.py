"""Volumes for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from conftest import PATIENCE, Server

import nearflash


async def _together(url: str) -> None:
    before = threading.active_count()
    async with nearflash.aio.open(url) as volume:
        await volume.write_zeroes(0, volume.size // volume.block_size)
        data = [bytes([n]) * 4096 for n in range(200)]
        await asyncio.gather(*(volume.write(n * 8, data[n]) for n in range(200)))
        assert await asyncio.gather(*(volume.read(n * 8, 4096) for n in range(200))) == data
        into = [bytearray(4096) for _ in range(200)]
        await volume.read_many((n * 8, into[n]) for n in range(200))
        assert into == data
        await volume.write_many([], durable=True)
        await volume.write_many([(0, data[9]), (8, data[8])], durable=True)
        await volume.readinto(0, into[0])
        assert into[0] == data[9]
        large = os.urandom(3 << 20)
        await volume.write(100, large)
        assert await volume.read(100, len(large)) == large
        await volume.discard(0, 8)
        await volume.write_zeroes(8, 8, durable=True)
        await volume.flush()
        assert await volume.read(0, 8192) == bytes(8192)
        await volume.compare_and_write(0, bytes(512), b"n" * 512)
        with pytest.raises(nearflash.CompareFailed):
            await volume.compare_and_write(0, bytes(512), b"n" * 512)
        await volume.write_atomic(0, b"a" * 4096)
        with pytest.raises(nearflash.OutOfRange):
            await volume.read(volume.size // 512, 512)
    assert volume.closed and threading.active_count() == before, "no threads"


def test_requests_run_together(server: Server) -> None:
    asyncio.run(asyncio.wait_for(_together(server.url), PATIENCE))


async def _cancel(url: str) -> None:
    volume = await nearflash.aio.open(url)
    await volume.write(0, b"w" * 4096)
    into = bytearray(4096)
    future = volume.readinto(0, into)
    future.cancel()
    with pytest.raises(BufferError):
        into.append(0)  # it is still exported
    with pytest.raises(asyncio.CancelledError):
        await future
    await volume.read(0, 512)
    # The read that came later has ended, and the order of answers is the server's.
    for _ in range(1000):
        try:
            into.append(0)
            break
        except BufferError:
            await volume.read(0, 512)
    assert into == b"w" * 4096 + b"\0"
    volume.close()


def test_a_cancelled_future_keeps_its_buffer(server: Server) -> None:
    asyncio.run(asyncio.wait_for(_cancel(server.url), PATIENCE))


async def _close(url: str) -> None:
    volume = await nearflash.aio.open(url)
    into = [bytearray(1 << 20) for _ in range(8)]
    reads = [volume.readinto(0, part) for part in into]
    volume.close()
    ends = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(end) for end in ends} == {nearflash.Closed}
    for part in into:
        part.append(0)  # nothing is exported any more
    with pytest.raises(nearflash.Closed):
        volume.flush()


def test_close_ends_what_is_under_way(server: Server) -> None:
    asyncio.run(asyncio.wait_for(_close(server.url), PATIENCE))


async def _fail() -> None:
    with pytest.raises(nearflash.ConnectError):
        await nearflash.aio.open("reflex+unix:/nonexistent/socket")
    with pytest.raises(nearflash.AddressError):
        await nearflash.aio.open("http://127.0.0.1")


def test_nobody_is_there() -> None:
    asyncio.run(asyncio.wait_for(_fail(), PATIENCE))


async def _two(urls: list[str]) -> None:
    async with nearflash.aio.open(urls[0]) as one, nearflash.aio.open(urls[1]) as two:
        await one.write(0, b"1" * 512)
        assert await two.read(0, 512) == b"1" * 512


def test_loops_follow_each_other(server: Server) -> None:
    for _ in range(3):
        asyncio.run(asyncio.wait_for(_two([server.url, server.unix]), PATIENCE))
