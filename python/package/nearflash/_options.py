"""Options and properties that blocking and asynchronous volumes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

from . import _native
from ._errors import of


class Info(NamedTuple):
    """The properties of a volume, and the rights of this program to it."""

    #: Number of the namespace on the server.
    namespace: int
    #: Size in bytes.
    size: int
    #: Size of a block in bytes.
    block_size: int
    #: Granularity in bytes at which the device works best.
    physical_block_size: int
    #: Maximum size of an atomic write in bytes; zero for none.
    atomic_size_max: int
    #: True if the program may read.
    may_read: bool
    #: True if the program may write.
    may_write: bool
    #: True if acknowledged writes become durable only with a flush.
    needs_flush: bool


#: The name of the job that every queue begins with.
OPENING = 0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a volume, and its address."""

    url: str
    tenant: str
    token: str | bytes
    namespace: int | None
    connections: int
    in_flight_max: int
    outage: float
    spin: float
    checksums: bool

    def queue(self) -> _native.Queue:
        """Return a queue of this thread that has begun to connect."""
        token = self.token.encode() if isinstance(self.token, str) else self.token
        return _native.Queue(
            self.url,
            tenant=self.tenant,
            token=token,
            namespace=self.namespace,
            connections=self.connections,
            in_flight_max=self.in_flight_max,
            outage=self.outage,
            spin=self.spin,
            checksums=self.checksums,
        )


def info_of(value: object) -> Info | None:
    """Return the properties that the first job of a queue brought."""
    if value is None:
        return None
    return Info(*cast("tuple[int, int, int, int, int, bool, bool, bool]", value))


class Opened:
    """What blocking and asynchronous volumes tell of themselves."""

    _info: Info | None
    _closed: bool

    @property
    def info(self) -> Info:
        """The properties of the volume, as they were when it was opened."""
        if self._info is None:
            raise of("Unsupported", "version 1 of the protocol tells no properties")
        return self._info

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.info.size

    @property
    def block_size(self) -> int:
        """The size of a block in bytes, which is 512."""
        return 512

    @property
    def closed(self) -> bool:
        """True if the volume was closed."""
        return self._closed
