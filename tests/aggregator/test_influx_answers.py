"""What releases that can't run here answer, from their documents: 2.x, 3.x, and anything between
us and them. The shapes are written down by hand; the words are theirs where they matter."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aggregator.influx.client import InfluxClient, InfluxServer, UnreachableError
from aggregator.influx.response import ServerReply, WriteAction, evaluate
from aggregator.influx.segments import SpoolRecord
from aggregator.influx.sender import HOPELESS, SpoolSender
from aggregator.influx.setup import prepare
from aggregator.influx.spool import Spool
from aggregator.settings.influx import InfluxApi, InfluxConfig
from telemetry.errors import StoreError
from tests.aggregator.influx_feed import influx_config
from tests.brokers import free_port
from tests.fakes import Middling
from tests.influxes import Reply, Request, Scripted

NOW = 1_795_000_000.0
BODY = {
    "2 bad": {"code": "invalid", "message": "unable to parse 'gpu v=': missing field value"},
    "2 partial": {
        "code": "unprocessable entity",
        "message": "failure writing points to database: partial write: points beyond retention policy dropped=4",
    },
    "2 type": {
        "code": "unprocessable entity",
        "message": "failure writing points to database: partial write: field type conflict: input "
        'field "v" on measurement "gpu" is type integer, already exists as type float dropped=1',
    },
    "2 token": {"code": "unauthorized", "message": "unauthorized access"},
    "2 bucket": {"code": "not found", "message": 'bucket "kilowatch/raw" not found'},
    "2 large": {"code": "request too large", "message": "unable to read data: points batch is too large"},
    "2 limit": {"code": "too many requests", "message": "org has exceeded limited_write plan"},
    "3 partial": {
        "error": "partial write of line protocol occurred",
        "data": [
            {"original_line": "gpu v=", "line_number": 2, "error_message": "no value"},
            {
                "original_line": "gpu v=1u",
                "line_number": 5,
                "error_message": "invalid column type for column 'v', expected iox::column_type::field"
                "::float, got iox::column_type::field::uinteger",
            },
        ],
    },
    "3 token": {"error": "the request was not authenticated"},
}


@pytest.mark.parametrize(
    ("status", "body", "move", "refused"),
    [
        (204, "", WriteAction.ON, {}),
        (200, "", WriteAction.ON, {}),
        (422, "2 partial", WriteAction.ON, {"beyond_retention": 4}),
        (422, "2 type", WriteAction.ON, {"field_type": 1}),
        (400, "3 partial", WriteAction.ON, {"unparsable": 2}),
        (401, "2 token", WriteAction.FIX, {}),
        (401, "3 token", WriteAction.FIX, {}),
        (403, "2 token", WriteAction.FIX, {}),
        (404, "2 bucket", WriteAction.FIX, {}),
        (413, "2 large", WriteAction.SPLIT, {}),
        (429, "2 limit", WriteAction.WAIT, {}),
        (503, "", WriteAction.WAIT, {}),
        (500, "", WriteAction.WAIT, {}),
        (502, "<html>Bad Gateway</html>", WriteAction.WAIT, {}),
        (504, "", WriteAction.WAIT, {}),
        (302, "", WriteAction.FIX, {}),
        (418, "a teapot", WriteAction.FIX, {}),
    ],
)
def test_each_answer_has_one_meaning(status: int, body: str, move: WriteAction, refused: dict[str, int]) -> None:
    text = json.dumps(BODY[body]) if body in BODY else body
    verdict = evaluate(ServerReply(status, text), 100, NOW)
    assert (verdict.action, dict(verdict.refused)) == (move, refused)
    assert verdict.problem or move is WriteAction.ON
    assert verdict.missing is (status == 404)


@pytest.mark.parametrize(
    ("header", "wait"),
    [("7", 7.0), ("Wed, 18 Nov 2026 11:07:00 GMT", 20.0), ("86400", 600.0), ("-5", None), ("soon", None), ("", None)],
)
def test_retry_after_is_seconds_or_a_date_and_has_an_end(header: str, wait: float | None) -> None:
    found = evaluate(ServerReply(429, "", header), 1, NOW).wait
    assert found == (None if wait is None else pytest.approx(wait, abs=1))


# -- The sender ----------------------------------------------------------------------------------


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[Request], Reply]], Scripted]]:
    """Start a server with scripted answers."""
    servers: list[Scripted] = []

    def start(answer: Callable[[Request], Reply]) -> Scripted:
        servers.append(Scripted(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Start = Callable[[Callable[[Request], Reply]], Scripted]


def lines(request: Request) -> list[bytes]:
    return gzip.decompress(request.body).splitlines()


def record(*texts: str) -> SpoolRecord:
    body = gzip.compress("".join(f"{text}\n" for text in texts).encode(), 1)
    return SpoolRecord("raw", len(texts), 1, 2, body)


class SenderParts:
    """A spool and its sender."""

    def __init__(self, folder: Path, url: str, **more: object) -> None:
        self.spool = Spool(folder / "spool", 1 << 20)
        config = influx_config(url, setup=False, **more)
        self.sender = SpoolSender(config, self.spool, wall=lambda: NOW, dice=Middling())

    def close(self) -> None:
        self.sender.stop()
        self.spool.close()


def test_one_bad_line_of_a_refused_body_is_found_by_halves(tmp_path: Path, scripted: Start) -> None:
    stored: set[bytes] = set()

    def answer(request: Request) -> Reply:
        if b"bad v=" in lines(request):
            return Reply(400, json.dumps(BODY["2 bad"]))
        stored.update(lines(request))
        return Reply()

    parts = SenderParts(tmp_path, scripted(answer).url)
    texts = [f"gpu,n={n} v=1 5" for n in range(20)]
    parts.spool.append([record(*texts[:13], "bad v=", *texts[13:])])
    assert parts.sender.step() == 0.0
    assert stored == {text.encode() for text in texts}
    assert parts.sender.metrics.delivered == 20
    assert parts.sender.metrics.refused == {"unparsable": 1}
    assert parts.spool.points == 0
    parts.close()


def test_413_is_split_until_it_fits(tmp_path: Path, scripted: Start) -> None:
    stored: list[bytes] = []

    def answer(request: Request) -> Reply:
        if len(lines(request)) > 3:
            return Reply(413, json.dumps(BODY["2 large"]))
        stored.extend(lines(request))
        return Reply()

    parts = SenderParts(tmp_path, scripted(answer).url)
    texts = [f"gpu,n={n} v=1 5" for n in range(20)]
    parts.spool.append([record(*texts)])
    assert parts.sender.step() == 0.0
    assert stored == [text.encode() for text in texts]
    parts.close()


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (Reply(429, "", {"Retry-After": "9"}), 9.0),
        (Reply(503, "", {"Retry-After": "3"}), 3.0),
        (Reply(503), 1.0),
        (Reply(500, "oops"), 1.0),
        (Reply(401, json.dumps(BODY["2 token"])), 30.0),
        (Reply(404, json.dumps(BODY["2 bucket"])), 30.0),
    ],
)
def test_what_can_not_be_taken_now_stays_and_comes_again(
    tmp_path: Path, scripted: Start, reply: Reply, wait: float
) -> None:
    server = scripted(lambda _: reply)
    parts = SenderParts(tmp_path, server.url)
    parts.spool.append([record("gpu v=1 5")])
    assert parts.sender.step() == pytest.approx(wait)
    assert parts.spool.points == 1
    assert parts.sender.problem
    server.answer = lambda _: Reply()
    assert parts.sender.step() == 0.0
    assert parts.spool.points == 0
    assert parts.sender.problem == ""
    assert parts.sender.metrics.failures == 1
    parts.close()


def test_a_request_that_breaks_the_server_is_given_up_when_the_next_one_does_not(
    tmp_path: Path, scripted: Start
) -> None:
    server = scripted(lambda _: Reply(500, "panic"))
    parts = SenderParts(tmp_path, server.url)
    parts.spool.append([record("poison v=1 5", "poison v=2 5"), record("gpu v=1 5")])
    for _ in range(HOPELESS + 3):
        assert parts.sender.step() > 0
    assert parts.spool.points == 3  # the next one fails as well: it is the server
    server.answer = lambda request: Reply(500) if b"poison" in lines(request)[0] else Reply()
    while parts.spool.points:
        parts.sender.step()
    assert parts.sender.metrics.refused == {"server_error": 2}
    assert parts.sender.metrics.delivered == 1
    parts.close()


def test_a_request_is_not_given_up_for_a_server_that_asks_to_wait(tmp_path: Path, scripted: Start) -> None:
    head = iter([Reply(500, "panic")] * HOPELESS + [Reply(503)])
    server = scripted(lambda request: next(head, Reply()) if b"head" in lines(request)[0] else Reply())
    parts = SenderParts(tmp_path, server.url)
    parts.spool.append([record("head v=1 5"), record("gpu v=1 5")])
    for _ in range(HOPELESS):
        assert parts.sender.step() > 0
    while parts.spool.points:
        parts.sender.step()
    assert parts.sender.metrics.refused == {}
    assert parts.sender.metrics.delivered == 2
    parts.close()


def test_a_server_that_fails_now_and_then_costs_no_point(tmp_path: Path, scripted: Start) -> None:
    asked = 0

    def answer(_: Request) -> Reply:
        nonlocal asked
        asked += 1
        return Reply() if asked % HOPELESS == 0 else Reply(500, "panic")

    parts = SenderParts(tmp_path, scripted(answer).url)
    parts.spool.append([record(f"gpu,n={n} v=1 5") for n in range(4)])
    for _ in range(4 * HOPELESS):
        parts.sender.step()
    assert parts.sender.metrics.refused == {}
    assert parts.sender.metrics.delivered == 4
    parts.close()


def test_a_server_that_has_too_much_to_do_is_waited_for(tmp_path: Path, scripted: Start) -> None:
    server = scripted(lambda request: Reply(500, "timeout") if b"head" in lines(request)[0] else Reply())
    parts = SenderParts(tmp_path, server.url)
    parts.spool.append([record("head v=1 5"), record("gpu v=1 5")])
    for _ in range(3 * HOPELESS):
        assert parts.sender.step() > 0
    assert parts.spool.points == 2
    assert parts.sender.metrics.refused == {}
    parts.close()


def test_a_server_that_does_not_answer_in_time_costs_one_wait(tmp_path: Path, scripted: Start) -> None:
    import threading

    gate = threading.Event()

    def answer(_: Request) -> Reply:
        gate.wait(10)
        return Reply()

    parts = SenderParts(tmp_path, scripted(answer).url, timeout_seconds=0.2)
    parts.spool.append([record("gpu v=1 5")])
    assert parts.sender.step() == 1.0
    assert "no answer within 0.2 s" in parts.sender.problem
    gate.set()
    assert parts.spool.points == 1
    parts.close()


def test_nobody_there_is_said_with_the_address(tmp_path: Path) -> None:
    config = influx_config(f"http://127.0.0.1:{free_port()}")
    with InfluxClient(config) as client, pytest.raises(UnreachableError, match=r"127.0.0.1.*nothing listens there"):
        client.server()
    with InfluxClient(config) as client, pytest.raises(StoreError, match="Start the server"):
        prepare(client, lambda _: None)


# -- 2.x and 3.x ---------------------------------------------------------------------------------


def test_v2_writes_go_to_a_bucket_with_a_token(tmp_path: Path, scripted: Start) -> None:
    server = scripted(lambda _: Reply())
    (tmp_path / "token").write_text("abc==\n")
    config = influx_config(server.url, api=InfluxApi.V2, org="ours", database="kw", token_file=tmp_path / "token")
    with InfluxClient(config) as client:
        client.write("rollup_1m", gzip.compress(b"x"))
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v2/write")
    assert request.query == {"org": "ours", "bucket": "kw/rollup_1m", "precision": "ms"}
    assert request.headers["Authorization"] == "Token abc=="
    assert request.headers["Content-Encoding"] == "gzip"


class Two:
    """A server of 2.x, as far as setting it up goes."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, object]] = {}
        self.mappings: list[dict[str, object]] = []

    def __call__(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/ping":
                return Reply(204, "", {"X-Influxdb-Build": "OSS", "X-Influxdb-Version": "v2.7.11"})
            case "GET", "/api/v2/orgs":
                known = [{"id": "0a", "name": "ours"}] if request.query["org"] == "ours" else []
                return Reply(200, json.dumps({"orgs": known}))
            case "GET", "/api/v2/buckets":
                found = self.buckets.get(request.query["name"])
                return Reply(200, json.dumps({"buckets": [found] if found else []}))
            case "POST", "/api/v2/buckets":
                body = json.loads(request.body)
                self.buckets[body["name"]] = {"id": f"b{len(self.buckets)}", **body}
                return Reply(201, json.dumps(self.buckets[body["name"]]))
            case "PATCH", path:
                body = json.loads(request.body)
                for each in self.buckets.values():
                    if each["id"] == path.rpartition("/")[2]:
                        each.update(body)
                return Reply(200, "{}")
            case "GET", "/api/v2/dbrps":
                found_ = [each for each in self.mappings if each["retention_policy"] == request.query["rp"]]
                return Reply(200, json.dumps({"content": found_}))
            case "POST", "/api/v2/dbrps":
                self.mappings.append(json.loads(request.body))
                return Reply(201, json.dumps(self.mappings[-1]))
            case _:
                pass
        return Reply(404, json.dumps({"code": "not found", "message": "path not found"}))


def test_2_x_gets_its_buckets_and_their_mapping_once(scripted: Start) -> None:
    two = Two()
    config = InfluxConfig(url=scripted(two).url, api=InfluxApi.V2, org="ours")
    said: list[str] = []
    for _ in range(2):
        with InfluxClient(config) as client:
            assert prepare(client, said.append) == InfluxServer("InfluxDB", "2.7.11")
    assert list(two.buckets) == ["kilowatch/raw", "kilowatch/rollup_1m", "kilowatch/rollup_1h", "kilowatch/events"]
    assert two.buckets["kilowatch/raw"]["retentionRules"] == [{"type": "expire", "everySeconds": 7 * 86_400}]
    assert [(each["retention_policy"], each["default"]) for each in two.mappings] == [
        ("raw", True), ("rollup_1m", False), ("rollup_1h", False), ("events", False),
    ]  # fmt: skip
    assert len(said) == 8
    wrong = InfluxConfig(url=config.url, api=InfluxApi.V2, org="theirs")
    with InfluxClient(wrong) as client, pytest.raises(StoreError, match="no organisation 'theirs'"):
        prepare(client, said.append)


def test_3_x_needs_no_set_up(scripted: Start) -> None:
    server = scripted(  # names of headers in small letters, as 3.x and some proxies write them
        lambda _: Reply(200, "{}", {"x-influxdb-version": "3.10.1", "x-influxdb-build": "Core"})
    )
    said: list[str] = []
    with InfluxClient(InfluxConfig(url=server.url)) as client:
        assert prepare(client, said.append).major == 3
    assert "first write" in said[0]
