"""Remote flash at close to local speed: the client of a nearflash server.

`open` gives a volume whose calls block, `nearflash.aio.open` one for asyncio.
"""

from __future__ import annotations

import atexit
import os

from . import _native, admin, aio
from ._errors import (
    AddressError,
    AdminError,
    Busy,
    Closed,
    CompareFailed,
    ConnectError,
    ConnectionLost,
    Denied,
    Error,
    ForkedError,
    LengthError,
    MediaError,
    NoSpace,
    NotFound,
    OutOfRange,
    ReadOnly,
    ResourceError,
    TooLarge,
    Unsupported,
)
from ._file import File
from ._options import Info
from ._volume import Volume, open
from .admin import Admin

__all__ = [
    "Admin",
    "AddressError",
    "AdminError",
    "Busy",
    "Closed",
    "CompareFailed",
    "ConnectError",
    "ConnectionLost",
    "Denied",
    "Error",
    "File",
    "ForkedError",
    "Info",
    "LengthError",
    "MediaError",
    "NoSpace",
    "NotFound",
    "OutOfRange",
    "ReadOnly",
    "ResourceError",
    "TooLarge",
    "Unsupported",
    "Volume",
    "admin",
    "aio",
    "open",
]

os.register_at_fork(after_in_child=_native.forked)
# What is in flight ends before the interpreter goes.
atexit.register(_native.close_all)
