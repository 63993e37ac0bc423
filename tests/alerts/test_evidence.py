"""Cards: what was known of a fault, bounded, printable, and with gaps that are no numbers."""

from __future__ import annotations

import base64
import shlex
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from alerts.engine import fault_history
from alerts.engine.fault_history import FaultIndex
from alerts.incidents.matchers import parse_all
from alerts.message.card import LINES, MOST_CARDS, NEARBY, card_of, subjects_of
from alerts.message.commands import gpu_condition
from alerts.message.evidence_text import evidence_lines, facts_of
from alerts.message.formats import details, markdown, text
from alerts.message.page import Links, page_of
from alerts.message.picture import picture_of
from alerts.notice import Notice
from alerts.notifiers.apprise import Apprise
from alerts.notifiers.channel import Message
from alerts.notifiers.http_sender import open_sender
from alerts.notifiers.ntfy import Ntfy
from alerts.notifiers.pagerduty import BODY, encoded, event
from alerts.notifiers.result import Delivered
from alerts.notifiers.webhook import Webhook
from alerts.rules.rule import load
from api.alerts import Alert, AlertState, Severity, matches_all
from api.evidence import AffectedJob, Evidence, EvidenceReadings, EvidenceReply
from telemetry.devices import Event
from tests.alerts.notices import MINUTE, NOON, alert, incident, notice
from tests.alerts.test_notifiers import extra
from tests.alerts.test_page import EVIL

LINKS = Links("hall-1", "https://kilowatch.example")
READINGS = EvidenceReadings(
    at=tuple(NOON + step * MINUTE // 2 for step in range(-10, 2)),
    columns={
        "gpu_temperature_celsius": (*(61.0 + step for step in range(9)), None, 92.0, None),
        "gpu_power_watts": (400.0,) * 12,
        "gpu_memory_temperature_celsius": (None,) * 12,
        "gpu_clocks_event_hw_thermal_slowdown": (*(0.0,) * 11, 1.0),
        "gpu_ecc_volatile_uncorrected_total": (0.0,) * 12,
        "gpu_pcie_replays_total": (*(0.0,) * 11, 3.0),
    },
    gaps={"gpu_temperature_celsius": "device_lost", "gpu_memory_temperature_celsius": "not_supported"},
)


def xid(number: int, line: str, *, at: int = NOON, gpu: str | None = None, kind: str = "xid") -> Event:
    """Return a line of the kernel's log."""
    data = {"xid": 79, "line": line}
    return Event(id=f"1-{number}", node="dgx-01", at=at, kind=kind, gpu=gpu, data=data)


def card(
    lead: Alert | None = None,
    events: tuple[Event, ...] = (),
    alerts: tuple[Alert, ...] = (),
    history: FaultIndex | None = None,
) -> Evidence:
    """Return the card of an alert."""
    lead = lead or alert()
    about = incident(alerts=[lead])
    rule = next(one for one in load() if one.name == "gpu_lost")
    past = (history or FaultIndex()).of(lead, about.key, NOON + MINUTE)
    return card_of(
        lead,
        about,
        rule,
        LINKS,
        events=events,
        alerts=alerts,
        readings=READINGS,
        history=past,
        missing={},
        now=NOON + MINUTE,
    )


def reply(*cards: Evidence, problem: str = "") -> EvidenceReply:
    return EvidenceReply(at=NOON, incident="i-1", title="GPU 3 is lost", cards=cards, problem=problem)


def message(found: EvidenceReply | None, what: Notice | None = None) -> Message:
    sent = what or notice()
    return Message("oncall", sent, page_of(sent, LINKS, NOON + MINUTE, found), LINKS, NOON, found)


def test_a_card_has_the_place_the_lines_the_neighbours_and_what_to_do() -> None:
    lead = alert()
    other = alert("gpu_hot", gpu=4, since=NOON - 2 * MINUTE)
    made = card(
        lead,
        (
            xid(1, "NVRM: Xid 79", gpu=lead.gpu),
            xid(1, "NVRM: Xid 79", gpu=lead.gpu),  # in memory and in the store
            xid(2, "of another GPU", gpu="GPU-x", at=NOON - MINUTE),
            xid(3, "long ago", gpu=lead.gpu, at=NOON - 6 * MINUTE),
        ),
        (lead, other, alert("gpu_hot", gpu=5, since=NOON - 6 * MINUTE),
         alert("gpu_hot", gpu=6, state=AlertState.PENDING)),
    )  # fmt: skip
    assert (made.index, made.slot, made.rack, made.job) == ("3", "4", "r12", "4711")
    assert [one.line for one in made.lines] == ["NVRM: Xid 79"]
    assert [(one.kind, one.what, one.line or one.text) for one in made.nearby] == [
        ("alert", "gpu_hot", "dgx-01 GPU 4 fell off the bus"),
        ("event", "xid 79", "of another GPU"),
    ]
    assert made.remedy.runbook == "https://kilowatch.example/runbook/gpu_lost"
    assert made.remedy.steps[0].startswith("Drain dgx-01:")
    assert made.remedy.until == "now"
    assert made.remedy.replace
    names = ["Acknowledge", "Silence", "Recover", "Evidence", "Past"]
    assert [one.name for one in made.commands] == names


def affected(number: int = 1, **more: object) -> AffectedJob:
    """A job of ada on two GPUs."""
    facts = {"scheduler": "slurm", "job": f"47{number:02d}", "job_name": "pretrain", "user": "ada",
             "account": "physics", "gpus": ("0", "1"), "begin": NOON - MINUTE}  # fmt: skip
    return AffectedJob(**(facts | more))  # type: ignore[arg-type]


def of_jobs(lead: Alert, jobs: list[AffectedJob] | None) -> Evidence:
    """The card of an alert while some jobs ran."""
    return card_of(
        lead,
        incident(alerts=[lead]),
        None,
        LINKS,
        events=(),
        alerts=(),
        readings=READINGS,
        history=None,
        missing={},
        now=NOON + MINUTE,
        jobs=jobs,
    )


NODE_ALERT = msgspec.structs.replace(alert(), gpu=None, labels={}, summary="dgx-01 is silent")


def test_a_card_names_the_job_its_user_and_account_also_in_a_text_message() -> None:
    lead = msgspec.structs.replace(alert(), labels={**alert().labels, "account": "physics"}, owner="lab")
    made = of_jobs(lead, [affected(11)])
    assert (made.job, made.user, made.account) == ("4711", "ada", "physics")
    terminal = "\n".join(evidence_lines(reply(made)))
    for words in (
        "owner     lab",
        "user      ada",
        "account   physics",
        "slurm 4711 pretrain of ada (physics) on GPU 0, 1",
    ):
        assert words in terminal
    sent = text(page_of(notice(about=incident(alerts=[lead])), LINKS, NOON + MINUTE, reply(made)))
    assert "job 4711 · user ada · account physics" in sent
    assert "Jobs there" not in sent  # once is enough


def test_an_alert_of_a_node_names_every_job_on_it() -> None:
    one = of_jobs(NODE_ALERT, [affected(1)])
    assert (one.job, one.user, one.account, one.jobs_total) == ("4701", "ada", "physics", 1)
    many = of_jobs(NODE_ALERT, [affected(n, gpus=("0",) * (n == 5)) for n in range(12)])
    assert (many.job, many.user) == ("", "")  # several: none of them is *the* job
    assert (len(many.jobs), many.jobs_total, many.jobs[0].job) == (8, 12, "4705")
    assert "and 4 more" in "\n".join(evidence_lines(reply(many)))
    sent = text(page_of(notice(about=incident(alerts=[NODE_ALERT])), LINKS, NOON, reply(many)))
    assert "Jobs there: slurm 4705 pretrain of ada (physics) on GPU 0; slurm 4700" in sent
    assert "; and 9 more" in sent


def test_that_no_job_ran_differs_from_that_nobody_says() -> None:
    nobody, none = of_jobs(NODE_ALERT, None), of_jobs(NODE_ALERT, [])
    assert (nobody.jobs_total, none.jobs_total) == (None, 0)
    assert "no job held a GPU" in "\n".join(evidence_lines(reply(none)))
    assert "job" not in "\n".join(evidence_lines(reply(nobody))).partition("commands")[0].casefold()
    assert "of an unknown user" in "\n".join(evidence_lines(reply(of_jobs(NODE_ALERT, [affected(user="")]))))


def test_a_job_on_a_card_is_printable_and_cut() -> None:
    evil = affected(job="\x1b[2J" * 400, user="a\nb", job_name=EVIL, account=EVIL, gpus=("7",) * 64)
    made = of_jobs(NODE_ALERT, [evil])
    assert (len(made.jobs[0].job), len(made.jobs[0].gpus)) == (128, 16)
    assert all(line.isprintable() for line in evidence_lines(reply(made)))


def test_a_gap_is_no_number_in_any_form() -> None:
    made = card()
    shown = "\n".join(evidence_lines(reply(made)))
    rows = {line.split("  ")[2].strip(): line for line in shown.splitlines() if line.startswith("    ")}
    assert "device lost" in rows["temperature"]
    assert "memory temperature" not in rows  # this GPU never has it
    assert "ecc volatile uncorrected" not in rows  # none at any time
    short = dict(facts_of(reply(made)))["Readings"]
    assert short == (
        "(-5 min, -60 s, 0, +30 s) temperature 61 °C → 69 °C → 92 °C → none · "
        "power 400 W → 400 W → 400 W → 400 W · clock limit hw thermal"
    )
    assert b'"gpu_memory_temperature_celsius":[null,' in msgspec.json.encode(made)


def test_a_card_is_bounded_whatever_a_node_sends() -> None:
    many = tuple(xid(number, "x" * 5000, at=NOON + number) for number in range(3000))
    beside = tuple(alert("gpu_hot", node="dgx-01", gpu=number) for number in range(300))
    made = card(msgspec.structs.replace(alert(), gpu=None), many, beside)
    assert len(made.lines) == LINES
    assert max(len(one.line) for one in made.lines) == 500
    assert len(made.nearby) == NEARBY
    assert made.nearby_total == 3000 - LINES + 300
    assert len(msgspec.json.encode(made)) < 100_000
    crowd = incident(alerts=[alert(gpu=number) for number in range(64)])
    assert len(list(subjects_of(crowd))) == 64 > MOST_CARDS


@given(st.text(max_size=300))
def test_nothing_in_a_card_can_do_harm(words: str) -> None:
    evil = EVIL + words
    bad = msgspec.structs.replace(
        alert(node=evil, labels=dict.fromkeys(("job", "serial", "rack", "slot", "gpu", "pci"), evil)),
        summary=evil,
        description=evil,
    )
    made = card(bad, (xid(1, evil, gpu=bad.gpu), xid(2, evil, gpu=evil)), (alert(node=evil, gpu=5),))
    found = reply(made)
    page = message(found).page
    for whole in (text(page), markdown(page), str(details(page)), "\n".join(evidence_lines(found))):
        assert all(one.isprintable() or one in "\n\u2060" for one in whole)
    for command in made.commands:
        first, *rest = shlex.split(command.command)
        assert first == "kilowatch"
        assert all("\n" not in word for word in rest)
    picture_of(made)


def test_boards_and_slots_remember_their_faults() -> None:
    index, day = FaultIndex(), 1440 * MINUTE
    there = {"serial": "other", "slot": "4"}
    index.note(
        [
            incident("moved", [alert(node="dgx-07", since=NOON - day)], ended=NOON),
            incident("slot", [alert(since=NOON - 2 * day, labels=there)], ended=NOON),
            incident("old", [alert(node="dgx-07", since=NOON - 31 * day)], ended=NOON),
            incident("info", [alert(node="dgx-07", severity=Severity.INFO)], ended=NOON),
            incident("node", [alert(gpu=None)], ended=NOON),
            incident("i-1", [alert()]),
        ]
    )
    index.note([incident("moved", [alert(node="dgx-07", since=NOON - day)], ended=NOON)])
    found = index.of(alert(), "i-1", NOON)
    assert [(one.node, one.incident) for one in found.board] == [("dgx-07", "moved")]
    assert [(one.serial, one.incident) for one in found.slot] == [("other", "slot")]
    assert dict(facts_of(reply(card(history=index))))["This board"] == (
        "1 other fault in 30 days: gpu_lost; the last 2026-07-31 12:00:00 UTC on dgx-07"
    )
    later = NOON + 29 * day + MINUTE
    index.expire(later)
    assert index.of(alert(), "i-1", later).board_total == 0
    assert index.of(alert(), "another", later).board_total == 1


def test_the_history_forgets_the_oldest_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_history, "MOST_FAULTS", 50)
    index = FaultIndex()
    index.note(incident(f"i-{number}", [alert(since=NOON + number)]) for number in range(55))
    found = index.of(alert(), "", NOON + MINUTE)
    assert found.board_total == 50
    assert found.board[0].incident == "i-54"


def test_a_silence_from_a_page_covers_this_gpu_and_no_other() -> None:
    one, many = alert(gpu=3), [alert(gpu=number) for number in (3, 5)]
    for alerts in ([one], many):
        page = page_of(notice(about=incident(alerts=alerts)), LINKS, NOON)
        words = shlex.split(dict(page.commands)["Silence"])
        matchers = parse_all(words[2 : words.index("--for")])
        assert all(matches_all(matchers, each.matched_labels()) for each in alerts)
        assert not matches_all(matchers, alert(gpu=4).matched_labels())
        assert not matches_all(matchers, alert(node="dgx-02", gpu=3).matched_labels())
    assert gpu_condition([alert(gpu=number) for number in range(64)]) == []
    assert gpu_condition([one, alert(gpu=None)]) == []
    assert gpu_condition([]) == []


def test_a_page_without_its_evidence_says_so() -> None:
    page = message(reply(problem="not collected in time")).page
    assert ("Evidence", "not collected in time; later: kilowatch alerts show i-1") in page.evidence
    assert message(None).page.evidence == ()


def test_a_page_says_whose_evidence_it_is_when_it_is_not_the_leads() -> None:
    other = card(alert("gpu_hot", gpu=5))
    assert message(reply(other)).page.evidence[0] == ("Evidence of", "dgx-01 GPU 5 fell off the bus")


def test_json_channels_carry_the_data() -> None:
    found = reply(card())
    body = event(message(found), "key")
    assert body["payload"]["custom_details"]["Evidence"][0]["serial"] == "1652622032001"
    hook = Webhook(url="http://x/").body(message(found))
    assert hook["evidence"][0]["readings"]["columns"]["gpu_temperature_celsius"][-1] is None
    assert "evidence" not in Webhook(url="http://x/").body(message(None))


def test_an_event_that_is_too_large_loses_its_evidence_before_its_facts() -> None:
    body = event(message(reply(card())), "key")
    body["payload"]["custom_details"]["Evidence"] = ["x" * BODY]
    short = msgspec.json.decode(encoded(body))
    assert len(encoded(body)) <= BODY
    assert "Evidence" not in short["payload"]["custom_details"]
    assert short["payload"]["custom_details"]["Rule"] == "gpu_lost"


def dots(png: bytes) -> tuple[int, int, bytes]:
    """Decode a PNG of a palette, and check every chunk."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    found, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + body),)
        found[name], at = body, at + 12 + size
    width, height = struct.unpack(">II", found[b"IHDR"][:8])
    rows = zlib.decompress(found[b"IDAT"])
    assert len(rows) == (width + 1) * height
    return width, height, b"".join(rows[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height))


def test_the_picture_shows_readings_and_leaves_gaps_empty() -> None:
    png = picture_of(card())
    assert png is not None
    width, height, field = dots(png)
    assert (width, height) == (480, 20 + 2 * 84)
    panel = [field[y * width : (y + 1) * width] for y in range(38, 94)]

    def drawn(column: int) -> bool:
        return any(row[column] == 3 for row in panel)

    first, last = 8, width - 9
    assert drawn(first + (last - first) * 4 // 11)
    assert not drawn(first + (last - first) * 19 // 22)  # between the gap and the reading behind it
    bare = msgspec.structs.replace(card(), readings=EvidenceReadings())
    assert picture_of(bare) is None


@asynccontextmanager
async def receiver(take: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[int]:
    """Serve a receiver on this machine; yield its port."""
    app = web.Application(client_max_size=1024**2)
    app.router.add_post("/{topic:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("on", [True, False])
async def test_ntfy_gets_the_page_and_then_the_picture(on: bool) -> None:
    """A server that takes no attachment costs the picture, not the page."""
    taken: list[tuple[str, str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        taken.append((request.path, request.content_type, body))
        return web.Response(status=413 if request.content_type == "image/png" else 200)

    async with receiver(take) as port, open_sender() as sender:
        channel = Ntfy(url=f"http://127.0.0.1:{port}/gpus", picture=on)
        answer = await channel.send(message(reply(card())), sender)
    assert answer == Delivered()
    assert [(path, kind) for path, kind, _ in taken] == [
        ("/", "application/json"),
        *([("/gpus", "image/png")] if on else []),
    ]
    assert b"This board" in taken[0][2]


@pytest.mark.parametrize(
    ("on", "accepts", "pictures"),
    [(True, True, [True]), (False, True, [False]), (True, False, [True, False])],
    ids=["with the page", "switched off", "a service that refuses it gets the page alone"],
)
async def test_services_of_apprise_get_the_picture_with_the_page(
    tmp_path: Path, on: bool, accepts: bool, pictures: list[bool]
) -> None:
    """Each by itself: another service is not told twice."""
    extra("apprise")
    taken: dict[str, list[dict[str, Any]]] = {"/plain": [], "/picky": []}

    async def take(request: web.Request) -> web.Response:
        body = await request.json()
        taken[request.path].append(body)
        refused = request.path == "/picky" and body["attachments"] and not accepts
        return web.Response(status=400 if refused else 200)

    async with receiver(take) as port, open_sender() as sender:
        urls = tmp_path / "urls"
        urls.write_text(f"json://127.0.0.1:{port}/plain\njson://127.0.0.1:{port}/picky\n")
        urls.chmod(0o600)
        channel = Apprise(urls_file=urls, picture=on)
        answer = await channel.send(message(reply(card())), sender)
    assert answer == Delivered("2 services")
    assert [bool(body["attachments"]) for body in taken["/picky"]] == pictures
    assert [bool(body["attachments"]) for body in taken["/plain"]] == [on]
    if on:
        (attached,) = taken["/plain"][0]["attachments"]
        assert (attached["filename"], attached["mimetype"]) == ("readings.png", "image/png")
        assert base64.b64decode(attached["base64"]) == picture_of(card())
    assert all("This board" in body["message"] for body in taken["/picky"])
