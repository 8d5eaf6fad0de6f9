"""Blocking volumes."""

from __future__ import annotations

import array
import mmap
import threading

import pytest
from conftest import Server

import nearflash


def test_what_is_written_is_read(volume: nearflash.Volume) -> None:
    data = bytes(range(256)) * 16
    volume.write(8, data)
    volume.write(16, data, durable=True)
    assert volume.read(8, 4096) == volume.read(16, 4096) == data
    assert volume.read(0, 4096) == bytes(4096)
    volume.flush()


def test_properties(server: Server, volume: nearflash.Volume) -> None:
    assert (volume.size, volume.block_size, volume.info.namespace) == (16 << 20, 512, 1)
    assert volume.info.may_read and volume.info.may_write
    with nearflash.open(server.unix) as other:
        assert other.info == volume.info
    with nearflash.open(f"{server.url}?v=1") as old, pytest.raises(nearflash.Unsupported):
        _ = old.size


@pytest.mark.parametrize("nbytes", [512, 4096, 32768, 1 << 20, (1 << 20) + 512, 5 << 20])
def test_any_length(volume: nearflash.Volume, nbytes: int) -> None:
    data = bytes(n % 251 for n in range(nbytes))
    volume.write(3, data)
    assert volume.read(3, nbytes) == data
    into = bytearray(nbytes)
    volume.readinto(3, into)
    assert into == data


def test_any_buffer(volume: nearflash.Volume) -> None:
    numbers = array.array("d", range(512))
    volume.write(0, numbers)
    back = array.array("d", bytes(4096))
    volume.readinto(0, back)
    assert back == numbers
    with mmap.mmap(-1, 8192) as memory:
        with memoryview(memory) as view, view[4096:] as second:
            volume.readinto(0, second)
        assert memory[4096:] == numbers.tobytes() and memory[:4096] == bytes(4096)
    table = memoryview(bytearray(4096)).cast("B", (64, 64))
    volume.readinto(0, table)
    assert table.tobytes() == numbers.tobytes()


def test_many(volume: nearflash.Volume) -> None:
    data = [bytes([n % 251]) * (512 * (n % 5 + 1)) for n in range(300)]
    volume.write_many((n * 8, data[n]) for n in range(300))
    into = [bytearray(len(part)) for part in data]
    volume.read_many([(n * 8, into[n]) for n in range(300)])
    assert into == data
    volume.read_many([])
    volume.write_many([], durable=True)


def test_one_of_many_fails(volume: nearflash.Volume) -> None:
    end = volume.size // 512
    into = [bytearray(512) for _ in range(4)]
    with pytest.raises(nearflash.OutOfRange, match="request 2 of 4"):
        volume.read_many([(0, into[0]), (8, into[1]), (end, into[2]), (16, into[3])])
    into[2].append(0)  # nothing is exported any more
    volume.read_many([(0, into[0])])


def test_ranges(volume: nearflash.Volume) -> None:
    volume.write(0, b"\xff" * 8192)
    volume.discard(0, 4)
    volume.write_zeroes(8, 2, durable=True)
    zero, full = bytes(512), b"\xff" * 512
    assert volume.read(0, 8192) == zero * 4 + full * 4 + zero * 2 + full * 6


def test_compare_and_write(volume: nearflash.Volume) -> None:
    new = b"n" * 1024
    volume.compare_and_write(0, bytes(1024), new)
    with pytest.raises(nearflash.CompareFailed):
        volume.compare_and_write(0, bytes(1024), bytes(1024))
    assert volume.read(0, 1024) == new
    with pytest.raises(nearflash.LengthError):
        volume.compare_and_write(0, bytes(512), new)


def test_atomic(volume: nearflash.Volume) -> None:
    volume.write_atomic(0, b"a" * 8192)
    assert volume.read(0, 8192) == b"a" * 8192
    with pytest.raises(nearflash.TooLarge):
        volume.write_atomic(0, bytes(2 << 20))


def test_threads_have_connections_of_their_own(volume: nearflash.Volume) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(50):
                volume.write(number * 8, bytes([number]) * 4096)
                assert volume.read(number * 8, 4096) == bytes([number]) * 4096
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert volume.read(7 * 8, 4096) == bytes([7]) * 4096


def test_a_volume_is_closed_once_and_in_all_threads(server: Server) -> None:
    volume = nearflash.open(server.url)
    used, closed = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        volume.read(0, 512)
        used.set()
        closed.wait()
        try:
            volume.read(0, 512)
        except nearflash.Error as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    used.wait()
    volume.close()
    volume.close()
    closed.set()
    thread.join()
    assert volume.closed and [type(failure) for failure in failures] == [nearflash.Closed]
    with pytest.raises(nearflash.Closed), volume:
        volume.flush()
