"""Tokens over HTTP: what each scope permits, who signs, when a token ends, what is shown without one."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from aggregator.access.guests import TRIES
from aggregator.access.private_fields import PRIVATE, public_json, public_page
from aggregator.access.tokens import AccessScope, TokenRegister, make, read, write
from aggregator.assembly.http_server import listening, make_app
from aggregator.http.auth import AccessGuard
from aggregator.http.config import HttpConfig
from aggregator.http.errors import RequestError
from aggregator.http.operation import Operation
from aggregator.http.operations import OPERATIONS
from aggregator.store.protocol import Batch
from aggregator.web.frame import PAGES
from alerts.message.card import card_of
from alerts.message.page import Links
from api.alerts import Alert, AlertState, Matcher, Severity
from api.evidence import EvidenceReadings, EvidenceReply
from api.fleet import StoredEvent
from telemetry.devices import Event
from tests.aggregator.fake_view import START, FakePost, FakeView, inventory
from tests.aggregator.http_client import Door, add_token, bearer, door, small_cluster
from tests.aggregator.test_http_alerts import SILENCE, hot
from tests.kit.waiting import within

OPEN = "0.0.0.0:0"
PLACES = {
    "incidents/{key}": "incidents/none",
    "silences/{id}": "silences/none",
    "channels/{name}": "channels/none",
    "nodes/{node}": "nodes/none",
}
SCOPES = [*AccessScope, None]


def example(op: Operation) -> str:
    """Return a path of an operation, about something that is not there."""
    path = op.path
    for pattern, place in PLACES.items():
        path = path.replace(pattern, place)
    return path.replace("{", "").replace("}", "")


async def send(client: Door, op: Operation, headers: dict[str, str]) -> int:
    """Return the status of an operation's answer."""
    body = None if op.method == "get" else {}
    async with client.session.request(op.method, client.url + example(op), json=body, headers=headers) as answer:
        return answer.status


def test_no_operation_can_be_declared_without_its_scope() -> None:
    with pytest.raises(TypeError, match="scope"):
        Operation("/api/v1/new", OPERATIONS[0].handler, "new", "Something new.")  # type: ignore[call-arg]
    free = {op.id for op in OPERATIONS if op.scope is None}
    assert free == {"healthz", "readyz", "evidencePicture"}  # the picture: by its signature
    assert {op.id for op in OPERATIONS if op.method != "get" and op.scope is AccessScope.READ} == {
        "planPower",
        "fitPower",
        "capPower",
    }


@pytest.mark.parametrize("listen", ["127.0.0.1:0", OPEN], ids=["loopback", "everywhere"])
async def test_each_operation_is_open_to_its_scope_alone(tmp_path: Path, listen: str) -> None:
    """401 without a token, 403 without the scope, and neither with it."""
    path = tmp_path / "tokens.json"
    secrets = {scope: add_token(path, scope, scope) for scope in AccessScope}
    config = HttpConfig(listen=listen, tokens_file=path)
    async with door(await small_cluster(), config) as client:
        for op in OPERATIONS:
            for scope in SCOPES:
                found = await send(client, op, {} if scope is None else bearer(secrets[scope]))
                if scope is None:
                    free = op.scope is None or (op.scope == "read" and listen != OPEN)
                    refused = not free
                    assert (found == 401) is refused, (op.id, found)
                else:
                    allowed = op.scope in {None, scope} or scope == "admin"
                    assert (found == 403) is not allowed, (op.id, scope, found)
                assert found != 500


@pytest.mark.parametrize("listen", ["127.0.0.1:0", OPEN], ids=["loopback", "everywhere"])
async def test_the_token_of_a_user_is_good_for_jobs_alone(tmp_path: Path, listen: str) -> None:
    """Whatever else is asked is 403, also where somebody wrote a scope beside the user."""
    path = tmp_path / "tokens.json"
    secrets = [add_token(path, "ada", user="ada"), add_token(path, "eve", AccessScope.ADMIN, user="ada")]
    config = HttpConfig(listen=listen, tokens_file=path)
    assert {op.id for op in OPERATIONS if op.own} == {"jobs", "job"}
    async with door(await small_cluster(), config) as client:
        for secret in secrets:
            for op in OPERATIONS:
                found = await send(client, op, bearer(secret))
                assert (found == 403) is not (op.own or op.scope is None), (op.id, found)
            for page in ("/metrics", "/metrics/node/n1", "/api/v1/nothing"):
                assert (await client.text(page, headers=bearer(secret)))[0] in {403, 404}, page
            for route in PAGES:  # its own jobs too: a page shows whose the others are
                page = re.sub(r"\{.*?\}", "n1", route)
                for method in ("GET", "HEAD"):
                    found = await client.session.request(method, client.url + page, headers=bearer(secret))
                    assert found.status == 403, (method, page)
            body = (await client.json("/api/v1/nodes", headers=bearer(secret)))[1]
            assert "sees the jobs of the user 'ada' alone" in body["error"]["what"]


async def test_a_lacking_scope_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = add_token(path, "grafana", AccessScope.READ)
    async with door(FakeView(), HttpConfig(listen=OPEN, tokens_file=path)) as client:
        url = f"{client.url}/api/v1/power/reload"
        async with client.session.post(url, json={}, headers=bearer(secret)) as answer:
            fault = (await answer.json())["error"]
        assert fault["what"] == "the token 'grafana' does not have the scope 'admin', it has: read"
        assert "kilowatch token add NAME --scope admin" in fault["cure"]
        page = (await client.text("/metrics", headers=client.bearer))[1]
    assert 'kilowatch_aggregator_http_refused_total{reason="scope"} 1\n' in page


async def test_tokens_are_read_again_while_it_runs(tmp_path: Path) -> None:
    """A new one counts at once, a revoked one no more; a file that is broken changes nothing."""
    path = tmp_path / "tokens.json"
    async with door(await small_cluster(), HttpConfig(listen=OPEN, tokens_file=path)) as client:

        async def status(secret: str) -> int:
            return (await client.json("/api/v1/nodes", headers=bearer(secret)))[0]

        late = add_token(path, "late", AccessScope.READ)
        assert await status(late) == 200
        before = path.read_bytes()
        path.write_text("{")
        assert await status(late) == 200
        path.write_bytes(before)
        assert await status(late) == 200
        write(path, [token for token in read(path) if token.name != "late"])
        assert await status(late) == 401
        assert await status(client.secret) == 200
        path.unlink()
        assert await status(client.secret) == 401


async def test_an_expired_token_is_named_as_such(tmp_path: Path) -> None:
    path, now = tmp_path / "tokens.json", time.time_ns()
    old = add_token(path, "old", AccessScope.READ, now=now - 2, expires=now - 1)
    good = add_token(path, "good", AccessScope.READ, now=now, expires=now + 10**13)
    async with door(FakeView(), HttpConfig(listen=OPEN, tokens_file=path)) as client:
        status, body = await client.json("/api/v1/nodes", headers=bearer(old))
        assert (status, body["error"]["what"]) == (401, "the token 'old' has expired")
        assert (await client.json("/api/v1/nodes", headers=bearer(good)))[0] == 200


async def test_guesses_are_counted_and_slowed_but_keep_out_nobody() -> None:
    """An address may belong to many users: a right token is always accepted from it."""
    async with door(FakeView(), HttpConfig(listen=OPEN)) as client:

        async def status(secret: str) -> int:
            return (await client.json("/api/v1/nodes", headers=bearer(secret)))[0]

        found = [await status(f"guess {number}") for number in range(int(TRIES) + 5)]
        assert found[: int(TRIES) - 1] == [401] * (int(TRIES) - 1)
        assert found[-1] == 429
        assert await status(client.secret) == 200
        _, _, headers = await client.text("/api/v1/nodes", headers=bearer("guess"))
        assert int(headers["Retry-After"]) >= 1
        assert (await client.json("/healthz"))[0] == 200


def test_a_proxy_whose_users_guess_keeps_out_nobody_behind_it(tmp_path: Path) -> None:
    secret = add_token(tmp_path / "tokens.json", "oncall", AccessScope.READ)
    guard = AccessGuard(HttpConfig(listen=OPEN), TokenRegister(tmp_path / "tokens.json"), {})
    faults = []
    for number in range(int(TRIES) + 5):
        with pytest.raises(RequestError) as caught:
            guard._token(f"guess {number}", "203.0.113.9")
        faults.append(caught.value.status)
    assert (faults[0], faults[-1]) == (401, 429)
    assert guard._token(secret, "203.0.113.9").name == "oncall"


async def test_the_token_signs_and_a_name_in_the_body_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = add_token(path, "oncall", AccessScope.ACK, AccessScope.READ)
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=path)
    async with hot(tmp_path / "hot", config) as client:
        (incident,) = (await client.get("/api/v1/incidents"))["incidents"]
        ack = f"/api/v1/incidents/{incident['key'].replace('/', '%2F')}/ack"
        for body, who in (
            ({}, "oncall"),
            ({"who": "oncall"}, "oncall"),
            ({"who": "mia"}, "oncall (mia)"),
            ({"who": "root\x1b[2J (admin)\n"}, "oncall (root\x1b[2J (admin))"),
        ):
            status, answer = await client.send("POST", ack, body, bearer(secret))
            assert (status, answer["incident"]["acknowledged"]["who"]) == (200, who)
        status, _ = await client.send("POST", "/api/v1/silences", SILENCE, bearer(secret))
        assert status == 403


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"for": "7d"}, 200),
        ({"for": "8d"}, 403),
        ({"ends": "2027-11-01T00:00:00Z"}, 403),
        ({"for": "365d", "maintenance": True}, 403),
        ({"starts": "2090-01-01T08:00:00Z", "for": "4h"}, 200),
    ],
)
async def test_a_long_silence_needs_admin_and_is_shown(tmp_path: Path, asked: dict[str, Any], status: int) -> None:
    """A silence of every page for a year is no slip of the hand."""
    path = tmp_path / "tokens.json"
    secret = add_token(path, "bot", AccessScope.SILENCE)
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=path)
    asked = {"matchers": ["severity=page"], "why": "quiet", **asked}
    async with hot(tmp_path / "hot", config) as client:
        found, body = await client.send("POST", "/api/v1/silences", asked, bearer(secret))
        assert found == status
        if status == 403:
            assert "more than 7 d" in body["error"]["what"]
            assert (await client.get("/api/v1/silences"))["silences"] == []
        if "ends" not in asked:
            assert (await client.send("POST", "/api/v1/silences", asked))[0] == 200
            listed = (await client.get("/api/v1/silences"))["silences"]
            assert "ann" in {one["who"] for one in listed}


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
async def test_who_comes_through_a_proxy_is_not_on_this_machine(name: str) -> None:
    async with door(await small_cluster()) as client:
        assert (await client.json("/api/v1/nodes", headers={name: "10.0.0.1"}))[0] == 401
        headers = {name: "10.0.0.1", **client.bearer}
        assert (await client.json("/api/v1/nodes", headers=headers))[0] == 200


async def test_reading_without_a_token_is_a_setting() -> None:
    for listen, setting, status in (
        ("127.0.0.1:0", None, 200),
        ("127.0.0.1:0", False, 401),
        (OPEN, None, 401),
        (OPEN, True, 200),
    ):
        config = HttpConfig(listen=listen, anonymous_read=setting)
        async with door(await small_cluster(), config) as client:
            assert (await client.json("/api/v1/nodes"))[0] == status, (listen, setting)
            async with client.session.post(f"{client.url}/api/v1/silences", json=SILENCE) as answer:
                assert answer.status == 401
            basic = {"Authorization": "Basic YW5uOnNlY3JldA=="}  # for a proxy before it
            assert (await client.json("/api/v1/nodes", headers=basic))[0] == status
            if setting:  # a name that points here is no way in
                assert (await client.json("/api/v1/nodes", headers={"Host": "evil.example"}))[0] == 421
    make_app(FakeView(), HttpConfig(listen=OPEN, anonymous_read=True))  # without any token


WORDS = ("mallory", "eve, +49 30 1234", "train-llm", "acct-42", "/opt/secret", "pythonsecret", "because-of-it")


async def private() -> FakeView:
    """A cluster in which every text that can tell of people does."""
    view = await small_cluster()
    view.add(
        msgspec.structs.replace(
            inventory("n1"), host={"job": "train-llm", "user": "mallory", "account": "acct-42", "rack": "r1"}
        )
    )
    labels = {
        "job": "train-llm", "user": "mallory", "process": "pythonsecret", "account": "acct-42",
        "command": "/opt/secret --all", "rack": "r1",
    }  # fmt: skip
    view.raised = [
        Alert(
            key="a/n1/GPU-n1-0",
            rule="a",
            state=AlertState.FIRING,
            severity=Severity.PAGE,
            node="n1",
            gpu="GPU-n1-0",
            labels=labels,
            owner="eve, +49 30 1234",
            summary="train-llm of mallory fails on n1",
            description="Xid 13, pid=77, name=pythonsecret (pythonsecret) ran /opt/secret --all",
        )
    ]
    event = Event(
        id="7-1",
        node="n1",
        at=START,
        kind="xid",
        gpu="GPU-n1-0",
        message="NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=pythonsecret, Ch 1",
        data={"xid": 31, "process": "pythonsecret", "line": "pid=77, name=pythonsecret"},
    )
    view.happened = [event]
    view.memory.write(Batch(events=[StoredEvent(event, START)]))
    now, wall = view.now(), view.wall()
    manager = view.pipeline.manager
    manager.receive(view.raised, now, wall)
    manager.silence(
        [Matcher("user", "mallory"), Matcher("node", "n2")],
        who="mallory",
        why="because-of-it",
        starts=None,
        ends=wall + 10**12,
        maintenance=False,
        now=now,
        wall_ns=wall,
    )
    manager.acknowledge("a/n1/GPU-n1-0", who="mallory", why="because-of-it", until=None, now=now, wall_ns=wall)
    incident = manager.incident("a/n1/GPU-n1-0")
    beside = msgspec.structs.replace(view.raised[0], key="b", summary="pythonsecret of train-llm", since=START)
    lead = msgspec.structs.replace(view.raised[0], since=START)
    card = card_of(
        lead,
        incident,
        None,
        Links(),
        events=[event],
        alerts=[beside],
        readings=EvidenceReadings(),
        history=None,
        missing={},
        now=wall,
    )
    assert card.lines
    assert card.nearby
    assert isinstance(view.delivery, FakePost)
    view.delivery.cards = {incident.key: EvidenceReply(at=wall, incident=incident.key, cards=(card,))}
    return view


async def pages(client: Door, headers: dict[str, str]) -> str:
    """Return all that can be read, and the first messages of the stream."""
    found = []
    for op in OPERATIONS:
        if op.method != "get" or op.id == "stream":
            continue
        path = example(op).replace("node/node", "node/n1").replace("dcgm/node", "dcgm/n1")
        path = path.replace("nodes/none", "nodes/n1").replace("gpus/uuid", "gpus/GPU-n1-0")
        path = path.replace("incidents/none", "incidents/a%2Fn1%2FGPU-n1-0")
        query = {"/api/v1/history": "?metric=gpu_power_watts&gpu=GPU-n1-0&from=-1h"}.get(op.path, "")
        status, body, _ = await client.text(path + query, headers=headers)
        refused = op.id in {"job", "nodeJobs"} and not headers  # whether there is one would tell of its user
        assert status in ({401} if refused else {200, 404, 503}), (path, body)
        found.append(body)
    async with client.session.ws_connect(f"{client.url}/api/v1/stream", headers=headers) as socket:
        await socket.send_str(json.dumps({"alerts": True, "events": True}))
        kinds: set[str] = set()
        async with within():
            while not {"alerts", "events"} <= kinds:
                text = (await socket.receive()).data
                kinds.add(json.loads(text)["type"])
                found.append(text)
    return "\n".join(found)


async def test_anonymous_reading_elsewhere_shows_nothing_of_people() -> None:
    """Everything that can be read is read twice: with a token, which shows all, and without."""
    config = HttpConfig(listen=OPEN, anonymous_read=True)
    async with door(await private(), config) as client:
        shown = await pages(client, client.bearer)
        hidden = await pages(client, {})
    for word in WORDS:
        assert word in shown, word
        assert word not in hidden, word
    assert "GPU-n1-0" in hidden
    assert '"rack":"r1"' in hidden
    assert "Xid (PCI:0000:01:00): 31, pid=…, name=…" in hidden


def test_what_is_hidden_keeps_its_type_and_what_is_not_stays() -> None:
    body = {
        "user": "ann",
        "gpu": 3,
        "output": "4711 bob 3:12:00",
        "list": [{"job": ["x"], "who": {"a": 1}, "pid": 7}],
        "text": "by ann",
    }
    found = json.loads(public_json(json.dumps(body).encode()))
    assert found == {"user": "", "gpu": 3, "output": "", "list": [{"job": [], "who": {}, "pid": 7}], "text": "by …"}
    owned = {"owner": "facility", "remediation": "facility", "text": "call the facility"}
    assert json.loads(public_json(json.dumps(owned).encode())) == owned | {"owner": ""}
    page = b'# HELP a job="x"\na{job="x"} 1\na{job=""} 2\nb{n="job=\\"x\\"",user="u"} 3\nb{node="n"} 4\nc 5\n'
    assert public_page(page) == b'# HELP a job="x"\na{job=""} 2\nb{node="n"} 4\nc 5\n'
    assert all(PRIVATE.values())


@pytest.mark.parametrize(
    ("user", "job"), [("a", "12"), ("12", "a"), ("on", "3"), ("of", "7"), ("bo", "4711"), ("1", "1")]
)
def test_a_name_as_short_as_a_word_is_hidden_where_texts_name_somebody_alone(user: str, job: str) -> None:
    """And nowhere else: a user `a` and a job `12` would blank every sentence."""
    told = [
        f"job {job} of {user} has GPUs allocated and does nothing with any of them",
        f"GPU 3 of n1 slows job {job} of {user} down: 12 °C where 1 is expected",
        f"Tell the owner of job {job} ({user}, account {user}): a fault of 12 GPUs on n1",
        f"python (pid 77) of {user}, of slurm {job}, which does not have this GPU",
        f"a process on n1 belongs to no allocation: {user}",
        f"Acknowledged by {user}, left over from job {job}, which has ended",
        f"the user '{user}' alone",
    ]
    plain = ["a fault of a GPU on 12 of 12 nodes: 3 of 4711 W, 1 of 7 links", "GPU 1 of n1 is on a bus of 12 V"]
    body = {"rows": [{"user": user, "job_id": job, "summary": text} for text in told], "plain": plain}
    found = json.loads(public_json(json.dumps(body).encode()))
    shown = [row["summary"] for row in found["rows"]]
    assert shown == [
        "job … of … has GPUs allocated and does nothing with any of them",
        "GPU 3 of n1 slows job … of … down: 12 °C where 1 is expected",
        "Tell the owner of job … (…, account …): a fault of 12 GPUs on n1",
        "python (pid 77) of …, of slurm …, which does not have this GPU",
        "a process on n1 belongs to no allocation: …",
        "Acknowledged by …, left over from job …, which has ended",
        "the user '…' alone",
    ]
    assert found["plain"] == plain


def test_a_register_compares_with_every_token() -> None:
    """Also one of the same name, and one that comes later."""
    first, one = make("a", [AccessScope.READ], 0)
    second, two = make("b", [AccessScope.ADMIN], 0)
    register = TokenRegister(None, [first])
    assert register.find(one) is first
    assert register.find(two) is None
    register.add(second)
    assert register.find(two) is second
    assert register.find("") is None
    assert register.find("\udcff") is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"tokens": [{"name": "a"}]}', '{"tokens": [], "more": 1}', "\xff", '{"tokens": [' + "1," * 9]
)
async def test_no_token_of_a_broken_file_counts_until_it_is_written_anew(tmp_path: Path, content: str) -> None:
    """The listener starts, closed to those who have a token and open to nobody more: it is never one without
    tokens, which would be refused at the start, and the pager with it."""
    path = tmp_path / "tokens.json"
    secret = add_token(path, "bob", AccessScope.ADMIN)
    whole = path.read_bytes()
    path.write_text(content, "latin-1")
    async with (
        listening(await small_cluster(), HttpConfig(listen=OPEN, tokens_file=path)) as (_, port),
        aiohttp.ClientSession() as session,
    ):

        async def status(headers: dict[str, str]) -> int:
            url = f"http://127.0.0.1:{port}/api/v1/nodes"
            async with session.get(url, headers=headers) as answer:
                return answer.status

        assert await status(bearer(secret)) == 401
        assert await status({}) == 401
        path.write_bytes(whole)
        assert await status(bearer(secret)) == 200
        assert await status({}) == 401


async def test_a_tokens_file_that_others_may_write_opens_nothing(tmp_path: Path) -> None:
    """Others could make tokens in it. Where they may only since the start, those that were read before stay in force."""
    path = tmp_path / "tokens.json"
    secrets = [add_token(path, "bob", AccessScope.ADMIN)]
    path.chmod(0o620)
    async with (
        listening(await small_cluster(), HttpConfig(listen=OPEN, tokens_file=path)) as (_, port),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def opened() -> list[bool]:
            found = []
            for secret in secrets:
                async with session.get("/api/v1/nodes", headers=bearer(secret)) as answer:
                    found.append(answer.status == 200)
            return found

        assert await opened() == [False]
        path.chmod(0o600)
        assert await opened() == [True]
        secrets.append(add_token(path, "eve", AccessScope.ADMIN))
        path.chmod(0o602)
        assert await opened() == [True, False]


async def test_a_broken_tokens_file_leaves_loopback_as_the_settings_have_it(tmp_path: Path) -> None:
    """Reading needs no token there unless the settings say so; changing something always does."""
    path = tmp_path / "tokens.json"
    secret = add_token(path, "bob", AccessScope.ADMIN)
    path.write_text("{")
    for read_by_all, expected in ((None, 200), (False, 401)):
        config = HttpConfig(listen="127.0.0.1:0", tokens_file=path, anonymous_read=read_by_all)
        async with (
            listening(await small_cluster(), config) as (_, port),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        ):
            async with session.get("/api/v1/nodes") as answer:
                assert answer.status == expected
            for headers in ({}, bearer(secret)):
                async with session.post("/api/v1/silences", json={}, headers=headers) as answer:
                    assert answer.status == 401
