"""`kilowatch power import netbox` as typed, against a local server that answers as NetBox does."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from power.site.decode import decode
from tests.power.netbox_records import Pages, feed, inlet, pages


class NetBox(ThreadingHTTPServer):
    """Answers as NetBox's REST API does: pages, filters, a token; or as a test wants it."""

    def __init__(self, content: Pages) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.token = "Token 0123456789abcdef"
        self.page = 2
        self.instead: tuple[int, dict[str, str], bytes] | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: NetBox

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.server.instead is not None:
            self._say(*self.server.instead)
        elif self.headers.get("Authorization") != self.server.token:
            self._say(403, {}, b'{"detail":"Invalid token"}')
        elif (kind := parts.path.removeprefix("/api/dcim/").strip("/")) in self.server.content:
            self._list(kind, parse_qs(parts.query))
        else:
            self._say(404, {}, b"{}")

    def _list(self, kind: str, asked: dict[str, list[str]]) -> None:
        found = [
            one
            for one in self.server.content[kind]
            if "status" not in asked or one["status"]["value"] in asked["status"]
        ]
        start, size = (int(asked.get("offset", ["0"])[0]), min(self.server.page, int(asked["limit"][0])))
        statuses = "".join(f"&status={one}" for one in asked.get("status", []))
        more = start + size < len(found)
        # As behind a proxy: another scheme and host than the one that was asked.
        onward = (
            f"https://inside.example/api/dcim/{kind}/?limit={size}&offset={start + size}{statuses}" if more else None
        )
        body = {"count": len(found), "next": onward, "previous": None, "results": found[start : start + size]}
        self._say(200, {}, json.dumps(body).encode())

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def netbox() -> Iterator[NetBox]:
    """A local NetBox of five feeds, one of them planned, and a node."""
    feeds = [feed(n, f"f{n}") for n in range(1, 5)] + [feed(9, "next year", status="planned")]
    server = NetBox(pages(feeds, [inlet(1, (1, "rig1"), "PSU", ("dcim.powerfeed", 3))]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def run(server: NetBox, folder: Path, *more: str, token: str = "0123456789abcdef") -> Any:
    """The command as typed."""
    (folder / "token").write_text(f"{token}\n")
    return CliRunner().invoke(
        main, ["power", "import", "netbox", server.url, "--token-file", str(folder / "token"), *more]
    )


def test_the_command_reads_all_pages_and_prints_what_can_be_pasted(netbox: NetBox, tmp_path: Path) -> None:
    shown = run(netbox, tmp_path)
    assert shown.exit_code == 0, shown.output
    file = tmp_path / "site.toml"
    file.write_text(shown.stdout)
    site = decode("site.toml", tomllib.loads(shown.stdout))
    assert sorted(site.circuits) == ["f1", "f2", "f3", "f4"]
    assert site.nodes["rig1"].cords[0].circuit == "f3"
    assert CliRunner().invoke(main, ["plan", "--config", str(file), "--json"]).exit_code == 3
    both = run(netbox, tmp_path, "--status", "active", "--status", "planned")
    assert len(decode("s", tomllib.loads(both.stdout)).circuits) == 5


def test_tokens_of_the_second_kind_are_bearer_tokens(netbox: NetBox, tmp_path: Path) -> None:
    netbox.token = "Bearer nbt_key.secret"
    assert run(netbox, tmp_path, token="nbt_key.secret").exit_code == 0


LOOP = json.dumps({"count": 9, "next": "/api/?offset=5", "results": []}).encode()


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ((403, {}, b"{}"), "--token-file"),
        ((404, {}, b"{}"), "as the browser shows it"),
        ((302, {"Location": "http://192.0.2.1/login"}, b""), "it leads elsewhere, to http://192.0.2.1/login"),
        ((500, {}, b""), "it answers 500"),
        ((200, {}, b"<html>"), "it answers no JSON"),
        ((200, {}, b"[]"), "no list of NetBox"),
        ((200, {}, b'{"results": 5}'), "no list of NetBox"),
        ((200, {}, LOOP), "its pages do not end"),
        ((200, {"Content-Length": "999"}, b'{"results"'), "ends in the middle"),
        ((200, {}, b'{"results": [], "next": null}'), "no power feed that is active"),
    ],
    ids=["refused", "elsewhere", "redirect", "broken", "a page", "a list", "no results", "no end", "half", "empty"],
)
def test_a_netbox_that_is_none_is_one_line(
    netbox: NetBox, tmp_path: Path, instead: tuple[int, dict[str, str], bytes], told: str
) -> None:
    netbox.instead = instead
    shown = run(netbox, tmp_path)
    assert shown.exit_code in {3, 64}
    assert told in shown.stderr
    assert shown.stdout == ""
    assert "0123456789abcdef" not in shown.output


def test_an_address_that_is_none_and_a_token_that_is_none(netbox: NetBox, tmp_path: Path) -> None:
    wrong = CliRunner().invoke(main, ["power", "import", "netbox", "netbox.example"])
    assert "Write https://netbox.example" in wrong.stderr
    assert "does not hold a token" in run(netbox, tmp_path, token="two words").stderr
