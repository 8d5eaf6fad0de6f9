"""A server of memory on loopback for the tests."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearflash

ROOT = Path(__file__).resolve().parents[2]

#: Longer than anything takes on a busy machine.
PATIENCE = 60.0


class Server:
    """`nearflash serve` as a child process."""

    def __init__(self, folder: Path, device: str | None = "mem:16MiB", *more: str) -> None:
        self._arguments = ["--device", device, *more] if device else list(more)
        self._folder = folder
        self.admin = folder / "admin.sock"
        self.unix = f"reflex+unix:{folder / 'data.sock'}"
        self.url = ""
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it accepts."""
        program = os.environ.get("NEARFLASH", str(ROOT / "target/debug/nearflash"))
        listen = ["--listen", "reflex://127.0.0.1:0", "--listen", self.unix]
        where = ["--admin", str(self.admin), "--state", "none"]
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [program, "serve", *self._arguments, *listen, *where],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        words = self._ready().split()
        assert words[0] == "ready", words
        self.url = next(word for word in words if word.startswith("reflex://"))

    def _ready(self) -> str:
        assert self._child is not None and self._child.stdout is not None
        line, end = b"", time.monotonic() + PATIENCE
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self._child.stdout], [], [], end - time.monotonic())
            part = os.read(self._child.stdout.fileno(), 4096) if readable else b""
            if not part:
                self.kill()
                pytest.fail(f"no `ready` line; its log: {(self._folder / 'log').read_text()}")
            line += part
        return line.decode()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._child is not None
        return self._child.pid

    def stop(self) -> None:
        """Stop it, and wait until all of its threads stand."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._child = None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests that leave it as it is."""
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of one test."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def volume(server: Server) -> Iterator[nearflash.Volume]:
    """A volume full of zeroes."""
    with nearflash.open(server.url) as volume:
        volume.write_zeroes(0, volume.size // volume.block_size)
        yield volume


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """End the run, with the stacks of all threads, if a test hangs."""
    faulthandler.dump_traceback_later(4 * PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
