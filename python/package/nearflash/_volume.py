"""Blocking volumes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, cast

from . import _native
from ._errors import of
from ._options import OPENING, Info, Opened, Options, info_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Volume(Opened):
    """A namespace of a server, read and written by calls that block.

    Addresses (``lba``) and counts of blocks are in blocks of 512 bytes; data has any whole number
    of blocks. Several threads may use a volume at the same time: each has a connection of its own.
    The calls release the GIL while they wait.

    A buffer is anything contiguous that exports its memory: ``bytes``, ``bytearray``,
    ``memoryview``, ``mmap``, arrays. It belongs to the call until the call returns.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._here = threading.local()
        self._forks = _native.forks()
        self._lock = threading.Lock()
        self._queues: list[_native.Queue] = []
        self._closed = False
        self._info = self._join()

    def _join(self) -> Info | None:
        """Open the queue of this thread."""
        if self._forks != _native.forks():
            # Of another process: its queue says so.
            self._queues[0].kick()
        queue = self._options.queue()
        info = info_of(queue.wait(OPENING))
        with self._lock:
            if self._closed:
                raise of("Closed", "the volume is closed")
            self._queues.append(queue)
        self._here.queue = queue
        return info

    def _queue(self) -> _native.Queue:
        if self._closed:
            raise of("Closed", "the volume is closed")
        try:
            return cast(_native.Queue, self._here.queue)
        except AttributeError:
            self._join()
            return cast(_native.Queue, self._here.queue)

    def read(self, lba: int, nbytes: int) -> bytes:
        """Read ``nbytes`` bytes from block ``lba``."""
        queue = self._queue()
        return cast(bytes, queue.wait(queue.start_read(lba, nbytes)))

    def readinto(self, lba: int, buffer: Buffer) -> None:
        """Fill ``buffer`` from block ``lba``. If the call fails, its contents are undefined."""
        queue = self._queue()
        queue.wait(queue.start_fill(((lba, buffer),)))

    def read_many(self, requests: Iterable[tuple[int, Buffer]]) -> None:
        """Fill many buffers, each from its block: ``[(lba, buffer), …]``, in any order at once.

        If some fail, the first failure is raised once all have ended.
        """
        queue = self._queue()
        queue.wait(queue.start_fill(list(requests)))

    def write(self, lba: int, data: Buffer, *, durable: bool = False) -> None:
        """Write ``data`` to block ``lba``.

        When the call returns, every reader sees the data. It is durable after a flush, or at once
        with ``durable``.
        """
        queue = self._queue()
        queue.wait(queue.start_write(((lba, data),), durable))

    def write_many(
        self, requests: Iterable[tuple[int, Buffer]], *, durable: bool = False
    ) -> None:
        """Write many buffers, each to its block: ``[(lba, data), …]``, in any order at once."""
        queue = self._queue()
        queue.wait(queue.start_write(list(requests), durable))

    def write_atomic(self, lba: int, data: Buffer) -> None:
        """Write ``data`` so that a reader, and a crash, sees all of it or nothing. It is durable."""
        queue = self._queue()
        queue.wait(queue.start_write_atomic(lba, data))

    def compare_and_write(self, lba: int, expected: Buffer, new: Buffer) -> None:
        """Write ``new`` if the volume has ``expected`` there, as one atomic step.

        Raises `CompareFailed` if it has not.
        """
        queue = self._queue()
        queue.wait(queue.start_compare_and_write(lba, expected, new))

    def discard(self, lba: int, blocks: int) -> None:
        """Discard blocks: they read as zeroes from then on."""
        queue = self._queue()
        queue.wait(queue.start_discard(lba, blocks))

    def write_zeroes(self, lba: int, blocks: int, *, durable: bool = False) -> None:
        """Write zeroes."""
        queue = self._queue()
        queue.wait(queue.start_write_zeroes(lba, blocks, durable))

    def flush(self) -> None:
        """Make all acknowledged writes durable."""
        queue = self._queue()
        queue.wait(queue.start_flush())

    def close(self) -> None:
        """Close the volume.

        The connections of other threads are closed when these threads end, or open a volume.
        """
        with self._lock:
            self._closed = True
            queues, self._queues = self._queues, []
        for queue in queues:
            queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def open(
    url: str,
    *,
    tenant: str = "",
    token: str | bytes = b"",
    namespace: int | None = None,
    connections: int = 1,
    in_flight_max: int = 256,
    outage: float = 30.0,
    spin: float = 50e-6,
    checksums: bool = False,
) -> Volume:
    """Open a volume: ``reflex://HOST:PORT``, or ``reflex+unix:PATH`` for a Unix socket.

    `tenant` names the tenant that is charged, `token` has the credentials. `namespace` is a number;
    the server has a default. Requests wait at most `outage` seconds for a server that is away.
    `spin` seconds pass before a thread that waits sleeps: more of them cost processor time and
    save latency.
    """
    return Volume(
        Options(
            url, tenant, token, namespace, connections, in_flight_max, outage, spin, checksums
        )
    )
