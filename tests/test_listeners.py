"""Every place of the product that listens is named here, with the tests of what it refuses by the headers Host and Origin.

A web page in somebody's browser reaches whatever listens on that machine: by a name that was made to point there, which
the header Host shows, or by its own script, which the header Origin shows.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.packages import PACKAGES
from tests.test_security_page import ROOT, names_in

NAMES = {
    "create_server", "start_server", "create_unix_server", "start_unix_server", "create_datagram_endpoint",
    "run_app", "AppRunner", "ServerRunner", "BaseSite", "TCPSite", "UnixSite", "SockSite", "HTTPServer", "ThreadingHTTPServer",
    "TCPServer", "ThreadingTCPServer", "UDPServer", "UnixStreamServer", "make_server", "start_http_server", "fromfd", "Broker",
}  # fmt: skip
"""What Python, aiohttp, prometheus_client and iotcore listen by."""
METHODS = {"bind", "listen", "serve_forever"}
"""The same of an object; a plain `bind` is something else."""


class Listener(NamedTuple):
    """Tests of a place that listens, as `file::test`, or why it needs none."""

    host: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    none: str = ""


MAIN = Listener(
    (
        "tests/aggregator/test_http_auth.py::test_on_loopback_a_name_that_points_here_is_no_way_in",
        "tests/aggregator/test_http_tokens.py::test_reading_without_a_token_is_a_setting",
        "tests/aggregator/test_health_thread.py::test_another_host_is_refused_as_everywhere",
    ),
    (
        "tests/aggregator/test_http_auth.py::test_a_page_of_another_site_may_not_ask",
        "tests/aggregator/test_health_thread.py::test_a_page_of_another_site_is_refused_as_everywhere",
    ),
)
"""The aggregator's, on loopback and elsewhere; the health thread accepts its connections."""
PLACES = {
    "aggregator/http/listener.py": MAIN,
    "aggregator/assembly/http_server.py": MAIN,
    "collector/page/metrics_page.py": Listener(
        ("tests/collector/test_page.py::test_a_page_answers_to_its_own_names_alone",),
        ("tests/collector/test_page.py::test_a_page_answers_no_page_of_another_site",),
    ),
    "kilowatch/stack/broker.py": Listener(none="MQTT with a password: a browser sends neither"),
    "kilowatch/stack/ports.py": Listener(none="bound to see whether it is free, and closed"),
    "collector/jobs/ray.py": Listener(none="bound to see whose an address is, and closed"),
}
"""Files that listen, or bind an address."""


def listens(path: Path) -> set[str]:
    """Return the names in a file by which something listens: what it calls, imports and derives from."""
    found: set[str] = set()
    source = path.read_text("utf-8")
    if not any(name in source for name in NAMES | METHODS):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name for each in node.names} & NAMES
        elif isinstance(node, ast.Call | ast.ClassDef):
            for used in [node.func] if isinstance(node, ast.Call) else node.bases:
                found |= {getattr(used, "id", "")} & NAMES
                found |= {getattr(used, "attr", "")} & (NAMES | METHODS)
    return found


def test_whatever_listens_says_who_tries_its_host_and_origin() -> None:
    found = {
        str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py") if listens(path)
    }
    assert found - PLACES.keys() == set(), "new: name it in PLACES, with the tests of both headers"
    assert PLACES.keys() - found == set(), "gone: remove it from PLACES"


@pytest.mark.parametrize("place", PLACES)
def test_the_tests_of_both_headers_exist_or_a_reason_stands_there(place: str) -> None:
    """Each names its header, so that it is not the test of something else."""
    its = PLACES[place]
    assert bool(its.none) != bool(its.host and its.origin)
    for test, header in [*((one, "Host") for one in its.host), *((one, "Origin") for one in its.origin)]:
        file, _, name = test.partition("::")
        assert name in names_in(ROOT / file), test
        source = (ROOT / file).read_text("utf-8")
        body = next(each for each in ast.walk(ast.parse(source)) if getattr(each, "name", "") == name)
        assert header in (ast.get_source_segment(source, body) or ""), test


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def main(): await asyncio.start_unix_server(print, '/x')\n",
        "from iotcore import Broker as Bus\n",
        "from aiohttp import web\nclass Site(web.BaseSite): ...\n",
        "import socket\nsocket.socket(socket.AF_UNIX).bind('/x')\n",
        "import http.server\nhttp.server.ThreadingHTTPServer(('', 80), None)\n",
    ],
)
def test_a_place_that_listens_is_found(tmp_path: Path, source: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(source)
    assert listens(path)
