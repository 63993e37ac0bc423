"""Writes have the form in which the official client of InfluxDB 2 sends the same points to the same server."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from aggregator.influx.client import InfluxClient
from aggregator.settings.influx import InfluxApi, InfluxConfig
from tests.influxes import Reply, Request, Scripted

LINE = "gpu,gpu=GPU-1,node=n\\ 1 power_watts=300.25,sm_clock_hertz=1980000000 1700000000123"
HEADERS = ("Authorization", "Content-Encoding", "Content-Type")


def test_a_write_is_that_of_the_official_client_of_influxdb_2(tmp_path: Path) -> None:
    ours, theirs = _both(tmp_path)
    assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
    assert ours.query == {"org": "lab", "bucket": "kilowatch/raw", "precision": "ms"}
    sent, expected = (
        {name: each.headers.get(name, "").lower() for name in HEADERS} for each in (ours, theirs)
    )
    assert expected.pop("Content-Type") == "text/plain"
    assert sent.pop("Content-Type") == "text/plain; charset=utf-8"
    assert sent == expected == {"Authorization": "token secret", "Content-Encoding": "gzip"}
    assert (
        gzip.decompress(ours.body).strip() == gzip.decompress(theirs.body).strip() == LINE.encode()
    )


def _both(folder: Path) -> tuple[Request, Request]:
    """Return what kilowatch and the official client send to write one line."""
    official: Any = pytest.importorskip("influxdb_client")
    from influxdb_client.client.write_api import SYNCHRONOUS

    token = folder / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    server = Scripted(lambda _: Reply())
    try:
        config = InfluxConfig(url=server.url, api=InfluxApi.V2, org="lab", token_file=token)
        with InfluxClient(config) as client:
            assert client.write("raw", gzip.compress(LINE.encode())).status == 204
        with official.InfluxDBClient(server.url, "secret", org="lab", enable_gzip=True) as client:
            client.write_api(SYNCHRONOUS).write("kilowatch/raw", record=LINE, write_precision="ms")
        ours, theirs = server.requests
    finally:
        server.close()
    return ours, theirs
