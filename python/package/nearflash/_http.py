"""Requests of the admin client: HTTP over TCP, TLS or a Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ._errors import AddressError, AdminError, of

_Query = Mapping[str, str | int | float | bool | None]


def _checked(token: str) -> str:
    stripped = token.strip()  # as a file has it, with the end of its line
    if not stripped.isascii() or not stripped.isprintable():
        raise AddressError("the token has characters that no token has")
    return stripped


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class _UnixConnection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Http:
    """The place of an admin API, and how it is asked.

    `place` is the path of a Unix socket, ``http://HOST:PORT`` or ``https://HOST:PORT``. `token` is
    needed for the last; `context` says which certificates are trusted. Each request has a
    connection of its own, so that threads may share the object. Failures are `AdminError` if the
    server answered, and `ConnectError` if it did not within `timeout` seconds.
    """

    def __init__(
        self,
        place: str,
        *,
        token: str | None = None,
        context: ssl.SSLContext | None = None,
        timeout: float = 15.0,
    ) -> None:
        self._place = place
        self._token = token
        self._context = context
        self._timeout = timeout
        self._url = urllib.parse.urlsplit("" if place.startswith("/") else place)
        if not place.startswith("/") and (
            self._url.scheme not in ("http", "https") or not self._url.hostname
        ):
            text = f"`{place}` is no admin API: the path of a socket, http://… or https://…"
            raise AddressError(text)
        if token is not None:
            self._token = _checked(token)
            if self._url.scheme == "http" and not _is_loopback(self._url.hostname or ""):
                raise AddressError(f"`{place}` would carry the token in clear text: use https://…")

    def openapi(self) -> Any:
        """Return the server's description of the API."""
        return self._json("GET", ("openapi.json",), None, {})

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        return _UnixConnection(self._place, self._timeout)

    def _bytes(self, verb: str, path: tuple[str | int, ...], body: object, query: _Query) -> bytes:
        words = "/" + "/".join(urllib.parse.quote(str(part), safe="") for part in path)
        asked = {
            name: json.dumps(value) if isinstance(value, bool) else value
            for name, value in query.items()
            if value is not None
        }
        if asked:
            words += "?" + urllib.parse.urlencode(asked)
        headers = {"connection": "close"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["content-type"] = "application/json"
            data = json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(verb, words, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise of("ConnectError", f"{self._place}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise _refusal(answer.status, text)
        return text

    def _text(self, verb: str, path: tuple[str | int, ...], body: object, query: _Query) -> str:
        return self._bytes(verb, path, body, query).decode()

    def _json(self, verb: str, path: tuple[str | int, ...], body: object, query: _Query) -> Any:
        return json.loads(self._bytes(verb, path, body, query))

    def _nothing(
        self, verb: str, path: tuple[str | int, ...], body: object, query: _Query
    ) -> None:
        self._bytes(verb, path, body, query)


def _refusal(status: int, text: bytes) -> AdminError:
    try:
        detail = json.loads(text)["error"]
        return AdminError(status, detail["code"], detail["message"], detail)
    except (ValueError, KeyError, TypeError):
        return AdminError(status, "unknown", text.decode(errors="replace"), {})
