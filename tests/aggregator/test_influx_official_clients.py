"""Requests have the form in which the official clients of InfluxDB 2 and 3 send the same to the same server."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aggregator.influx.client import InfluxClient
from aggregator.influx.names import policies
from aggregator.influx.setup import prepare
from aggregator.settings.influx import InfluxApi, InfluxConfig
from tests.influxes import Reply, Request, Scripted

LINE = "gpu,gpu=GPU-1,node=n\\ 1 power_watts=300.25,sm_clock_hertz=1980000000 1700000000123"
HEADERS = ("Authorization", "Content-Encoding", "Content-Type")


def official_2(url: str) -> None:
    """Write the line with the client of InfluxDB 2."""
    official: Any = import_module("influxdb_client")
    at_once: Any = import_module("influxdb_client.client.write_api").SYNCHRONOUS
    with official.InfluxDBClient(url, "secret", org="lab", enable_gzip=True) as client:
        client.write_api(at_once).write("kilowatch/raw", record=LINE, write_precision="ms")


def official_3(url: str) -> None:
    """Write the line with the client of InfluxDB 3, as it is set up by default but for waiting for the answer."""
    official: Any = import_module("influxdb_client_3")
    with official.InfluxDBClient3(
        host=url,
        token="secret",
        database="kilowatch/raw",
        org="lab",
        enable_gzip=True,
        write_client_options=official.write_client_options(write_options=official.SYNCHRONOUS),
    ) as client:
        client.write(LINE, write_precision="ms")


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], InfluxConfig]:
    """A function that returns the settings for a server."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    return lambda url: InfluxConfig(url=url, api=InfluxApi.V2, org="lab", token_file=token)


@pytest.mark.parametrize("write", [official_2, official_3])
def test_a_write_is_that_of_the_official_client(
    write: Callable[[str], None], config: Callable[[str], InfluxConfig]
) -> None:
    server = Scripted(lambda _: Reply())
    try:
        with InfluxClient(config(server.url)) as client:
            assert client.write("raw", gzip.compress(LINE.encode())).status == 204
        write(server.url)
        ours, theirs = server.requests
    finally:
        server.close()
    assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
    assert ours.query == {"org": "lab", "bucket": "kilowatch/raw", "precision": "ms"}
    sent, expected = ({name: each.headers.get(name, "").lower() for name in HEADERS} for each in (ours, theirs))
    assert expected.pop("Content-Type").partition(";")[0] == "text/plain"
    assert sent.pop("Content-Type") == "text/plain; charset=utf-8"
    assert sent == expected == {"Authorization": "token secret", "Content-Encoding": "gzip"}
    assert gzip.decompress(ours.body).strip() == gzip.decompress(theirs.body).strip() == LINE.encode()


def server_2(request: Request) -> Reply:
    """Answer as InfluxDB 2 documents it, with nothing there yet but a bucket."""
    match request.method, request.path:
        case "GET", "/api/v2/orgs":
            found: Any = {"orgs": [{"id": "0rg", "name": "lab"}]}
        case "GET", "/api/v2/buckets":
            there = request.query.get("name") == "kilowatch/raw"
            found = {"buckets": [{"id": "b0", "name": "kilowatch/raw", "retentionRules": []}] if there else []}
        case "GET", "/api/v2/dbrps":
            found = {"content": []}
        case "GET", "/ping":
            return Reply(204, "", {"X-Influxdb-Build": "OSS", "X-Influxdb-Version": "v2.7.1"})
        case method, path:
            found = {"id": f"{method}-{path}", "name": "kilowatch/raw", **json.loads(request.body or b"{}")}
    return Reply(201 if request.method == "POST" else 200, json.dumps(found))


def said(requests: Sequence[Request]) -> set[str]:
    """Return the requests in a form that compares."""
    return {
        json.dumps([one.method, one.path, one.query, json.loads(one.body or b"{}")], sort_keys=True) for one in requests
    }


def test_the_setup_of_influxdb_2_is_that_of_its_official_client(config: Callable[[str], InfluxConfig]) -> None:
    """Organisation, buckets with their ages, mappings for InfluxQL: the same requests, and no other."""
    official: Any = import_module("influxdb_client")

    server = Scripted(server_2)
    try:
        with InfluxClient(config(server.url)) as client:
            assert prepare(client, lambda _: None).major == 2
            kept = policies(client.config)
        ours = list(server.requests)
        server.requests.clear()
        with official.InfluxDBClient(server.url, "secret", org="lab") as client:
            api = client.api_client
            organisation = official.OrganizationsService(api).get_orgs(org="lab").orgs[0].id
            buckets, mappings = official.BucketsService(api), official.DBRPsService(api)
            for number, (policy, seconds) in enumerate(kept.items()):
                name = f"kilowatch/{policy}"
                rules = official.BucketRetentionRules(type="expire", every_seconds=round(seconds))
                there = buckets.get_buckets(name=name, org_id=organisation).buckets
                if there:
                    ident = there[0].id
                    change = official.PatchBucketRequest(retention_rules=[rules])
                    buckets.patch_buckets_id(ident, change)
                else:
                    new = official.PostBucketRequest(
                        org_id=organisation,
                        name=name,
                        retention_rules=[rules],
                        rp=None,  # the client writes "0", which is what the server takes for none
                    )
                    ident = buckets.post_buckets(new).id
                mappings.get_dbr_ps(org_id=organisation, db="kilowatch", rp=policy)
                mapping = official.DBRPCreate(
                    org_id=organisation,
                    bucket_id=ident,
                    database="kilowatch",
                    retention_policy=policy,
                    default=number == 0,
                )
                mappings.post_dbrp(mapping)
            official.PingService(api).get_ping()
        theirs = list(server.requests)
    finally:
        server.close()
    assert said(ours) == said(theirs)
    assert len(ours) == 2 + 4 * len(kept)
