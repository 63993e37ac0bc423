"""Alerts and incidents are worded once: golden texts, and the four faces that lay them out."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from msgspec.structs import replace

from aggregator.web.alert_list import alert_rows_body, silences_body
from aggregator.web.incident_page import incident_body
from alerts.message.evidence_text import card_lines, facts_of
from alerts.message.page import Links, page_of
from alerts.notice import Notice
from api.alerts import (
    Action,
    Alert,
    AlertRow,
    AlertState,
    DeliveryOutcome,
    DeliveryRow,
    Incident,
    IncidentEvent,
    IncidentNote,
    Matcher,
    NotificationState,
    Severity,
    Silence,
    Subject,
    TimelineReply,
)
from api.evidence import AffectedJob, Evidence, EvidenceReply, FaultHistory, NearbyEvent, PastFault
from kilowatch.text.alerts import alert_lines, incident_lines, silence_lines
from present.alert.evidence import history_rows, job_text, nearby_row, nearby_what
from present.alert.incident import (
    acknowledged,
    all_firing,
    inhibited_row,
    marked_false,
    matchers_words,
    notified_row,
    place_of,
    short_title,
    silence_kind,
    silence_row,
    state_row,
    title_of,
    value_row,
    value_words,
    where_row,
)
from present.alert.timeline import reason_words, timeline_entries
from telemetry.text import time_of_day, timestamp
from tests.present import golden
from tests.tui.test_lines import line_text, state
from tui.screens.incident import incident_lines as drawn_lines
from tui.screens.incident_evidence import evidence_drawn

MINUTE = 60 * 10**9
NOON = 1_790_000_000 * 10**9
HOT = AlertRow(
    key="gpu_hot/dgx-01/GPU-1",
    rule="gpu_hot",
    state=AlertState.FIRING,
    severity=Severity.PAGE,
    node="dgx-01",
    gpu="GPU-1",
    labels={"gpu": "3"},
    value=92.0,
    value_text="92 °C",
    limit=88.0,
    limit_text="88 °C",
    since=NOON,
    summary="dgx-01 GPU 3 is too hot",
)
ALERTS = {
    "of a GPU": HOT,
    "of a link, without words for its value": replace(HOT, labels={"gpu": "3", "link": "7"}, value_text="", limit_text="", state=AlertState.PENDING),
    "of a circuit, inhibited": replace(HOT, node="", subject=Subject.CIRCUIT, name="A-12", gpu=None, notification=NotificationState.INHIBITED, limit=None, limit_text=""),
    "of a node that was removed": replace(HOT, labels={}, state=AlertState.RESOLVED, ended="forgotten", value=None, value_text=""),
    "of a node that moved, in a storm": replace(HOT, labels={}, state=AlertState.RESOLVED, ended="moved", notification=NotificationState.STORM),
    "of a port": replace(HOT, subject=Subject.PORT, gpu=None, labels={"port": "mlx5_0/1"}),
    "of an instance": replace(HOT, subject=Subject.INSTANCE, labels={"gpu": "3", "gpu_instance": "7", "compute_instance": "0", "profile": "1g.10gb"}),
    "an info": replace(HOT, severity=Severity.INFO),
}  # fmt: skip
NOTE = IncidentNote(who="ada", why="swapping it", at=NOON + MINUTE, until=NOON + 60 * MINUTE)
ALONE = Incident(key="k", severity=Severity.PAGE, title=HOT.summary, began=NOON, alerts=(HOT,), firing=1, total=1)
INCIDENTS = {
    "alone": ALONE,
    "acknowledged, of several": replace(
        ALONE, title=title_of(HOT, [HOT, *(replace(HOT, gpu=f"GPU-{n}", node=f"dgx-0{n % 2 + 1}") for n in range(2, 6))]), group={"rack": "R7"}, firing=2, total=5, acknowledged=NOTE,
        hidden=1200, inhibited=("a", "b"),
    ),
    "of which one still fires": replace(ALONE, total=5), "over": replace(ALONE, firing=0),
    "false, with one consequence": replace(ALONE, inhibited=("a",), acknowledged=IncidentNote(who="ben"), false=IncidentNote(who="ada", why="a test")),
}  # fmt: skip
STORY = TimelineReply(
    at=NOON + 60 * MINUTE,
    began=NOON,
    ended=NOON + 40 * MINUTE,
    events=(
        IncidentEvent(at=NOON + MINUTE, what="told", why="new"),
        IncidentEvent(at=NOON + 2 * MINUTE, what="acknowledged", who="ada", why="on it"),
        IncidentEvent(at=NOON + 3 * MINUTE, what="marked_false", who="ada", why="a test"),
        IncidentEvent(at=NOON + 4 * MINUTE, what="mark_removed", who="ada"),
        IncidentEvent(at=NOON + 30 * MINUTE, what="lapsed"),
        IncidentEvent(at=NOON + 31 * MINUTE, what="told", why="escalated"),
        IncidentEvent(at=NOON + 32 * MINUTE, what="taken_back", who="mia", why="not mine"),
        IncidentEvent(at=NOON + 33 * MINUTE, what="recovery", who="mia", why="drained"),
        IncidentEvent(at=NOON + 40 * MINUTE, what="ended", why="forgotten"),
    ),
    deliveries=[
        DeliveryRow(channel="oncall", created=NOON + MINUTE, outcome=DeliveryOutcome.DELIVERED),
        DeliveryRow(channel="chat", created=NOON + MINUTE, outcome=DeliveryOutcome.REFUSED, tries=3, error="HTTP 404"),
        DeliveryRow(channel="chat", created=NOON + 20 * MINUTE, outcome=DeliveryOutcome.SUPERSEDED),
    ],
)
WELL = replace(STORY, events=(IncidentEvent(at=NOON + MINUTE, what="ended", why="resolved"),), deliveries=[])
RULE = Matcher("rule", "gpu_hot")
SILENCES = {
    "in force": Silence(
        id="s1",
        matchers=(RULE, Matcher("node", "dgx-.*", is_regex=True)),
        who="ada",
        why="a swap",
        starts=NOON,
        ends=NOON + 65 * MINUTE,
    ),
    "planned": Silence(
        id="s2",
        matchers=(RULE,),
        who="ada",
        why="a swap",
        starts=NOON + 10 * MINUTE,
        ends=NOON + 65 * MINUTE,
        maintenance=True,
    ),
    "over": Silence(id="s3", matchers=(RULE,), who="ada", why="a swap", starts=NOON - 9 * MINUTE, ends=NOON - MINUTE),
}
FAULT = PastFault(
    at=NOON - 900 * MINUTE,
    rule="gpu_lost",
    severity=Severity.PAGE,
    node="dgx-07",
    place="slot 3",
    serial="1650",
    incident="old",
)
CARD = Evidence(
    alert=HOT.key, rule="gpu_hot", severity=Severity.PAGE, subject=Subject.GPU, summary=HOT.summary, moment=NOON, collected=NOON,
    node="dgx-01", index="3", uuid="GPU-1", serial="1650", slot="3",
    jobs=(AffectedJob(scheduler="slurm", job="4711", job_name="pretrain", user="ada", account="physics", gpus=("3", "4")),
          AffectedJob(scheduler="container", job="c1", job_name="c1")),
    jobs_total=2,
    nearby=(NearbyEvent(at=NOON, kind="event", what="xid 79", index="3", line="NVRM: Xid"), NearbyEvent(at=NOON, kind="event", what="driver_log", line="NVRM: what"),
            NearbyEvent(at=NOON, kind="event", what="driver_log", line="NVRM: again"), NearbyEvent(at=NOON, kind="alert", what="node_silent", text="it is silent")),
    nearby_total=4, history=FaultHistory(board=(FAULT, FAULT), board_total=2),
)  # fmt: skip


def plain(body: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", body.replace("</dt>", " "))).split())


def test_every_alert_and_incident_reads_as_kept() -> None:
    """Place, value, state and notification of alerts; who took an incident and what it suppresses; silences."""
    alerts = {
        name: [place_of(one), value_words(one), *golden.told([value_row(one), state_row(one), notified_row(one)])]
        for name, one in ALERTS.items()
    }
    incidents = {
        f"incident {name}": [
            f"{one.title} | {short_title(one.title)}", *golden.told([where_row(one), inhibited_row(one)]),
            all_firing(one.firing, one.total), acknowledged(one.acknowledged, time_of_day), *([marked_false(one.false)] if one.false else []),
        ]
        for name, one in INCIDENTS.items()
    }  # fmt: skip
    silences = {
        f"silence {name}": [silence_kind(one), matchers_words(one), *golden.told([silence_row(one, NOON)])]
        for name, one in SILENCES.items()
    }
    golden.check("alert", {**alerts, **incidents, **silences})


def on(node: str, gpu: int, **changed: Any) -> Alert:
    """Return the alert of `HOT` on another GPU."""
    place = f"{node} GPU {gpu}"
    summary = changed.pop("summary", "{} is too hot: {}").format(place, changed.get("value_text", "92 °C"))
    labels = {"gpu": str(gpu), **changed.pop("labels", {})}
    return replace(HOT, node=node, gpu=f"{node}-{gpu}", labels=labels, summary=summary, **changed)


LOST = {"rule": "gpu_lost", "summary": "{} has fallen off the bus", "value_text": ""}
FAULT_OF = {"rule": "gpu_fault", "summary": "{} has a fatal fault ({})"}
TITLES = {
    "dgx-01 GPU 3 has fallen off the bus": [on("dgx-01", 3, **LOST)],
    "8 GPUs of dgx-01 have fallen off the bus": [on("dgx-01", n, **LOST) for n in range(8)],
    "12 GPUs on 3 nodes have fallen off the bus": [on(f"dgx-0{n % 3}", n, **LOST) for n in range(12)],
    # of a quantity the least and the greatest, of XIDs each
    "3 GPUs of dgx-01 are too hot: 88 °C to 101 °C": [on("dgx-01", n, value=v, value_text=f"{v:g} °C") for n, v in enumerate((92.0, 101.0, 88.0))],
    "2 GPUs of dgx-01 have a fatal fault (XID 62, XID 109)": [on("dgx-01", n, value=v, value_text=f"XID {v:g}", **FAULT_OF) for n, v in enumerate((109.0, 62.0))],
    "heat has slowed 2 GPUs of dgx-01 down for 3% to 12% of their time": [on("dgx-01", n, summary="heat has slowed {} down for {} of its time", value=n, value_text=t) for n, t in ((1, "3%"), (12, "12%"))],
    "NVLink down: 2 GPUs of dgx-01": [on("dgx-01", n // 18, subject=Subject.LINK, labels={"link": str(n % 18)}, summary=f"NVLink down: {{}} link {n % 18}") for n in range(36)],
    # another rule on the same GPUs, on others, and on their node
    "2 GPUs of dgx-01 have fallen off the bus": [on("dgx-01", n, **its) for n in range(2) for its in (LOST, FAULT_OF)],
    "2 GPUs of dgx-01 have fallen off the bus (and 3 more GPUs)": [*(on("dgx-01", n, **LOST) for n in range(2)), *(on("dgx-01", n, **FAULT_OF) for n in range(1, 5))],
    "2 GPUs of dgx-01 have fallen off the bus (and 1 more alert)": [*(on("dgx-01", n, **LOST) for n in range(2)), replace(HOT, gpu=None, subject=Subject.NODE, rule="driver_hung", labels={})],
    "dgx-01 GPU 0 has fallen off the bus (and 1 more GPU)": [on("dgx-01", 0, **LOST), on("dgx-01", 0, **FAULT_OF), on("dgx-01", 1, **FAULT_OF)],
    # no place of a GPU in it
    "dgx-01 has ended (and 1 more alike on 2 nodes)": [replace(HOT, node=f"dgx-0{n}", gpu=None, subject=Subject.NODE, labels={}, summary=f"dgx-0{n} has ended") for n in (1, 2)],
}  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_a_title_says_how_many_of_what_and_where(title: str) -> None:
    """Titles with GPUs counted; once "dgx-01 GPU 0 has fallen off the bus (and 7 more alike)"."""
    alerts = TITLES[title]
    assert title_of(alerts[0], alerts) == title
    assert title_of(alerts[0], [alerts[0], *reversed(alerts[1:])]) == title
    assert "more" not in short_title(title)


def test_what_happened_reads_as_kept() -> None:
    """Every event, reasons of notifications alone and as a page has them, and evidence."""
    reasons = ("new", "worse", "more", "fewer", "cause", "repeat", "escalated", "new_channel", "flapping", "storm", "merged", "forgotten")  # fmt: skip
    story = [f"{time_of_day(at)} {words}" for at, words in timeline_entries(STORY)]
    evidence = [
        *golden.told([nearby_row(CARD), *(row for row, _ in history_rows(CARD))]),
        *map(job_text, CARD.jobs),
        *map(nearby_what, CARD.nearby),
    ]
    golden.check(
        "timeline",
        {"a story": story, "well again": [words for _, words in timeline_entries(WELL)],
         "reasons": [f"{reason_words(one)} | {reason_words(one, whole=True)}" for one in reasons], "evidence": evidence},
    )  # fmt: skip


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_four_faces_say_the_same_of_an_incident(name: str) -> None:
    """Its value, who took it, what it suppresses; the terminal has times of the day."""
    one = INCIDENTS[name]
    shown = state([one])
    terminal = " ".join(" ".join(map(line_text, drawn_lines(shown, "k", 4000, 80, utc=True))).split())
    notice = Notice(id="n", action=Action.TRIGGER, incident=one, at=NOON)
    faces = {
        "web": plain(incident_body(one, STORY, None, NOON)),
        "command": " ".join(" ".join(incident_lines([one], NOON)).split()),
        "page": " ".join(f"{fact.name} {fact.value}" for fact in page_of(notice, Links(), NOON).facts),
        "terminal": terminal,
    }
    for face, said in faces.items():
        assert value_row(HOT).value in said, face
        assert inhibited_row(one).value in said, face
        if one.acknowledged is not None:
            clock = time_of_day if face == "terminal" else timestamp
            assert acknowledged(one.acknowledged, clock) in said.replace("Acknowledged by", "acknowledged by"), face
        if one.false is not None and face in {"web", "command"}:
            assert marked_false(one.false) in said, face


def test_two_faces_say_the_same_of_what_happened() -> None:
    web = plain(incident_body(ALONE, STORY, None, NOON))
    terminal = " ".join(
        map(line_text, drawn_lines(state([ALONE]), "k", 4000, 80, utc=True, timeline=replace(STORY, began=0)))
    )
    for _, words in timeline_entries(STORY):
        assert words in web
    assert "what happened" in terminal


@pytest.mark.parametrize("name", ALERTS)
def test_two_faces_say_the_same_of_an_alert(name: str) -> None:
    one = ALERTS[name]
    web, command = plain(alert_rows_body([one], NOON)), " ".join(alert_lines([one], NOON)[1].split())
    for said in (web, command):
        assert value_row(one).value in said
        assert notified_row(one).value in said
    assert place_of(one) in web


@pytest.mark.parametrize("name", SILENCES)
def test_two_faces_say_the_same_of_a_silence(name: str) -> None:
    one = SILENCES[name]
    web, command = plain(silences_body([one], NOON)), " ".join(silence_lines([one], NOON)[1].split())
    assert silence_row(one, NOON).short in web
    assert silence_row(one, NOON).text in command
    for said in (web, command):
        assert silence_kind(one) in said
        assert matchers_words(one) in said


def test_the_four_faces_say_the_same_of_the_evidence() -> None:
    reply = EvidenceReply(at=NOON, incident="k", cards=(CARD,))
    faces = {
        "web": plain(incident_body(ALONE, None, reply, NOON)),
        "command": " ".join(" ".join(card_lines(CARD)).split()),
        "page": " ".join(f"{name} {value}" for name, value in facts_of(reply)),
        "terminal": " ".join(line_text(line) for line in evidence_drawn(reply, 4000, utc=True)),
    }
    for face, said in faces.items():
        for row, _ in history_rows(CARD):
            assert row.value in said, face
        if face in {"web", "command"}:
            assert all(job_text(job) in said for job in CARD.jobs), face
            assert all(nearby_what(one) in said for one in CARD.nearby), face
        else:
            assert nearby_row(CARD).value in said, face


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("has", "have"),
        ("was", "were"),
        ("runs", "run"),
        ("reaches", "reach"),
        ("misses", "miss"),
        ("carries", "carry"),
        ("fell", "fell"),
    ],
)
def test_several_do_what_one_does(one: str, several: str) -> None:
    summary = f"dgx-01 GPU 0 {one} it"
    alerts = [on("dgx-01", n, **(LOST | {"summary": summary.replace("GPU 0", f"GPU {n}")})) for n in range(2)]
    assert title_of(alerts[0], alerts) == f"2 GPUs of dgx-01 {several} it"
