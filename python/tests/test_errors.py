"""Errors, forks and signals: each failure has a name, and nothing hangs."""

from __future__ import annotations

import array
import errno
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Server

import nearflash


def test_addresses() -> None:
    with pytest.raises(nearflash.AddressError):
        nearflash.open("nonsense")
    with pytest.raises(nearflash.ConnectError) as raised:
        nearflash.open("reflex+unix:/nonexistent/socket")
    assert isinstance(raised.value, ConnectionError) and raised.value.errno == errno.ENOTCONN
    assert "nonexistent" in str(raised.value)


def test_options(server: Server) -> None:
    wrongs: list[dict[str, Any]] = [{"connections": 0}, {"in_flight_max": 0}]
    for wrong in [*wrongs, {"outage": -1.0}, {"spin": -1.0}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            nearflash.open(server.url, **wrong)
    with nearflash.open(server.url, connections=3, in_flight_max=2, checksums=True) as volume:
        volume.write_many([(n * 8, bytes(4096)) for n in range(50)])


def test_lengths_and_buffers(volume: nearflash.Volume) -> None:
    for wrong in (0, 1, 513):
        with pytest.raises(nearflash.LengthError):
            volume.read(0, wrong)
        with pytest.raises(nearflash.LengthError):
            volume.write(0, bytes(wrong))
    with pytest.raises(nearflash.LengthError):
        volume.discard(0, 0)
    with pytest.raises(OverflowError):
        volume.read(-1, 512)
    with pytest.raises(nearflash.OutOfRange):
        volume.read((1 << 64) - 1, 512)
    with pytest.raises(TypeError, match="read-only"):
        volume.readinto(0, bytes(512))
    with pytest.raises(BufferError, match="contiguous"):
        volume.write(0, memoryview(bytes(2048))[::2])
    with pytest.raises(TypeError):
        volume.write(0, 7)  # type: ignore[arg-type]
    numbers = array.array("b", bytes(512))
    volume.readinto(0, numbers)
    numbers.append(1)  # nothing is exported any more


def test_a_read_only_volume(tmp_path: Path) -> None:
    config = tmp_path / "config"
    text = '[[device]]\nname = "d"\nspec = "mem:1MiB"\n'
    text += '[[namespace]]\nname = "n"\ndevice = "d"\nsize = "1MiB"\nread_only = true\n'
    config.write_text(text)
    server = Server(tmp_path, None, "--config", str(config))
    server.start()
    try:
        with nearflash.open(server.url) as volume:
            with pytest.raises(nearflash.ReadOnly) as raised:
                volume.write(0, bytes(512))
            assert raised.value.errno == errno.EROFS
            assert isinstance(raised.value, OSError) and isinstance(raised.value, nearflash.Error)
        with pytest.raises(nearflash.Error):
            nearflash.open(server.url, namespace=9)
    finally:
        server.kill()


def _in_child(volume: nearflash.Volume, url: str, ends: "multiprocessing.Queue[str]") -> None:
    try:
        volume.read(0, 512)
    except nearflash.ForkedError as error:
        ends.put(str(error))
    thread = threading.Thread(target=_in_thread_of_child, args=(volume, ends))
    thread.start()
    thread.join()
    volume.close()
    with nearflash.open(url) as own:
        ends.put(own.read(0, 512).decode())


def _in_thread_of_child(volume: nearflash.Volume, ends: "multiprocessing.Queue[str]") -> None:
    try:
        volume.read(0, 512)
    except nearflash.ForkedError as error:
        ends.put(str(error))


def test_a_fork_is_told(server: Server, volume: nearflash.Volume) -> None:
    volume.write(0, b"p" * 512)
    context = multiprocessing.get_context("fork")
    ends = context.Queue()
    child = context.Process(target=_in_child, args=(volume, server.url, ends))
    child.start()
    words = [ends.get(timeout=60) for _ in range(3)]
    child.join()
    assert child.exitcode == 0
    assert "open it again in the child" in words[0] and words[1] == words[0]
    assert words[2] == "p" * 512
    assert volume.read(0, 512) == b"p" * 512, "the parent goes on"


def test_a_signal_ends_a_wait(own_server: Server) -> None:
    # A process in the background of a shell begins with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with nearflash.open(own_server.url) as volume:
        into = bytearray(4096)
        own_server.stop()
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        queue = volume._queue()
        job = queue.start_fill(((0, into),))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            queue.wait(job)
        timer.join()
        queue.abandon(job)  # for a signal that came before the wait
        with pytest.raises(BufferError):
            into.append(0)  # the read is still under way
        os.kill(own_server.pid, signal.SIGCONT)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            volume.read(0, 512)
            try:
                into.append(0)
                break
            except BufferError:
                continue
        assert len(into) == 4097


def test_an_abandoned_write_sends_no_more(own_server: Server) -> None:
    few = nearflash.open(own_server.url, in_flight_max=4)  # of requests of 1 MiB at most
    with few as volume, nearflash.open(own_server.url) as other:
        size = volume.size
        assert size > 8 << 20
        queue = volume._queue()
        volume.read(0, 512)  # the connection is there
        own_server.stop()
        job = queue.start_write(((0, bytes([1]) * size),), False)
        queue.abandon(job)
        os.kill(own_server.pid, signal.SIGCONT)
        end = size - 512
        other.write(end // 512, bytes([2]) * 512)
        volume.flush()  # would send what is left of the write
        volume.read(0, 512)
        assert other.read(end // 512, 512) == bytes([2]) * 512
