"""Alerts over HTTP: what is wrong, who takes it, what is silenced, whether a channel works."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema  # type: ignore[import-untyped]
import pytest

from aggregator.assembly.http_server import make_app
from aggregator.http.config import HttpConfig
from aggregator.http.openapi import build
from aggregator.http.operations import OPERATIONS
from api.alerts import Alert
from tests.aggregator.alerting_scene import Scene
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, door
from tests.aggregator.test_http_metrics import lint, needs_promtool, samples
from tests.alerts.pager import FAILS, Pager
from tests.kit.waiting import until

DOCUMENT: dict[str, Any] = json.loads(json.dumps(build(OPERATIONS)))
WRITES = [(op.path, op.method) for op in OPERATIONS if op.method != "get"]
HOT = "hot/n1/GPU-n1-0"


class Stage(FakeView):
    """The view of a scene: its pipeline and its post are the real ones."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("default")
        self.scene = scene
        self.pipeline = scene.alerting.pipeline
        self.delivery = scene.alerting
        self.pager = Pager()

    def now(self) -> float:
        """Return the real clock, which the incident manager uses."""
        import time

        return time.monotonic()

    def wall(self) -> int:
        """Likewise."""
        import time

        return time.time_ns()

    def alerts(self) -> list[Alert]:
        """As the service."""
        return self.pipeline.alerts()


class Client:
    """Requests and their answers, each compared with the document."""

    def __init__(self, opened: Door, stage: Stage) -> None:
        self.door = opened
        self.stage = stage

    async def get(self, path: str) -> Any:
        """What stands there."""
        status, body = await self.door.json(path)
        assert status == 200, body
        return body

    async def send(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Do something; the answer must fit its schema."""
        kind = {"Content-Type": "application/json"} if body is not None else {}
        raw = None if body is None else json.dumps(body)
        async with self.door.session.request(
            method, self.door.url + path, headers={**kind, **self.door.bearer, **(headers or {})}, data=raw
        ) as answer:
            found = await answer.json()
            check(method, path, answer.status, found)
            return answer.status, found


def check(method: str, path: str, status: int, body: object) -> None:
    """Raise unless an answer is one that the document names."""
    parts = path.partition("?")[0].split("/")
    (operation,) = (
        DOCUMENT["paths"][pattern][word]
        for pattern, word in WRITES
        if word == method.lower() and fits(pattern.split("/"), parts)
    )
    assert str(status) in operation["responses"], f"{method} {path} answers {status}"
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(body)


def fits(shape: list[str], parts: list[str]) -> bool:
    """Whether a path is one of a pattern's."""
    return len(shape) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(shape, parts, strict=True))


@contextlib.asynccontextmanager
async def hot(folder: Path, config: HttpConfig | None = None) -> AsyncIterator[Client]:
    """A GPU that is too hot, its incident, one that is warm, and a pager that was called."""
    folder.mkdir(exist_ok=True)
    pager = Pager()
    scene = Scene(folder, pager.settings(folder))
    async with pager.listening(), scene.running():
        stage = Stage(scene)
        stage.pager = pager
        scene.set(93.0, 60.0)
        await until(lambda: pager.calls)
        async with door(stage, config) as opened:
            yield Client(opened, stage)


async def test_alerts_tell_their_standing_and_their_incident(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        body = await client.get("/api/v1/alerts")
        found = {one["rule"]: one for one in body["alerts"]}
        assert set(found) == {"hot", "warm"}
        (incident,) = (await client.get("/api/v1/incidents"))["incidents"]
        assert found["hot"]["incident"] == incident["key"]
        assert found["warm"]["incident"] is None
        assert incident["alerts"][0]["value_text"] == "93 °C"
        assert found["hot"]["remediation"] == incident["remediation"] == "facility"
        for query, rules in {
            "rule=hot": ["hot"],
            "severity=info": ["warm"],
            "standing=told&severity=page": ["hot"],
            "standing=silenced": [],
            "node=n1&state=firing&rule=hot": ["hot"],
            "node=n2": [],
            "subject=gpu&gpu=GPU-n1-0": ["hot", "warm"],
            "gpu=GPU-n1-1": [],
        }.items():
            asked = await client.get(f"/api/v1/alerts?{query}")
            assert [one["rule"] for one in asked["alerts"]] == rules, query


async def test_an_incident_is_acknowledged_and_given_back(tmp_path: Path) -> None:
    """By its key, by how it begins, by the key of one of its alerts; the pager hears of it."""
    async with hot(tmp_path) as client:
        (incident,) = (await client.get("/api/v1/incidents"))["incidents"]
        key = incident["key"]
        path = f"/api/v1/incidents/{quote(key, safe='')}"
        status, body = await client.send("POST", f"{path}/ack", {"who": "ann", "why": "on it", "for": "2h"})
        assert (status, body["saved"]) == (200, True)
        note = body["incident"]["acknowledged"]
        assert (note["who"], note["why"]) == ("ann", "on it")
        assert 7195 < (note["until"] - body["at"]) / 1e9 <= 7200
        pager = client.stage.pager
        await until(lambda: pager.state.get(key) == "acknowledged")
        again = await client.get(path[:-3])  # without its last characters
        assert again["incident"]["acknowledged"]["who"] == "ann"
        status, body = await client.send("DELETE", f"{path}/ack", {"who": "ann"})
        assert (status, body["incident"]["acknowledged"]) == (200, None)
        alert = quote(HOT, safe="")
        status, body = await client.send("POST", f"/api/v1/incidents/{alert}/ack", {"who": "bob"})
        assert (status, body["incident"]["key"]) == (200, key)
        status, body = await client.send("DELETE", f"/api/v1/incidents/{alert}/ack")
        assert status == 200
        status, body = await client.send("DELETE", f"/api/v1/incidents/{alert}/ack")
        assert status == 400
        assert "nobody has acknowledged" in body["error"]["what"]


async def test_a_silence_holds_back_and_ends(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        status, body = await client.send(
            "POST",
            "/api/v1/silences",
            {"matchers": ["node=n1", 'rule=~"h.t"'], "who": "ann", "why": "fan", "for": 3600},
        )
        assert status == 200
        silence = body["silence"]
        assert [one["label"] for one in silence["matchers"]] == ["node", "rule"]
        assert (silence["ends"] - silence["starts"]) == 3600 * 10**9
        (alert,) = (await client.get("/api/v1/alerts?standing=silenced"))["alerts"]
        assert alert["key"] == HOT
        listed = (await client.get("/api/v1/silences?maintenance=false"))["silences"]
        assert [one["id"] for one in listed] == [silence["id"]]
        status, body = await client.send("DELETE", f"/api/v1/silences/{silence['id'][:5]}")
        assert status == 200
        assert body["silence"]["ends"] <= body["at"]
        assert (await client.get("/api/v1/alerts?standing=silenced"))["alerts"] == []


async def test_a_maintenance_window_can_be_planned_in_parts_as_alertmanager_writes_them(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        matchers = [
            {"name": "node", "value": 'n"\\d', "isRegex": True},
            {"name": "severity", "value": "page", "isEqual": False},
        ]
        asked = {
            "matchers": matchers,
            "who": "ann",
            "why": "new fans",
            "starts": "2090-01-01T08:00:00Z",
            "for": "90m",
            "maintenance": True,
        }
        status, body = await client.send("POST", "/api/v1/silences", asked)
        assert status == 200, body
        window = body["silence"]
        assert window["maintenance"]
        assert (window["ends"] - window["starts"]) == 5400 * 10**9
        regex, unequal = window["matchers"]
        assert (regex["value"], regex["is_regex"]) == ('n"\\d', True)
        assert (unequal["is_equal"], unequal["is_regex"]) == (False, False)
        only = (await client.get("/api/v1/silences?maintenance=true"))["silences"]
        assert [one["id"] for one in only] == [window["id"]]


SILENCE = {"matchers": ["node=n1"], "who": "ann", "why": "x", "for": "1h"}


@pytest.mark.parametrize(
    ("path", "body", "status", "where", "words"),
    [
        ("silences", {**SILENCE, "matchers": []}, 400, "silence", "there is no matcher"),
        ("silences", {**SILENCE, "matchers": ["node"]}, 400, "body.matchers[0]", "no condition"),
        ("silences", {**SILENCE, "matchers": ["node=b", "name=~("]}, 400, "body.matchers[1]", "regular"),
        ("silences", {**SILENCE, "matchers": ["node=~.*"]}, 400, "silence", "every alert"),
        ("silences", {**SILENCE, "for": "soon"}, 400, "body.for", "duration"),
        ("silences", {**SILENCE, "for": -1}, 400, "body.for", "no length of time"),
        ("silences", {**SILENCE, "for": None}, 400, "body", "no end"),
        ("silences", {**SILENCE, "ends": "now"}, 400, "body", "two ends"),
        ("silences", {**SILENCE, "starts": "later"}, 400, "body.starts", "not a time"),
        ("silences", {**SILENCE, "why": " "}, 400, "silence", "why is missing"),
        ("silences", {**SILENCE, "whoo": "x"}, 400, "body", "unknown field"),
        ("silences", {"who": "ann", "why": "x"}, 400, "body", "matchers"),
        ("silences", [1], 400, "body", "expected"),
        ("incidents/none/ack", {"who": "ann"}, 404, "incident", "no incident 'none'"),
        ("incidents/none/ack", {"who": 1}, 400, "body.who", "expected"),
        ("channels/oncal/test", {}, 404, "channel", "not known"),
    ],
)
async def test_what_can_not_be_done_is_said_with_its_place(
    tmp_path: Path, path: str, body: object, status: int, where: str, words: str
) -> None:
    """And nothing is done."""
    async with hot(tmp_path) as client:
        found = await client.send("POST", f"/api/v1/{path}", body)
        assert (found[0], found[1]["error"]["where"]) == (status, where)
        assert words in found[1]["error"]["what"]
        assert (await client.get("/api/v1/silences"))["silences"] == []


async def test_a_page_of_another_site_can_change_nothing(tmp_path: Path) -> None:
    """A form, a script without our consent, a name that points here: all are refused."""
    async with hot(tmp_path) as client:
        url = f"{client.door.url}/api/v1/silences"
        form = json.dumps(SILENCE)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            async with client.door.session.post(
                url, data=form, headers={**client.door.bearer, "Content-Type": kind}
            ) as answer:
                assert answer.status == 415
                check("POST", "/api/v1/silences", 415, await answer.json())
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert (await client.send("POST", "/api/v1/silences", SILENCE, headers))[0] == 403
            assert (await client.send("DELETE", "/api/v1/silences/x", None, headers))[0] == 403
        rebound = {"Host": "evil.example"}
        assert (await client.send("POST", "/api/v1/silences", SILENCE, rebound))[0] == 421
        status, _, headers_back = await client.door.text("/api/v1/silences", method="OPTIONS")
        assert (status, headers_back["Allow"]) == (204, "GET, HEAD, OPTIONS, POST")
        assert "Access-Control-Allow-Origin" not in headers_back
        assert (await client.get("/api/v1/silences"))["silences"] == []
        own = {"Origin": client.door.url, "Sec-Fetch-Site": "same-origin"}
        assert (await client.send("POST", "/api/v1/silences", SILENCE, own))[0] == 200


async def test_too_long_a_body_is_refused(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        long = {**SILENCE, "why": "x" * 70_000}
        assert (await client.send("POST", "/api/v1/silences", long))[0] == 413


async def test_every_action_asks_for_a_token_on_loopback_too(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    for number, config in enumerate((None, HttpConfig(listen="127.0.0.1:0", token_file=token))):
        async with hot(tmp_path / str(number), config) as client:
            wrong = {"Authorization": "Bearer wrong"}
            assert (await client.send("POST", "/api/v1/silences", SILENCE, wrong))[0] == 401
            url = f"{client.door.url}/api/v1/silences"
            async with client.door.session.post(url, json=SILENCE) as answer:
                assert answer.status == 401
            async with client.door.session.delete(f"{url}/x") as answer:
                assert answer.status == 401
    known = {"Authorization": f"Bearer {token.read_text().strip()}"}
    async with hot(tmp_path / "2", HttpConfig(listen="127.0.0.1:0", token_file=token)) as client:
        status, body = await client.send("POST", "/api/v1/silences", SILENCE, known)
        assert (status, body["silence"]["who"]) == (200, "token_file (ann)")


async def test_history_is_read_from_the_journal(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        scene = client.stage.scene
        scene.set(60.0, 60.0)
        await until(lambda: "resolved" in client.stage.pager.state.values())
        await client.stage.delivery.saved(10)
        assert (await client.get("/api/v1/incidents"))["incidents"] == []
        (over,) = (await client.get("/api/v1/incidents?from=-1h"))["incidents"]
        assert over["ended"] is not None
        assert (await client.get("/api/v1/incidents?from=-1h&node=n2"))["incidents"] == []
        assert len((await client.get("/api/v1/incidents?from=-1h&rule=hot"))["incidents"]) == 1


async def test_the_story_of_an_incident_says_who_did_what_and_who_was_told(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        (found,) = (await client.get("/api/v1/incidents"))["incidents"]
        path = f"/api/v1/incidents/{quote(found['key'], safe='')}"
        await client.send("POST", f"{path}/ack", {"who": "ops", "why": "on it", "for": "1h"})
        await client.send("DELETE", f"{path}/ack", {"who": "mia", "why": "not mine"})
        scene, pager = client.stage.scene, client.stage.pager
        scene.set(60.0, 60.0)
        await until(lambda: "resolved" in pager.state.values())
        await client.stage.delivery.saved(10)
        timeline = await client.get(f"{path}/timeline")
        told = [(one["what"], one["who"], one["why"]) for one in timeline["events"]]
        assert told[0] == ("told", "", "new")
        assert told[1:3] == [("acknowledged", "ann (ops)", "on it"), ("taken_back", "ann (mia)", "not mine")]
        assert told[-1] == ("ended", "", "resolved")
        times = [one["at"] for one in timeline["events"]]
        assert times == sorted(times)
        assert timeline["began"] <= times[0]
        assert timeline["ended"] == times[-1]
        sent = [(one["channel"], one["reason"], one["outcome"]) for one in timeline["deliveries"]]
        assert sent[-1] == ("oncall", "new", "delivered")
        assert {one["incident"] for one in timeline["deliveries"]} == {found["key"]}


async def test_deliveries_and_channels_show_what_became_of_what_was_told(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        await until(lambda: client.stage.delivery.channels()[0].delivered)
        (sent,) = (await client.get("/api/v1/deliveries?channel=oncall"))["deliveries"]
        assert (sent["action"], sent["outcome"], sent["reason"]) == ("trigger", "delivered", "new")
        assert (await client.get("/api/v1/deliveries?outcome=refused"))["deliveries"] == []
        assert (await client.get(f"/api/v1/deliveries?incident={quote(sent['incident'])}"))["deliveries"] == [sent]
        (channel,) = (await client.get("/api/v1/channels"))["channels"]
        assert (channel["name"], channel["kind"], channel["delivered"]) == ("oncall", "pagerduty", 1)
        status, body = await client.send("POST", "/api/v1/channels/oncall/test", {})
        assert (status, body["delivered"]) == (200, True)
        client.stage.pager.script.append(FAILS)
        status, body = await client.send("POST", "/api/v1/channels/oncall/test", {})
        assert (status, body["delivered"]) == (200, False)
        assert "500" in body["error"]


async def test_where_no_channel_is_in_force_a_test_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` on a machine without a driver has the channel in its settings, and sends nothing to it."""
    async with hot(tmp_path) as client:
        monkeypatch.setattr(type(client.stage.delivery), "channels", lambda _: [])
        status, body = await client.send("POST", "/api/v1/channels/phone/test", {})
        assert (status, body["error"]["where"]) == (404, "channel")
        assert "no channel is in force" in body["error"]["what"]
        assert "--source simulated:desktop-4x5090" in body["error"]["cure"]


async def test_rules_are_listed_with_what_they_find(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        found = (await client.get("/api/v1/rules"))["rules"]
        counts = {one["name"]: (one["kind"], one["firing"]) for one in found}
        assert counts == {"hot": ("above", 1), "off_the_bus": ("event", 0), "warm": ("above", 1)}
        asked = await client.get("/api/v1/rules?severity=info")
        assert [one["name"] for one in asked["rules"]] == ["warm"]
        remediations = {one["name"]: one["remediation"] for one in found}
        assert remediations == {"hot": "facility", "off_the_bus": "reboot", "warm": "facility"}


@needs_promtool
async def test_the_metrics_of_alerts_please_promtool_and_count_right(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        await client.send("POST", "/api/v1/silences", SILENCE)
        await until(lambda: client.stage.delivery.channels()[0].delivered)
        status, page, _ = await client.door.text("/metrics")
        assert status == 200
        assert lint(page) == ""
        found = samples(page)

    def value(name: str, **its: str) -> float:
        return sum(
            number
            for labels, number in found[f"kilowatch_{name}"]
            if all(labels.get(label) == word for label, word in its.items())
        )

    assert value("alerts", rule="hot", state="firing", severity="page") == 1
    assert value("alerts_standing", standing="silenced") == 1
    assert value("incidents_open", severity="page", acknowledged="false") == 1
    assert value("silences_active", kind="silence") == 1
    assert value("deliveries_total", channel="oncall", outcome="delivered") == 1
    assert value("deliveries_waiting", channel="oncall") == 0
    assert value("channel_failing", channel="oncall") == 0
    assert value("aggregator_journal_ok") == 1
    assert value("aggregator_journal_commit_seconds_count") >= 1
    assert value("aggregator_alerts_fired_total") == 2
    assert value("alerts_sent_total", rule="hot", severity="page") == 1
    assert value("alerts_outcomes_total", rule="hot", outcome="silenced") == 1
    assert value("alerts_outcomes_total", outcome="acknowledged") == 0
    assert "kilowatch_heartbeat_last_timestamp_seconds" not in found


def test_every_action_is_in_the_document() -> None:
    """Beside what is read, which test_http_openapi compares."""
    app = make_app(FakeView())
    served = {
        (route.resource.canonical, route.method.lower())
        for route in app.router.routes()
        if route.resource is not None and route.method in {"POST", "DELETE", "PUT", "PATCH"}
    }
    assert served >= set(WRITES)
    for path, method in WRITES:
        described = DOCUMENT["paths"][path][method]
        assert "requestBody" in described or method == "post"
        named = {one["name"] for one in described["parameters"] if one["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
