"""What each channel sends, and what it makes of each answer: one contract for all of them."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from alerts.delivery import outbox
from alerts.message.page import Links, page_of
from alerts.notice import Notice
from alerts.notifiers import KINDS, channel
from alerts.notifiers.channel import Message
from alerts.notifiers.http_sender import open_sender
from alerts.notifiers.pagerduty import BODY, encoded, event
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from alerts.notifiers.slack import Slack
from api.alerts import Action, AlertState
from tests.alerts.alertmanagers import Hook
from tests.alerts.notices import MINUTE, NOON, alert, incident, notice
from tests.alerts.pager import Pager

LINKS = Links(
    cluster="hall-1",
    external="https://kilowatch.example",
    runbook="https://docs.example/runbook",
    dashboard="https://grafana.example/d/gpu?var-node={node}&var-gpu={gpu}&from={from}&to={to}",
)
SECRET = "s3cret-0123456789"


def settings(kind: str, url: str, folder: Path) -> dict[str, Any]:
    """A channel of each kind that leads to a URL."""
    file = folder / "secret"
    secret = SECRET
    ways: dict[str, dict[str, Any]] = {
        "pagerduty": {"key_file": str(file), "url": url},
        "alertmanager": {"urls": [url.removesuffix("/hook")]},
        "webhook": {"url": url, "token_file": str(file)},
        "slack": {"url_file": str(file)},
        "ntfy": {"url": url},
        "apprise": {"urls_file": str(file), "timeout_seconds": 2},
    }
    if kind == "slack":
        secret = url
    if kind == "apprise":
        secret = f"# one line a service\njson{url.removeprefix('http')}\n"
    file.write_text(secret)
    return {"type": kind, **ways[kind]}


def extra(kind: str) -> None:
    """Skip Apprise where it is not installed; and load it without its warnings about Python 3.13."""
    if kind == "apprise":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip("apprise").Apprise().add("json://localhost")


@asynccontextmanager
async def told(kind: str, folder: Path) -> AsyncIterator[tuple[Hook, Callable[[Notice], Any]]]:
    """Open a receiver, and the channel that notifies it."""
    hook = Hook()
    found = channel("c", settings(kind, hook.url, folder))
    async with hook.listening(), open_sender() as sender:

        async def send(what: Notice) -> Answer:
            return await outbox.send("c", found, what, LINKS, NOON + 3 * MINUTE, sender)

        yield hook, send


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_tells_and_knows_that_it_arrived(kind: str, tmp_path: Path) -> None:
    extra(kind)
    async with told(kind, tmp_path) as (hook, send):
        for action in Action:
            assert isinstance(await send(notice(action)), Delivered), action
        assert len(hook.bodies) == len(Action)
        assert "dgx-01" in json.dumps(hook.bodies)


def full() -> Notice:
    """A page about two GPUs of which all is known that can be."""
    lead, other = (
        msgspec.structs.replace(alert(gpu=gpu, labels={"process": "python (pid 4242)"}), limit_text="none")
        for gpu in (3, 5)
    )
    return notice(about=incident("gpu_lost-1", alerts=[lead, other]))


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_says_all_that_whoever_is_woken_needs(kind: str, tmp_path: Path) -> None:
    """In the bytes that arrive: what, where, since when, how bad, who, what to do, where to look."""
    extra(kind)
    async with told(kind, tmp_path) as (hook, send):
        assert isinstance(await send(full()), Delivered)
    said = json.dumps(hook.bodies, ensure_ascii=False).replace("\\", "")
    for part in (
        "dgx-01 GPU 3 fell off the bus",
        "gpu_lost",
        "r12",
        "GPU-00000003-0000-0000-0000-000000000003",
        "1652622032001",
        "3B:00.0",
        "H100",
        "PDU-A-12,PDU-B-12",
        "XID 79",
        "none",
        "4711",
        "python (pid 4242)",
        "Drain the node",
        "https://docs.example/runbook#gpu-lost",
        "https://grafana.example/d/gpu?var-node=dgx-01",
        "kilowatch silence rule=gpu_lost node=dgx-01",
    ):
        assert part.replace("_", "") in said.replace("_", ""), part  # Markdown escapes a `_`
    assert "2026-08-01 12:00:00 UTC" in said or "2026-08-01T12:00:00" in said
    if kind in {"webhook", "alertmanager"}:  # theirs is a list, and they count
        assert "GPU-00000005-0000-0000-0000-000000000005" in said
    else:
        assert "2 alerts fire on 1 node" in said
        assert "kilowatch ack gpu_lost-1" in said.replace("\\_", "_")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "apprise"])  # it only says "failed"
@pytest.mark.parametrize(
    ("status", "more", "means"),
    [
        (500, {}, Later),
        (502, {}, Later),
        (429, {"Retry-After": "7"}, Later),
        (408, {}, Later),
        (400, {}, Refused),
        (403, {}, Refused),
        (404, {}, Refused),
        (302, {"Location": "https://elsewhere.example/login?token=abc"}, Refused),
    ],
)
async def test_each_kind_tells_apart_not_now_and_never(
    kind: str, status: int, more: dict[str, str], means: type[Answer], tmp_path: Path
) -> None:
    async with told(kind, tmp_path) as (hook, send):
        hook.status, hook.more, hook.answer = status, more, "go\x1b[31m away\x07"
        answer = await send(notice())
        assert isinstance(answer, means)
        assert not isinstance(answer, Delivered)
        assert len(hook.headers) == 1, "nothing follows a redirect"
        assert answer.reason.isprintable()
        assert str(status) in answer.reason
        if status == 429 and isinstance(answer, Later):
            assert answer.after == 7
        if status == 302:
            assert "elsewhere.example" in answer.reason
            assert "abc" not in answer.reason


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_takes_a_receiver_that_is_not_there_for_not_now(kind: str, tmp_path: Path) -> None:
    extra(kind)
    found = channel("c", settings(kind, "http://127.0.0.1:9/hook", tmp_path))
    async with open_sender() as sender:
        answer = await outbox.send("c", found, notice(), LINKS, NOON, sender)
    assert isinstance(answer, Later)
    assert SECRET not in answer.reason


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"alertmanager", "ntfy"}])
async def test_each_kind_says_that_its_secret_cannot_be_read(kind: str, tmp_path: Path) -> None:
    extra(kind)
    async with told(kind, tmp_path) as (_, send):
        (tmp_path / "secret").unlink()
        answer = await send(notice())
        assert isinstance(answer, Refused)
        assert "can't be read" in answer.reason


async def test_a_secret_of_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCALL_KEY", SECRET)
    hook = Hook()
    found = channel("c", {"type": "pagerduty", "key_env": "ONCALL_KEY", "url": hook.url})
    async with hook.listening(), open_sender() as sender:
        await outbox.send("c", found, notice(), LINKS, NOON, sender)
    assert hook.bodies[0]["routing_key"] == SECRET


# -- PagerDuty -----------------------------------------------------------------------------------


def message(what: Notice) -> Message:
    """What a channel is given."""
    now = NOON + 3 * MINUTE
    return Message("c", what, page_of(what, LINKS, now), LINKS, now)


def test_a_pagerduty_event_says_all_it_can() -> None:
    body = event(message(notice()), SECRET)
    assert body["dedup_key"] == "i-1"
    incident, runbook, _ = body["links"]
    assert incident == {"href": "https://kilowatch.example/incidents/i-1", "text": "Incident"}
    assert body["client_url"] == incident["href"]
    assert runbook == {"href": "https://docs.example/runbook#gpu-lost", "text": "Runbook"}
    payload = body["payload"]
    assert payload["summary"] == "[PAGE] dgx-01 GPU 3 fell off the bus, since 12:00 UTC"
    assert payload["source"] == "dgx-01 GPU 3"
    assert payload["severity"] == "critical"
    assert payload["timestamp"] == "2026-08-01T12:00:00.000Z"
    assert (payload["component"], payload["group"], payload["class"]) == ("GPU 3", "hall-1", "gpu_lost")
    assert payload["custom_details"]["Circuits"] == "PDU-A-12,PDU-B-12"


def test_a_pagerduty_event_stays_within_its_limits() -> None:
    long = msgspec.structs.replace(incident("k" * 300), title="ü" * 5000)
    body = event(message(notice(about=long)), SECRET)
    assert len(body["dedup_key"]) == 255
    assert len(body["payload"]["summary"]) == 1024
    assert body["payload"]["summary"].endswith("…")
    body["payload"]["custom_details"]["Also"] = "x" * BODY
    raw = encoded(body)
    assert len(raw) < BODY
    assert "left out" in json.loads(raw)["payload"]["custom_details"]["Details"]


def test_two_long_keys_that_differ_late_stay_two_keys() -> None:
    keys = {event(message(notice(key="k" * 300 + end)), SECRET)["dedup_key"] for end in "ab"}
    assert len(keys) == 2


async def test_pagerduty_takes_what_we_send(tmp_path: Path) -> None:
    pager = Pager()
    found = channel("c", pager.settings(tmp_path))
    async with pager.listening(), open_sender() as sender:
        for action in (Action.TRIGGER, Action.ACKNOWLEDGE, Action.RESOLVE):
            assert isinstance(await outbox.send("c", found, notice(action), LINKS, NOON, sender), Delivered)
    assert pager.state == {"i-1": "resolved"}


# -- The webhook, as Alertmanager 0.25 wrote it to us ----------------------------------------------

WEBHOOK = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels",
                 "commonLabels", "commonAnnotations", "externalURL", "alerts"],
    "properties": {
        "version": {"const": "4"},
        "groupKey": {"type": "string"},
        "truncatedAlerts": {"type": "integer", "minimum": 0},
        "status": {"enum": ["firing", "resolved"]},
        "receiver": {"type": "string"},
        "groupLabels": {"$ref": "#/$defs/table"},
        "commonLabels": {"$ref": "#/$defs/table"},
        "commonAnnotations": {"$ref": "#/$defs/table"},
        "title": {"type": "string", "minLength": 1},
        "externalURL": {"type": "string"},
        "alerts": {"type": "array", "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["status", "labels", "annotations", "startsAt", "endsAt", "generatorURL",
                         "fingerprint"],
            "properties": {
                "status": {"enum": ["firing", "resolved"]},
                "labels": {"$ref": "#/$defs/table"},
                "annotations": {"$ref": "#/$defs/table"},
                "startsAt": {"type": "string", "format": "date-time"},
                "endsAt": {"type": "string", "format": "date-time"},
                "generatorURL": {"type": "string"},
                "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            },
        }},
    },
    "$defs": {"table": {"type": "object", "additionalProperties": {"type": "string"}}},
}  # fmt: skip


async def test_a_webhook_has_the_form_of_alertmanagers(tmp_path: Path) -> None:
    firing = alert()
    over = msgspec.structs.replace(alert(gpu=4), state=AlertState.RESOLVED, changed=NOON + MINUTE)
    async with told("webhook", tmp_path) as (hook, send):
        await send(notice(about=incident(alerts=[firing, over])))
        await send(notice(Action.RESOLVE, about=incident(alerts=[over], ended=NOON + MINUTE)))
    for body in hook.bodies:
        jsonschema.Draft202012Validator(WEBHOOK).validate(body)
    first, last = hook.bodies
    assert first["groupLabels"] == {"rule": "gpu_lost", "node": "dgx-01"}
    assert [one["endsAt"] for one in first["alerts"]] == ["0001-01-01T00:00:00Z", "2026-08-01T12:01:00.000Z"]
    assert "gpu" not in first["commonLabels"]
    assert first["commonLabels"]["node"] == "dgx-01"
    assert last["status"] == "resolved"
    assert hook.headers[0]["Authorization"] == f"Bearer {SECRET}"


# -- Slack ---------------------------------------------------------------------------------------


def test_a_slack_message_stays_within_its_limits_and_calls_nobody() -> None:
    evil = "<!channel> @here <https://evil.example|click> `rm` " + "&" * 4000
    bad = msgspec.structs.replace(alert(node="<!everyone>"), summary=evil, description=evil)
    body = Slack().body(message(notice(about=msgspec.structs.replace(incident(alerts=[bad]), title=evil))))
    whole = json.dumps(body, ensure_ascii=False)
    assert "<!" not in whole
    assert "<https://evil" not in whole
    assert "@here" not in whole
    assert len(body["text"]) <= 3000
    for block in body["attachments"][0]["blocks"]:
        assert len(block.get("fields", [])) <= 10
        for piece in [*block.get("fields", []), *([block["text"]] if "text" in block else [])]:
            assert 0 < len(piece["text"]) <= (2000 if piece in block.get("fields", []) else 3000)


# -- Apprise -------------------------------------------------------------------------------------


async def test_apprise_tells_its_services_and_a_hang_holds_nobody_up(tmp_path: Path) -> None:
    extra("apprise")
    async with told("apprise", tmp_path) as (hook, send):
        assert isinstance(await send(notice()), Delivered)
        (body,) = hook.bodies
        assert body["title"] == "[PAGE] dgx-01 GPU 3 fell off the bus, since 12:00 UTC"
        assert body["type"] == "failure"
    held: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, out: held.append(out), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    (tmp_path / "secret").write_text(f"json://127.0.0.1:{port}/")
    found = channel("c", {"type": "apprise", "urls_file": str(tmp_path / "secret"), "timeout_seconds": 0.3})
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    turning = asyncio.create_task(turn())
    async with open_sender() as sender:
        assert isinstance(await outbox.send("c", found, notice(), LINKS, NOON, sender), Later)
    turning.cancel()
    for out in held:
        out.close()
        await out.wait_closed()
    silent.close()
    assert turns > 10, "the loop went on"


# -- The sender ------------------------------------------------------------------------------------


async def test_a_secret_with_a_line_break_or_a_url_that_is_none_is_refused() -> None:
    hook = Hook()
    async with hook.listening(), open_sender() as sender:
        found = await sender.post(hook.url, b"{}", {"Authorization": "Bearer a\r\nb"}, seconds=1)
        assert isinstance(found, Refused)
        assert isinstance(await sender.post("http://[", b"{}", seconds=1), Refused)


async def test_an_answer_without_end_is_read_no_further_than_it_is_needed() -> None:
    ended = asyncio.Event()

    async def endless(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(b"HTTP/1.1 500 no\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                out.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await out.drain()
        except OSError:
            pass
        finally:
            out.close()
            ended.set()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with open_sender() as sender:
        found = await sender.post(f"http://127.0.0.1:{port}/", b"{}", seconds=5)
    await ended.wait()
    server.close()
    assert isinstance(found, Later)
    assert found.reason.startswith("HTTP 500: xxx")
    assert len(found.reason) <= 220


def test_the_registry_names_every_kind() -> None:
    assert set(KINDS) == {"pagerduty", "alertmanager", "webhook", "slack", "ntfy", "apprise"}
