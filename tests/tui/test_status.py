"""`kilowatch status`: text for pipes, and an exit code as Nagios has it."""

from __future__ import annotations

import asyncio
import errno
import json
import ssl
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from api.alerts import Incident, IncidentNote
from api.errors import ErrorDetail
from bench.live_fleet import LiveFleet
from kilowatch.cli.views import status
from tests.tui.cluster import Cluster, served
from tests.tui.test_lines import HOT, incidents, state
from tui.state.documents import INCIDENTS
from tui.status import CRITICAL, OK, UNKNOWN, WARNING, as_json, severity, summary, text_lines


def test_the_exit_code_is_the_worst_unacknowledged_severity() -> None:
    assert severity(state(), 0.3) == OK
    assert severity(state(incidents(1, "ticket")), 0.3) == WARNING
    assert severity(state(incidents(1, "ticket") + incidents(1)), 0.3) == CRITICAL
    assert severity(state(incidents(1, acknowledged=IncidentNote(who="ops"))), 0.3) == OK


@pytest.mark.parametrize(
    ("found", "line_text"),
    [
        (incidents(1, acknowledged=IncidentNote(who="ops")), "OK: site?-a 1 page (acknowledged), 0 tickets,"),
        (incidents(1, "ticket"), "WARNING: site?-a 0 pages, 1 ticket,"),
        (
            incidents(2) + incidents(1, acknowledged=IncidentNote(who="ops")),
            "CRITICAL: site?-a 3 pages (1 acknowledged), 0 tickets,",
        ),
    ],
    ids=["taken", "one", "some taken"],
)
def test_acknowledged_incidents_are_printed_though_they_are_no_fault(found: list[Incident], line_text: str) -> None:
    assert summary(state(found), 0.3).startswith(f"KILOWATCH {line_text}")


@pytest.mark.parametrize("age", [None, 31.0])
def test_what_is_not_known_is_not_well(age: float | None) -> None:
    assert severity(state(), age) == UNKNOWN
    assert "UNKNOWN" in summary(state(), age)


def test_what_the_aggregator_does_not_say_is_not_well() -> None:
    found = state().with_doc(INCIDENTS, ErrorDetail("incidents", "the journal is closed"), 1.0)
    assert severity(found, 0.3) == UNKNOWN
    line = summary(found, 0.3)
    assert "alerts not known (incidents: the journal is closed" in line
    assert "pages=U tickets=U" in line


def test_the_text_says_what_the_overview_says_without_a_sign_for_the_terminal() -> None:
    lines = text_lines(state(incidents(2), [HOT]), 0.3)
    assert lines[0].startswith(
        "KILOWATCH CRITICAL: site?-a 2 pages, 0 tickets, 9968/10000 GPUs reporting, data 0.3 s old | gpus=9968"
    )
    assert any("what? 0" in line for line in lines)
    assert any(line.startswith("PDU-17B") and "MAY TRIP IN 04:11" in line for line in lines)
    assert all("\x1b" not in line for line in lines)


def test_json_has_null_for_what_is_not_known() -> None:
    found = json.loads(json.dumps(as_json(state(), None)))
    assert found["state"] == "UNKNOWN"
    assert found["wall_watts"] is None
    assert found["gpus"]["lost"] == 24


async def test_a_running_aggregator_is_asked_once() -> None:
    stage = LiveFleet(8, still=True)
    for _ in range(6):
        await stage.beat()
    async with listening(stage, HttpConfig(listen="127.0.0.1:0")) as (host, port):
        done = await asyncio.to_thread(CliRunner().invoke, status, [f"{host}:{port}"])
        as_object = await asyncio.to_thread(CliRunner().invoke, status, [f"{host}:{port}", "--json"])
    assert done.exit_code == CRITICAL
    assert "has fallen off the bus" in done.output
    assert "PDU-002A" in done.output
    assert json.loads(as_object.output)["gpus"]["total"] == 64


async def test_an_empty_cluster_is_unknown() -> None:
    async with served(Cluster(nodes=0)) as url:
        done = await asyncio.to_thread(CliRunner().invoke, status, [url])
    assert done.exit_code == UNKNOWN


@pytest.mark.parametrize("where", [["127.0.0.1:1"], ["--http", "127.0.0.1:1"]])
def test_nobody_there_says_so_and_what_to_start(where: list[str]) -> None:
    done = CliRunner().invoke(status, where)
    assert done.exit_code == UNKNOWN
    assert "http://127.0.0.1:1" in done.output
    assert "nothing listens there. Is it running? kilowatch aggregate" in done.output


@pytest.mark.parametrize(("error", "remedy"), [
    (ssl.SSLCertVerificationError("certificate has expired"), "Set the clock of this machine"),
    (ssl.SSLCertVerificationError("unable to get local issuer certificate"), "--ca FILE"),
    (OSError(errno.EHOSTUNREACH, "No route to host"), "Is the machine on"),
    (TimeoutError(), "Is it running? kilowatch aggregate"),
], ids=["expired", "not trusted", "no way", "late"])  # fmt: skip
def test_the_cure_is_that_of_the_fault(error: OSError, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def raised(*_: object) -> None:
        raise error

    monkeypatch.setattr("tui.status.fetch", raised)
    done = CliRunner().invoke(status, ["127.0.0.1:1"])
    assert done.exit_code == UNKNOWN
    assert remedy in done.output
    assert done.output.count("\n") == 1


def test_two_aggregators_are_one_too_many() -> None:
    done = CliRunner().invoke(status, ["127.0.0.1:1", "--http", "127.0.0.1:2"])
    assert done.exit_code == 2
    assert "Name one" in done.output


async def test_what_is_no_aggregator_is_not_to_be_started() -> None:
    async with TestServer(web.Application()) as server:
        done = await asyncio.to_thread(CliRunner().invoke, status, [f"127.0.0.1:{server.port}"])
    assert "it answers 404: is this a kilowatch aggregator? Name the address of one." in done.output


async def test_a_token_that_is_refused_says_where_the_right_one_is_named(tmp_path: Path) -> None:
    """Not that no aggregator runs."""
    secret = tmp_path / "token"
    secret.write_text("0123456789abcdef" * 2)
    cluster = Cluster()
    await cluster.beat()
    async with served(cluster, secret) as url:
        result = await asyncio.to_thread(CliRunner().invoke, status, [url])
    assert result.exit_code == UNKNOWN
    assert "--token-file FILE" in result.output
    assert "Is it running" not in result.output


def test_releases_that_differ_from_the_aggregators_are_named_and_equal_ones_are_not() -> None:
    def shown(releases: dict[str, int]) -> str:
        known = state()
        assert known.status is not None
        summary = msgspec.structs.replace(known.status.summary, releases=releases)
        status = msgspec.structs.replace(known.status, version="2026.2", summary=summary)
        return "\n".join(text_lines(replace(known, status=status), 1.0))

    assert "releases" not in shown({"2026.2": 3})
    text = shown({"": 1, "2026.1": 2, "2026.2": 1})
    assert "releases: aggregator 2026.2, 1 node not known, 2 nodes 2026.1, 1 node 2026.2" in text
