"""The commands for alerts, as people type them, on a real aggregator's HTTP and a real journal."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aggregator.http.config import HttpConfig
from api.alerts import Alert, AlertState, Incident, IncidentNote, Severity
from collector.recording.file import RecordingHeader, RecordingWriter
from kilowatch.__main__ import main
from kilowatch.text import alerts as alerting
from kilowatch.text.table import WIDTH, columns
from telemetry.devices import Event
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.fake_view import inventory
from tests.aggregator.http_client import door
from tests.aggregator.test_http_alerts import Client, hot
from tests.aggregator.test_http_openapi import busy
from tests.alerts.pager import FAILS
from tests.kit.waiting import until

NEW = ("alerts", "ack", "silence", "notify", "rules", "replay")


def kilowatch(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments))


async def typed(client: Client, *arguments: str) -> Result:
    """Type a command that talks to the aggregator; it must not hold up the loop that answers."""
    http = ["--http", f"127.0.0.1:{client.door.port}"]
    if "--token-file" not in arguments:
        http += ["--token-file", str(client.door.token_file)]
    result = await asyncio.to_thread(kilowatch, *arguments, *http)
    assert all(len(line) <= WIDTH for line in result.stdout.splitlines()), result.stdout
    return result


async def key_of(client: Client) -> str:
    """The key of the one incident."""
    (incident,) = (await client.get("/api/v1/incidents"))["incidents"]
    return str(incident["key"])


def test_help_lists_them() -> None:
    text = kilowatch("--help").output
    for name in NEW:
        assert f"\n  {name} " in text
        assert kilowatch(name, "-h").exit_code == 0


async def test_the_evidence_of_an_incident_is_shown() -> None:
    async with door(await busy()) as opened:
        http = ["--http", f"127.0.0.1:{opened.port}", "--token-file", str(opened.token_file)]
        shown = await asyncio.to_thread(kilowatch, "alerts", "show", "a/n1/GPU-n1-0", *http)
        as_json = await asyncio.to_thread(kilowatch, "alerts", "show", "a/n1/GPU-n1-0", "--json", *http)
        none = await asyncio.to_thread(kilowatch, "alerts", "show", "nothing", *http)
    assert shown.exit_code == 0, shown.output
    assert "  uuid      GPU-n1-0\n" in shown.stdout
    assert "    power" in shown.stdout
    assert "none" in shown.stdout  # the one reading is a gap
    assert "    Silence: kilowatch silence rule=a node=n1 uuid=GPU-n1-0 --for 2h" in shown.stdout
    assert json.loads(as_json.stdout)["cards"][0]["uuid"] == "GPU-n1-0"
    assert none.exit_code != 0
    assert "no incident" in none.output


async def test_alerts_are_shown_as_incidents_with_their_keys(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        key = await key_of(client)
        shown = await typed(client, "alerts")
        assert shown.exit_code == 0
        assert "PAGE   n1 GPU 0 is at 93 °C" in shown.stdout
        assert f"key {key}" in shown.stdout
        assert "its alert fires" in shown.stdout
        every = await typed(client, "alerts", "--all")
        assert {line.split()[1] for line in every.stdout.splitlines()[1:]} == {"page", "info"}
        as_json = json.loads((await typed(client, "alerts", "--json")).stdout)
        assert [one["key"] for one in as_json["incidents"]] == [key]
        assert "no open incident" in (await typed(client, "alerts", "--node", "n2")).stdout
        history = await typed(client, "alerts", "--history")
        assert f"key {key}" in history.stdout


async def test_ack_acknowledges_an_incident_and_removes_it_again(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        key = await key_of(client)
        taken = await typed(client, "ack", key, "--why", "fans", "--who", "bob", "--for", "2h")
        assert taken.exit_code == 0, taken.output
        assert taken.stdout.startswith(f"acknowledged by ann (bob): {key}")
        shown = await typed(client, "alerts")
        assert re.search(
            r"acknowledged by ann \(bob\) at \S+ \S+ UTC until \S+ \S+ UTC: fans", " ".join(shown.stdout.split())
        )
        back = await typed(client, "ack", key, "--end")
        assert back.stdout.startswith("acknowledgement removed:")
        wrong = await typed(client, "ack", "none")
        assert wrong.exit_code == 3
        assert "no incident 'none'" in wrong.stderr


async def test_quality_says_what_was_sent_and_what_was_marked_as_false(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        key = await key_of(client)
        before = await typed(client, "alerts", "quality")
        assert before.exit_code == 0, before.output
        [line] = [one for one in before.stdout.splitlines() if one.startswith("hot ")]
        assert line.split()[1:3] == ["1", "-"]
        assert line.endswith("no mark")
        assert "no page in this time, nor a ticket, of" in before.stdout
        unsaid = await typed(client, "ack", key, "--false")
        assert unsaid.exit_code == 64
        assert "Why is it false?" in unsaid.stderr
        marked = await typed(client, "ack", key, "--false", "--why", "a broken sensor")
        assert marked.stdout.startswith("marked as false by ann"), marked.output
        shown = " ".join((await typed(client, "alerts")).stdout.split())
        assert "marked as false by ann" in shown
        assert "a broken sensor" in shown
        again = await typed(client, "alerts", "--history", "30d")
        assert "marked as false by ann" in " ".join(again.stdout.split())
        figures = json.loads((await typed(client, "alerts", "quality", "--json")).stdout)
        [of_hot] = [one for one in figures["rules"] if one["rule"] == "hot"]
        assert (of_hot["marked_false"], of_hot["precision"]) == (1, 0.0)
        suggested = await typed(client, "alerts", "quality", "--suggest", "--since", "1d")
        assert suggested.stdout.startswith("hot: no change is suggested: none of its false")
        back = await typed(client, "ack", key, "--false", "--end")
        assert back.stdout.startswith("mark removed:")
        lines = (await typed(client, "alerts", "quality")).stdout.splitlines()
        assert next(one for one in lines if one.startswith("hot ")).endswith("no mark")
        status, body = await client.send("POST", f"/api/v1/incidents/{key}/ack", {"false": True, "why": " "})
        assert status == 400
        assert "why is missing" in json.dumps(body)


async def test_silence_suppresses_lists_and_ends(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        made = await typed(client, "silence", "node=n1", "rule=~h.*", "--for", "2h", "--why", "fan")
        assert made.exit_code == 0, made.output
        assert "node=n1 rule=~h.*: fan" in made.stdout
        (silence,) = (await client.get("/api/v1/silences"))["silences"]
        listed = await typed(client, "silence", "--list")
        assert silence["id"] in listed.stdout
        shown = (await typed(client, "alerts")).stdout.splitlines()
        assert shown[shown.index("silenced:") + 1].startswith(silence["id"])
        assert "ends in 2 h" in listed.stdout
        ended = await typed(client, "silence", "--end", silence["id"][:6])
        assert ended.exit_code == 0
        assert "over" in ended.stdout
        assert "silenced:" not in (await typed(client, "alerts")).stdout
        planned = await typed(
            client,
            "silence",
            "node=n1",
            "--maintenance",
            "--from",
            "2090-01-01T08:00:00Z",
            "--for",
            "4h",
            "--why",
            "new fans",
            "--json",
        )
        window = json.loads(planned.stdout)["silence"]
        assert window["maintenance"]
        assert window["ends"] - window["starts"] == 4 * 3600 * 10**9
        assert window["who"].startswith("ann (")  # the token's name, and the login name


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("silence", "--for", "1h"), 64, "Of which alerts?"),
        (("silence", "node=n1", "--why", "x"), 64, "For how long?"),
        (("silence", "node=n1", "--for", "soon"), 64, "no duration"),
        (("silence", "node=n1", "--for", "1h"), 3, "Error: silence: why is missing"),
        (("silence", "node", "--for", "1h", "--why", "x"), 3, "label=value"),
        (("silence", "nod=n1", "--for", "1h", "--why", "x"), 3, "Did you mean 'node'?"),
        (("silence", "--end", "nope"), 3, "no silence 'nope'"),
        (("notify", "test", "oncal"), 3, "Did you mean 'oncall'?"),
    ],
)
async def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    async with hot(tmp_path) as client:
        result = await typed(client, *arguments)
        assert result.exit_code == code
        assert words in result.stderr
        assert "Traceback" not in result.output


async def test_notify_lists_and_tests_channels(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        await until(lambda: client.stage.delivery.channels()[0].delivered)
        listed = await typed(client, "notify", "list")
        assert "oncall   pagerduty  1" in listed.stdout
        sent = await typed(client, "notify", "list", "--deliveries")
        assert "delivered" in sent.stdout
        assert (await typed(client, "notify", "test", "oncall")).stdout.startswith("oncall: delivered")
        client.stage.pager.script.append(FAILS)
        failed = await typed(client, "notify", "test", "oncall")
        assert failed.exit_code == 1
        assert "not delivered: HTTP 500" in failed.stderr


async def test_rules_in_force_are_listed(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        listed = await typed(client, "rules", "list")
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["hot", "off_the_bus", "warm"]
        assert "1 firing" in listed.stdout


async def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    async with hot(tmp_path, HttpConfig(listen="127.0.0.1:0", token_file=token)) as client:
        (tmp_path / "wrong").write_text("0" * 32)
        refused = await typed(client, "alerts", "--token-file", str(tmp_path / "wrong"))
        assert refused.exit_code == 3
        assert "--token-file" in refused.stderr
        assert (await typed(client, "alerts", "--token-file", str(token))).exit_code == 0


@pytest.mark.parametrize("where", [["127.0.0.1:1"], ["--http", "127.0.0.1:1"]])
def test_an_unreachable_aggregator_is_an_error_with_a_remedy(where: list[str]) -> None:
    result = kilowatch("alerts", *where)
    assert result.exit_code == 3
    assert "no aggregator answers" in result.stderr
    assert "127.0.0.1:1" in result.stderr
    assert "kilowatch aggregate" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "command", [["alerts"], ["circuits"], ["report"], ["rules", "list"], ["notify", "list"]], ids=" ".join
)
def test_two_aggregators_are_one_too_many(command: list[str]) -> None:
    """Every command that looks at an aggregator takes it bare, or by `--http`."""
    result = kilowatch(*command, "127.0.0.1:1", "--http", "127.0.0.1:2")
    assert result.exit_code == 64
    assert "Two aggregators are named" in result.stderr


RULE = """
[[rule]]
name = "toasty"
when = { type = "above", metric = "gpu_temperature_celsius", level = 70 }
severity = "page"
remediation = "reset"
summary = "{where} is at {value}"
description = "Open a window."
runbook = "toasty"
[[rule.example]]
every = 1
given = "60 71 60"
then = "- F R"
"""


def test_rules_of_ones_own_are_checked_and_proved(tmp_path: Path) -> None:
    """The file is right; then its example does not hold; then a word in it is wrong."""
    file = tmp_path / "mine.toml"
    file.write_text(RULE)
    checked = kilowatch("rules", "check", str(file))
    assert (checked.exit_code, checked.stdout) == (0, f"{file}: ok, 1 rules with 1 examples\n")
    tested = kilowatch("rules", "test", str(file), "-v")
    assert tested.exit_code == 0
    assert "ok   toasty" in tested.stdout
    file.write_text(RULE.replace("level = 70", "level = 75"))
    wrong = kilowatch("rules", "test", str(file))
    assert wrong.exit_code == 1
    assert "then  - F R" in wrong.stderr
    assert "but   - - -" in wrong.stderr
    file.write_text(RULE.replace("gpu_temperature_celsius", "gpu_temprature_celsius"))
    for command in ("check", "test"):
        result = kilowatch("rules", command, str(file))
        assert result.exit_code == 64
        assert "gpu_temperature_celsius" in result.stderr
    assert kilowatch("rules", "check", str(tmp_path / "none.toml")).exit_code == 64


def record(path: Path, temperatures: list[float], xid_at: int | None = None) -> None:
    """Write a recording of one node, a frame a second, as `kilowatch record` does."""
    what, start = inventory("n1", links=0), 1_790_000_000 * 10**9
    status = CollectorStatus(state=NodeState.ONLINE, session=what.session)
    writer = RecordingWriter(path, RecordingHeader(source="a test"))
    writer.write(start, Topic.STATUS, "n1", messages.encode(status))
    writer.write(start, Topic.INVENTORY, "n1", messages.encode(what))
    block = SCHEMA.blocks[GPU_FAST]
    place = block.names.index("gpu_temperature_celsius")
    for seq, value in enumerate(temperatures):
        at = start + seq * 10**9
        row = [NOT_SUPPORTED] * len(block.names)
        row[place] = value
        cool = [*row]
        cool[place] = 40.0
        events = []
        if seq == xid_at:
            xid = Event(id=f"7-{seq}", node="n1", at=at, kind="xid", gpu="GPU-n1-1", data={"xid": 79})
            events.append(messages.encode(xid))
        body = frames.encode(frames.build(7, seq, at, {GPU_FAST: [row, cool]}, events))
        writer.write(at, Topic.FRAME, "n1", body)
    writer.close()


def test_replay_lists_notifications_with_their_times(tmp_path: Path) -> None:
    """Times are those of the recording."""
    file, rule = tmp_path / "day.kw", tmp_path / "mine.toml"
    rule.write_text(RULE)
    record(file, [60.0] * 30 + [75.0] * 30 + [60.0] * 40, xid_at=80)
    shown = kilowatch("replay", str(file), "--rules", str(rule))
    assert shown.exit_code == 2, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("102 messages of 1 node with 2 GPUs, 99 s from 2026-09-21")
    hot = [line for line in lines if "n1 GPU 0 is at 75" in line]
    assert "+3" in hot[0]
    assert "trigger" in hot[0]
    assert [line for line in lines if "n1 GPU 1" in line]
    as_json: dict[str, Any] = json.loads(kilowatch("replay", str(file), "--rules", str(rule), "--json").stdout)
    rules = {alert["rule"] for one in as_json["incidents"] for alert in one["alerts"]}
    assert {"toasty", "gpu_lost"} <= rules
    alone = json.loads(kilowatch("replay", str(file), "--rules", str(rule), "--only", "--json").stdout)
    assert (alone["pages"], alone["tickets"]) == (1, 0)
    assert [one["action"] for one in alone["told"]] == ["trigger", "resolve"]


def test_a_healthy_recording_has_no_notification(tmp_path: Path) -> None:
    file = tmp_path / "day.kw"
    record(file, [60.0] * 60)
    shown = kilowatch("replay", str(file))
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.endswith("0 pages, 0 tickets\n")


@pytest.mark.parametrize("content", [None, b"", b"not a recording at all"])
def test_a_file_that_is_no_recording_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "x.kw"
    if content is not None:
        file.write_bytes(content)
    result = kilowatch("replay", str(file))
    assert result.exit_code == 3
    assert str(file) in result.stderr


def test_what_comes_from_elsewhere_can_not_command_the_terminal() -> None:
    """Node names, summaries and notes come from the bus and from people."""
    evil = "\x1b[2J\x07n1\u202e\nPAGE"
    alert = Alert(key=evil, rule="r", state=AlertState.FIRING, severity=Severity.PAGE, node=evil, value_text=evil)
    incident = Incident(
        key=evil,
        group={},
        severity=Severity.PAGE,
        title=evil * 20,
        began=0,
        changed=0,
        alerts=(alert,),
        firing=1,
        total=1,
        acknowledged=IncidentNote(who=evil, why=evil, at=0),
        owner=evil,
    )
    lines = [*alerting.incident_lines([incident], 10**9), *columns([(evil, evil), ("a", "b")])]
    assert "owner " in "".join(lines)
    assert all(line.isprintable() for line in lines)
    assert all(len(line) <= WIDTH for line in lines)


def test_columns_are_aligned_and_cut_at_the_last_one() -> None:
    lines = columns([("a", "x" * 200), ("long", "y")])
    assert lines == ["a     " + "x" * (WIDTH - 7) + "…", "long  y"]
    assert columns([]) == []
