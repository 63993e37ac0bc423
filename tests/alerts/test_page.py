"""What whoever is woken reads."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.delivery.outbox import sample_notice
from alerts.message.formats import details, markdown, text
from alerts.message.page import Links, Page, page_of
from alerts.message.text import clean, cut, cut_bytes
from alerts.notice import Notice
from api.alerts import Action, Alert, AlertState, Incident, IncidentNote, Severity, Subject
from tests.alerts.notices import MINUTE, NOON, alert, incident, notice

LINKS = Links(
    cluster="hall-1",
    external="https://kilowatch.example",
    runbook="https://docs.example/runbook",
    dashboard="https://grafana.example/d/x?n={node}&g={gpu}&u={uuid}&c={circuit}&from={from}&to={to}",
)
EVIL = "dgx\x1b[2J\u202e\u0007\r\nROOT$(reboot)`id`;'\"<!channel>@here"


def page(what: Notice | None = None, links: Links = LINKS) -> Page:
    """A page, three minutes after noon."""
    return page_of(what or notice(), links, NOON + 3 * MINUTE)


def replaced(**more: object) -> Incident:
    """An incident with something else in it."""
    return msgspec.structs.replace(incident(), **more)


def test_a_page_says_what_where_since_when_how_bad_who_and_what_to_do() -> None:
    assert text(page()).splitlines() == [
        "[PAGE] dgx-01 GPU 3 fell off the bus, since 12:00 UTC",
        "Drain the node, power it off and on, and run dcgmi.",
        "Meaning: The driver has lost it.",
        "Runs there: job 4711 · user ada",
        "Rule: gpu_lost",
        "Remedy: cold start",
        "Node: dgx-01 · rack r12 · cluster hall-1",
        "GPU: 3 · NVIDIA H100 80GB HBM3 · GPU-00000003-0000-0000-0000-000000000003 · "
        "serial 1652622032001 · PCI 00000000:3B:00.0 · slot 4",
        "Circuits: PDU-A-12,PDU-B-12",
        "Value: XID 79",
        "Since: 2026-08-01 12:00:00 UTC (3 min)",
        "Incident: https://kilowatch.example/incidents/i-1",
        "Runbook: https://docs.example/runbook#gpu-lost",
        "Dashboard: https://grafana.example/d/x?n=dgx-01&g=3"
        "&u=GPU-00000003-0000-0000-0000-000000000003&c=PDU-A-12"
        "&from=1785583800000&to=1785585780000",
        "Acknowledge: kilowatch ack i-1 --why 'I am on it'",
        "Silence: kilowatch silence rule=gpu_lost node=dgx-01 "
        "uuid=GPU-00000003-0000-0000-0000-000000000003 --for 2h --why '...'",
        "Recover: kilowatch recover GPU-00000003-0000-0000-0000-000000000003",
    ]


def test_since_is_the_onset_and_not_when_the_rule_fired() -> None:
    """A rule that holds for 35 s says a minute later how long it has been."""
    early = msgspec.structs.replace(alert(), since=NOON - 35 * MINUTE // 60)
    said = text(page(notice(about=incident(alerts=[early, alert()]))))
    assert "Since: 2026-08-01 11:59:25 UTC (3 min 35 s, seen 35 s later)" in said.splitlines()
    over = msgspec.structs.replace(incident(alerts=[early]), ended=NOON + MINUTE)
    assert "From: 2026-08-01 11:59:25 UTC" in text(page(notice(about=over)))


def test_the_owner_stands_behind_what_to_do() -> None:
    owned = msgspec.structs.replace(incident(), owner="platform team, #gpus")
    said = page(notice(about=owned))
    assert text(said).splitlines()[1:4] == [
        "Drain the node, power it off and on, and run dcgmi.",
        "Owner: platform team, #gpus",
        "Meaning: The driver has lost it.",
    ]
    assert details(said)["Owner"] == "platform team, #gpus"
    assert "Owner: platform team, \\#gpus" in markdown(said)


def test_an_onset_of_another_day_says_its_day() -> None:
    early = msgspec.structs.replace(alert(), since=NOON - 13 * 60 * MINUTE)
    said = page(notice(about=incident(alerts=[early])))
    assert said.title == "dgx-01 GPU 3 fell off the bus, since 2026-07-31 23:00 UTC"


@pytest.mark.parametrize(
    ("summary", "limit", "facts"),
    [
        ("dgx-01 GPU 3 has a fault (XID 79)", "", {}),
        ("dgx-01 GPU 3 has a fault", "", {"Value": "XID 79"}),
        ("dgx-01 GPU 3 has a fault (XID 79)", "XID 13", {"Value": "XID 79", "Limit": "XID 13"}),
        ("dgx-01 GPU 3 has a fault", "XID 79", {}),
    ],
)
def test_a_value_that_the_title_has_or_that_is_its_limit_is_not_repeated(
    summary: str, limit: str, facts: dict[str, str]
) -> None:
    one = msgspec.structs.replace(alert(), summary=summary, limit_text=limit)
    said = page(notice(about=incident(alerts=[one])))
    assert {name: value for name, value in said.facts if name in {"Value", "Limit"}} == facts


def test_a_rule_that_names_no_act_has_what_to_do_in_its_meaning() -> None:
    """A rule of an operator's file, as they were written before."""
    old = msgspec.structs.replace(alert(), act="", description="Drain it. The driver has lost it.")
    said = page(notice(about=incident(alerts=[old])))
    assert (said.act, said.meaning) == ("Drain it. The driver has lost it.", "")


def test_a_part_of_kilowatch_itself_is_placed_by_its_cluster() -> None:
    own = Alert(
        key="k",
        rule="bus_lost",
        state=AlertState.FIRING,
        severity=Severity.PAGE,
        node="",
        subject=Subject.NODE,
        labels={"cluster": "hall-1"},
        summary="kilowatch receives nothing",
    )
    said = page(notice(about=incident(alerts=[own])))
    assert said.title == "kilowatch receives nothing, cluster hall-1, since 12:00 UTC"
    assert "name=" not in dict(said.commands)["Silence"]


def test_what_is_not_known_is_not_said() -> None:
    bare = Alert(
        key="k",
        rule="silent",
        state=AlertState.FIRING,
        severity=Severity.PAGE,
        node="n1",
        subject=Subject.NODE,
        summary="n1 is silent",
    )
    said = text(page(notice(about=incident(alerts=[bare])), Links()))
    assert said.splitlines() == [
        "[PAGE] n1 is silent, since 12:00 UTC",
        "Rule: silent",
        "Node: n1",
        "Since: 2026-08-01 12:00:00 UTC (3 min)",
        "Acknowledge: kilowatch ack i-1 --why 'I am on it'",
        "Silence: kilowatch silence rule=silent node=n1 --for 2h --why '...'",
    ]


def test_a_test_offers_no_command_on_an_incident_that_does_not_exist() -> None:
    page = page_of(sample_notice("pager", "hall-1", Action.TRIGGER, NOON), Links(), NOON)
    assert page.tag == "TEST"
    assert page.commands == ()


def test_a_circuit_is_told_by_its_name_with_value_and_limit() -> None:
    overload = Alert(
        key="E02/circuit/A-12",
        id="E02",
        rule="circuit_overload",
        state=AlertState.FIRING,
        severity=Severity.PAGE,
        node="",
        subject=Subject.CIRCUIT,
        name="A-12",
        value=27.5,
        value_text="27.5 A",
        limit=25.6,
        limit_text="25.6 A (80 % of 32 A)",
        summary="A-12 carries 27.5 A",
        runbook="e02",
    )
    said = text(page(notice(about=incident(alerts=[overload])), Links()))
    assert "Rule: circuit_overload (E02)\nCircuit: A-12\n" in said
    assert "Value: 27.5 A\nLimit: 25.6 A (80 % of 32 A)\n" in said
    assert "Runbook: docs/runbook.md#e02" in said
    assert "kilowatch silence rule=circuit_overload name=A-12 " in said


def test_many_alike_are_counted_by_node_and_some_are_named() -> None:
    alerts = [alert(node=f"dgx-{number // 8:02d}", gpu=number % 8) for number in range(24)]
    said = page(notice(about=incident(alerts=alerts)))
    assert dict(said.facts)["Alike"] == "24 of 24 alerts fire on 3 nodes"
    assert len(said.others) == 6
    assert said.others[-1] == "and 18 more"
    assert "silence rule=gpu_lost rack=r12 " in dict(said.commands)["Silence"]
    more = msgspec.structs.replace(incident(alerts=alerts), firing=300, total=310)
    said = dict(page(notice(about=more)).facts)
    assert said["Alike"] == "300 of 310 alerts fire on at least 3 nodes"


def test_a_storm_begins_with_what_its_nodes_share_and_asks_for_no_remedy_of_one() -> None:
    alerts = [alert(node=f"dgx-{number:02d}", since=NOON + number * 1_000_000_000) for number in range(4)]
    group = {"rule": "storm", "severity": "page"}
    storm = msgspec.structs.replace(incident(alerts=alerts), group=group, shared=("rack r12",), remediation=None)
    said = page(notice(about=storm, reason="storm"))
    assert said.act.startswith("Look at what they share first: rack r12. Don't repair GPU by GPU")
    assert said.meaning.endswith("Those listed began within 3 s.")
    assert {"Remedy", "GPU", "Node", "Rule"}.isdisjoint(dict(said.facts))
    assert dict(said.facts)["Shared"] == "rack r12"
    assert [name for name, _ in said.commands] == ["Acknowledge"]


def test_an_end_says_how_long_it_took_and_asks_for_nothing() -> None:
    over = notice(Action.RESOLVE, about=replaced(ended=NOON + 90 * MINUTE, firing=0))
    said = page_of(over, LINKS, NOON + 91 * MINUTE)
    assert said.headline == "[RESOLVED] dgx-01 GPU 3 fell off the bus"
    assert dict(said.facts)["Until"] == "2026-08-01 13:30:00 UTC (90 min)"
    assert (said.commands, said.act, said.meaning, said.others) == ((), "", "", ())


@pytest.mark.parametrize(
    ("what", "headline", "fact"),
    [
        (notice(Action.UPDATE), "[UPDATE] ", None),
        (notice(severity=Severity.TICKET), "[TICKET] ", None),
        (notice(reason="repeat"), "[PAGE] ", ("Sent because", "nobody has acknowledged it")),
        (notice(reason="worse"), "[PAGE] ", ("Sent because", "it grew worse")),
        (
            notice(Action.ACKNOWLEDGE, about=replaced(acknowledged=IncidentNote(who="ada", why="on it", at=NOON))),
            "[ACKNOWLEDGED] ",
            ("Acknowledged", "by ada at 2026-08-01 12:00:00 UTC: on it"),
        ),
        (notice(about=replaced(inhibited=("a", "b"))), "[PAGE] ", ("Inhibited", "2 consequences, not notified")),
    ],
)
def test_each_kind_of_notice_says_which_it_is(what: Notice, headline: str, fact: tuple[str, str] | None) -> None:
    said = page(what)
    assert said.headline.startswith(headline)
    assert fact is None or fact in said.facts


def test_nothing_from_the_bus_can_do_harm() -> None:
    bad = alert(node=EVIL, labels=dict.fromkeys(("job", "serial", "rack", "slot", "gpu"), EVIL))
    bad = msgspec.structs.replace(bad, summary=EVIL, act=EVIL, description=EVIL, value_text=EVIL)
    about = msgspec.structs.replace(incident(EVIL, alerts=[bad]), title=EVIL)
    said = page(notice(about=about))
    for whole in (text(said), markdown(said), str(details(said))):
        assert all(one.isprintable() or one in "\n\u2060" for one in whole)
    for command in said.commands:
        words = shlex.split(command.value)  # a shell would take it for these words, and run nothing
        assert words[0] == "kilowatch"
        assert command.name == "Recover" or any("ROOT$(reboot)" in word for word in words[1:])
    assert "\nROOT" not in text(said)
    assert "[dgx" not in markdown(said)


@given(st.text(max_size=600), st.integers(0, 5000), st.integers(0, 5000))
def test_every_form_stays_within_its_limit(words: str, limit: int, size: int) -> None:
    long = msgspec.structs.replace(alert(), summary=words, description=words * (size // 100))
    said = page(notice(about=msgspec.structs.replace(incident(alerts=[long] * 9), title=words)))
    for form in (text, markdown):
        whole = form(said, limit)
        assert len(whole) <= limit
        assert all(one.isprintable() or one in "\n\u2060" for one in whole)


def test_when_room_is_short_the_place_and_the_commands_stay_longest() -> None:
    wordy = msgspec.structs.replace(alert(), description="word " * 1000)
    others = [alert(gpu=number) for number in range(4, 8)]
    said = page(notice(about=incident(alerts=[wordy, *others])))
    short = text(said, 1500)
    assert "Also:" not in short
    assert "kilowatch silence" in short
    assert "word …" in short or "word…" in short


def test_texts_are_cut_by_characters_and_by_bytes() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""
    assert cut_bytes("ü" * 10, 20) == "ü" * 10
    assert len(cut_bytes("ü" * 10, 9).encode()) <= 9
    assert clean("a\tb\n\n c\x00\u200bd", 6) == "a b c…"


def test_an_incident_of_a_build_that_knew_no_owner_is_paged_without_one() -> None:
    """The journal of such a build has null there: a record that can't be read would be lost."""
    before = msgspec.to_builtins(incident())
    before["owner"] = before["alerts"][0]["owner"] = None
    found = page(notice(about=msgspec.convert(before, Incident)))
    assert found.owner == ""
    assert "Owner" not in text(found)
