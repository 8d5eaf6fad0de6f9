"""The exceptions of the package."""

from __future__ import annotations

import errno
from collections.abc import Mapping


class Error(Exception):
    """The root of all exceptions of this package."""


class AddressError(Error, ValueError):
    """The server's address is invalid, or its host is unknown."""


class ConnectError(Error, ConnectionError):
    """The server could not be reached, or refused the connection."""


class ConnectionLost(Error, ConnectionResetError):
    """The connection was lost before the outcome was known.

    The request may have been carried out or not. Requests that are safe to repeat are repeated
    first, until the time that ``outage`` gives them is over.
    """


class LengthError(Error, ValueError):
    """The length is zero, or not a whole number of blocks of 512 bytes."""


class TooLarge(Error, OSError):
    """The request may not be cut, and is larger than one request can be."""


class CompareFailed(Error):
    """The compare found other data; nothing was written."""


class OutOfRange(Error, ValueError):
    """The range does not lie within the volume."""


class Denied(Error, PermissionError):
    """The access rules of the server deny the request."""


class NotFound(Error, LookupError):
    """The server has no such namespace or tenant."""


class ReadOnly(Error, OSError):
    """The volume is read-only."""


class NoSpace(Error, OSError):
    """The device has no space left."""


class MediaError(Error, OSError):
    """The device could not read or write the range, or a checksum is wrong."""


class Busy(Error, BlockingIOError):
    """The server is busy or draining. Nothing was done, and the request may be repeated."""


class Unsupported(Error, OSError):
    """The server, the device or the version of the protocol has no such request."""


class ResourceError(Error, OSError):
    """The server, or this machine, has no resources left for the request."""


class Closed(Error, ValueError):
    """The volume is closed."""


class ForkedError(Error, RuntimeError):
    """The volume was opened before a fork, and belongs to the parent process."""


class AdminError(Error):
    """The admin API answered with an error."""

    def __init__(
        self, status: int, code: str, message: str, detail: Mapping[str, object]
    ) -> None:
        super().__init__(message)
        #: The status of HTTP.
        self.status = status
        #: The code of the error, for programs.
        self.code = code
        #: The text of the error, for people.
        self.message = message
        #: The whole error. For a refused SLO it has the shortage and the ways out.
        self.detail = detail


_ERRNO: dict[type[Error], int] = {
    ConnectError: errno.ENOTCONN,
    ConnectionLost: errno.ECONNRESET,
    TooLarge: errno.EMSGSIZE,
    Denied: errno.EACCES,
    ReadOnly: errno.EROFS,
    NoSpace: errno.ENOSPC,
    MediaError: errno.EIO,
    Busy: errno.EAGAIN,
    Unsupported: errno.ENOTSUP,
    ResourceError: errno.ENOMEM,
}

_BY_NAME: dict[str, type[Error]] = {
    kind.__name__: kind
    for kind in (
        *_ERRNO,
        Error,
        AddressError,
        LengthError,
        CompareFailed,
        OutOfRange,
        NotFound,
        Closed,
        ForkedError,
    )
}


def of(name: str, text: str) -> Error:
    """Return the exception of this name, with the number of an error where it has one."""
    kind = _BY_NAME[name]
    number = _ERRNO.get(kind)
    return kind(text) if number is None else kind(number, text)
