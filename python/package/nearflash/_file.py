"""Volumes as files."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING

from ._volume import Volume

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 512


class File(io.RawIOBase):
    """A volume as a raw binary file of fixed length, for whatever takes files.

    Wrap it in `io.BufferedRandom` (or `BufferedReader`) for small reads and writes. Any position
    and length will do: where they are not whole blocks, a write reads the first and the last block
    before it writes them, so that a range should have one writer. Use it from one thread at a time.
    `flush` makes what was written durable. Closing the file leaves the volume open.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._size = volume.size
        self._at = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def writable(self) -> bool:
        """Return whether the program may write to the volume."""
        return self._volume.info.may_write

    def seekable(self) -> bool:
        """Return true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position, which may lie beyond the end."""
        self._check()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        if whence not in bases:
            raise ValueError(f"whence: 0, 1 or 2, and not {whence}")
        at = bases[whence] + offset
        if at < 0:
            raise ValueError(f"a position before the beginning: {at}")
        self._at = at
        return at

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into ``buffer`` up to the end of the volume, and return the number of bytes."""
        self._check()
        with memoryview(buffer) as any_view, any_view.cast("B") as view:
            count = max(0, min(len(view), self._size - self._at))
            first, inside = divmod(self._at, _BLOCK)
            whole = _round_up(inside + count)
            is_whole = inside == 0 and whole == count
            # The views of `io`'s buffered objects keep no memory alive, so none is lent.
            if count > 0 and is_whole and any_view.obj is not None:
                self._volume.readinto(first, view[:count])
            elif count > 0:
                view[:count] = self._volume.read(first, whole)[inside : inside + count]
        self._at += count
        return count

    def write(self, data: Buffer, /) -> int:
        """Write up to the end of the volume, and return the number of bytes.

        Raises `OSError` (ENOSPC) at the end.
        """
        self._check()
        with memoryview(data) as any_view, any_view.cast("B") as view:
            count = max(0, min(len(view), self._size - self._at))
            if count == 0 and len(view) > 0:
                raise OSError(errno.ENOSPC, "the position is at the end of the volume")
            if count > 0:
                self._write(view[:count])
        self._at += count
        return count

    def _write(self, part: memoryview) -> None:
        first, inside = divmod(self._at, _BLOCK)
        whole = _round_up(inside + len(part))
        if inside == 0 and whole == len(part):
            self._volume.write(first, part if part.obj is not None else bytes(part))
            return
        blocks = bytearray(whole)
        edges = {0, whole - _BLOCK}
        # Views that an interrupted read has lent cannot be released, and go by themselves.
        view = memoryview(blocks)
        edge_views = [(first + edge // _BLOCK, view[edge : edge + _BLOCK]) for edge in edges]
        self._volume.read_many(edge_views)
        view[inside : inside + len(part)] = part
        self._volume.write(first, blocks)

    def flush(self) -> None:
        """Make what was written durable."""
        if not self.closed and not self._volume.closed and self.writable():
            self._volume.flush()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _BLOCK) * _BLOCK
