"""The admin client: typed, and made from the document of the server that was built."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import ROOT, Server

import nearflash


def test_the_client_is_made_from_the_document_of_this_server(
    server: Server, tmp_path: Path
) -> None:
    document = tmp_path / "openapi.json"
    admin = nearflash.Admin(str(server.admin))
    document.write_text(json.dumps(admin.openapi()))
    tool = ROOT / "python/tools/generate_admin.py"
    made = subprocess.run(
        [sys.executable, str(tool), str(document)], capture_output=True, text=True, check=True
    )
    text = (ROOT / "python/package/nearflash/admin.py").read_text()
    assert made.stdout == text, f"run {tool.name} again"


def test_tenants_come_and_go(own_server: Server) -> None:
    admin = nearflash.Admin(str(own_server.admin))
    admitted = admin.add_tenant({"name": "gold/1"})
    assert admitted["name"] == "gold/1" and admitted["tokens_needed"] == 0
    names = [tenant["name"] for tenant in admin.list_tenants()["tenants"]]
    assert "gold/1" in names
    assert admin.get_tenant("gold/1")["name"] == "gold/1"
    with nearflash.open(own_server.url, tenant="gold/1") as volume:
        volume.write(0, bytes(4096))
        found = admin.list_connections(limit=5)["connections"]
        assert len(found) == 1
    admin.change_tenants({"changes": [{"remove": {"name": "gold/1"}}]})
    with pytest.raises(nearflash.AdminError) as raised:
        admin.get_tenant("gold/1")
    assert (raised.value.status, raised.value.code) == (404, "no-tenant")
    assert raised.value.detail["message"] == raised.value.message
    assert "nearflash" in admin.scrape()


def test_namespaces(own_server: Server) -> None:
    admin = nearflash.Admin(str(own_server.admin))
    devices = admin.list_devices()["devices"]
    assert len(devices) == 1
    with pytest.raises(nearflash.AdminError) as raised:
        admin.add_namespace({"name": "n", "bytes": 1 << 40})
    assert raised.value.status >= 400
    with pytest.raises(nearflash.AdminError):
        admin.remove_namespace("nothing", force=True)


class _Office(http.server.BaseHTTPRequestHandler):
    """An admin API of one worker, for whoever has the token."""

    def do_GET(self) -> None:
        is_known = self.headers["authorization"] == "Bearer our-token-of-operators"
        answer: object = {"workers": []}
        if not is_known:
            answer = {"error": {"code": "unauthorized", "message": "who is there?"}}
        body = b"no JSON" if self.path.startswith("/v1/flows") else json.dumps(answer).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_over_tcp_with_a_token() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Office) as office:
        thread = threading.Thread(target=office.serve_forever)
        thread.start()
        place = f"http://127.0.0.1:{office.server_port}"
        known = nearflash.Admin(place, token="our-token-of-operators")
        assert known.list_workers() == {"workers": []}
        with pytest.raises(nearflash.AdminError, match="who is there") as raised:
            nearflash.Admin(place, token="another").list_workers()
        assert (raised.value.status, raised.value.code) == (401, "unauthorized")
        with pytest.raises(nearflash.AdminError, match="no JSON"):
            nearflash.Admin(place).get_flows()
        office.shutdown()
        thread.join()


def test_places() -> None:
    for wrong in ("relative/path", "ftp://host", "http://"):
        with pytest.raises(nearflash.AddressError):
            nearflash.Admin(wrong)
    with pytest.raises(nearflash.AddressError, match="clear text"):
        nearflash.Admin("http://flash-1:7443", token="secret")
    with pytest.raises(nearflash.AddressError) as told:
        nearflash.Admin("https://flash-1:7443", token="sec\nret")
    assert "ret" not in str(told.value)
    with pytest.raises(nearflash.ConnectError, match="nonexistent"):
        nearflash.Admin("/nonexistent/socket").list_tenants()
    assert issubclass(nearflash.ConnectError, OSError)
