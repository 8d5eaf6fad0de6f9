"""Volumes for asyncio.

A volume belongs to one event loop, which watches the descriptor of its queue: there is no thread.
Calls return futures. A request is under way once it was called, also if nobody awaits its future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Self, cast

from . import _native
from ._errors import of
from ._options import OPENING, Info, Opened, Options, info_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Opening", "Volume", "open"]


class Volume(Opened):
    """A namespace of a server, read and written by calls that return futures.

    Units are those of `nearflash.Volume`. A buffer belongs to its request until the future is done;
    if the future is cancelled, the buffer stays exported until the server has answered.
    """

    def __init__(self, options: Options) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue = options.queue()
        self._fd = self._queue.fileno()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._is_due = False
        self._closed = False
        self._info: Info | None = None
        self._loop.add_reader(self._fd, self._poll)
        self._opened: asyncio.Future[Any] = self._future(OPENING)

    def _future(self, job: int) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._pending[job] = future
        # One poll sends all that was started in this turn of the loop.
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._poll)
        return future

    def _poll(self) -> None:
        """Send what was started, and complete the futures of what has ended."""
        self._is_due = False
        if self._closed:
            return
        for job, is_ok, value in self._queue.poll():
            future = self._pending.pop(job)
            if future.done():
                continue  # it was cancelled
            if is_ok:
                future.set_result(value)
            else:
                future.set_exception(cast(BaseException, value))

    def _open(self) -> _native.Queue:
        if self._closed:
            raise of("Closed", "the volume is closed")
        return self._queue

    async def _await_opened(self) -> None:
        try:
            self._info = info_of(await self._opened)
        except BaseException:
            self.close()
            raise

    def read(self, lba: int, nbytes: int) -> asyncio.Future[bytes]:
        """Read ``nbytes`` bytes from block ``lba``."""
        return self._future(self._open().start_read(lba, nbytes))

    def readinto(self, lba: int, buffer: Buffer) -> asyncio.Future[None]:
        """Fill ``buffer`` from block ``lba``. If the request fails, its contents are undefined."""
        return self._future(self._open().start_fill(((lba, buffer),)))

    def read_many(self, requests: Iterable[tuple[int, Buffer]]) -> asyncio.Future[None]:
        """Fill many buffers, each from its block: ``[(lba, buffer), …]``, with one future."""
        return self._future(self._open().start_fill(list(requests)))

    def write(self, lba: int, data: Buffer, *, durable: bool = False) -> asyncio.Future[None]:
        """Write ``data`` to block ``lba``, with ``durable`` so that it survives a power cut."""
        return self._future(self._open().start_write(((lba, data),), durable))

    def write_many(
        self, requests: Iterable[tuple[int, Buffer]], *, durable: bool = False
    ) -> asyncio.Future[None]:
        """Write many buffers, each to its block: ``[(lba, data), …]``, with one future."""
        return self._future(self._open().start_write(list(requests), durable))

    def write_atomic(self, lba: int, data: Buffer) -> asyncio.Future[None]:
        """Write ``data`` so that a reader, and a crash, sees all of it or nothing. It is durable."""
        return self._future(self._open().start_write_atomic(lba, data))

    def compare_and_write(self, lba: int, expected: Buffer, new: Buffer) -> asyncio.Future[None]:
        """Write ``new`` if the volume has ``expected`` there, as one atomic step."""
        return self._future(self._open().start_compare_and_write(lba, expected, new))

    def discard(self, lba: int, blocks: int) -> asyncio.Future[None]:
        """Discard blocks: they read as zeroes from then on."""
        return self._future(self._open().start_discard(lba, blocks))

    def write_zeroes(
        self, lba: int, blocks: int, *, durable: bool = False
    ) -> asyncio.Future[None]:
        """Write zeroes."""
        return self._future(self._open().start_write_zeroes(lba, blocks, durable))

    def flush(self) -> asyncio.Future[None]:
        """Make all acknowledged writes durable."""
        return self._future(self._open().start_flush())

    def close(self) -> None:
        """Close the volume. Requests under way fail with `Closed`; they may be carried out or not."""
        if self._closed:
            return
        self._closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._queue.close()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done() and not self._loop.is_closed():
                future.set_exception(of("Closed", "the volume was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *why: object) -> None:
        self.close()


class Opening:
    """A volume that is being opened: await it, or enter it with ``async with``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._volume: Volume | None = None

    async def _open(self) -> Volume:
        volume = self._volume = Volume(self._options)
        await volume._await_opened()
        return volume

    def __await__(self) -> Generator[Any, None, Volume]:
        return self._open().__await__()

    async def __aenter__(self) -> Volume:
        return await self._open()

    async def __aexit__(self, *why: object) -> None:
        if self._volume is not None:
            self._volume.close()


def open(
    url: str,
    *,
    tenant: str = "",
    token: str | bytes = b"",
    namespace: int | None = None,
    connections: int = 1,
    in_flight_max: int = 256,
    outage: float = 30.0,
    checksums: bool = False,
) -> Opening:
    """Open a volume in the running event loop, with the options of `nearflash.open`.

    The host's name is looked up before the call goes on.
    """
    return Opening(
        Options(url, tenant, token, namespace, connections, in_flight_max, outage, 0.0, checksums)
    )
