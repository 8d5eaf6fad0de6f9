"""Volumes as files."""

from __future__ import annotations

import errno
import io
import random

import pytest

import nearflash


def test_any_position_and_length(volume: nearflash.Volume) -> None:
    chance = random.Random(7)
    model = bytearray(1 << 16)
    file = nearflash.File(volume)
    for _ in range(300):
        at = chance.randrange(len(model) - 3000)
        nbytes = chance.choice([1, 511, 512, 513, 1024, chance.randrange(3000)])
        file.seek(at)
        if chance.random() < 0.5:
            data = chance.randbytes(nbytes)
            assert file.write(data) == nbytes
            model[at : at + nbytes] = data
        else:
            assert file.read(nbytes) == model[at : at + nbytes]
        assert file.tell() == at + nbytes
    assert volume.read(0, len(model)) == model


def test_buffered(volume: nearflash.Volume) -> None:
    with io.BufferedRandom(nearflash.File(volume), 8192) as file:
        file.write(b"line one\nline two\n")
        file.seek(0)
        assert file.readline() == b"line one\n"
        assert file.readline() == b"line two\n"
        file.seek(-3, io.SEEK_END)
        file.write(b"end")
        file.seek(-3, io.SEEK_END)
        assert file.read() == b"end"
    assert not volume.closed
    assert volume.read(0, 512)[:8] == b"line one"


def test_the_end(volume: nearflash.Volume) -> None:
    file = nearflash.File(volume)
    assert file.seek(0, io.SEEK_END) == volume.size
    assert file.read(10) == b""
    with pytest.raises(OSError, match="end of the volume") as raised:
        file.write(b"x")
    assert raised.value.errno == errno.ENOSPC
    assert file.write(b"") == 0
    file.seek(-2, io.SEEK_CUR)
    assert file.write(b"12345") == 2
    file.seek(-2, io.SEEK_END)
    assert file.read() == b"12"
    with pytest.raises(ValueError, match="before the beginning"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 7)
    file.close()
    with pytest.raises(ValueError, match="closed file"):
        file.read(1)
