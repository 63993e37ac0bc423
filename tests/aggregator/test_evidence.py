"""Evidence of incidents, on a real aggregator with a real store, journal, broker and pager."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import numpy as np
import pytest

from aggregator.config import AggregatorConfig, StoreConfig
from aggregator.evidence import collector as evidence
from aggregator.service import Aggregator
from aggregator.store.protocol import FleetPast, PastInstants, StoredDevice
from alerts.config import AlertsConfig
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal
from alerts.message.card import card_of
from alerts.message.page import Links
from api.alerts import Action, Alert, AlertState
from api.evidence import Evidence, EvidenceReply
from telemetry.devices import Event, Gpu
from telemetry.gap import TIMED_OUT
from telemetry.metric import Table
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.topics import Topic
from tests.aggregator.fake_view import FakeView, give_jobs
from tests.aggregator.http_client import small_cluster
from tests.aggregator.node import ScriptedNode, payload
from tests.aggregator.node import inventory as bare
from tests.aggregator.test_service import running
from tests.alerts.notices import alert, incident, notice
from tests.alerts.pager import Call, Pager
from tests.brokers import Broker
from tests.kit.waiting import end_of_patience, until

pytestmark = pytest.mark.systems
EVIL = "\x1b[2J\u202e<script>alert(1)</script>$(reboot)`id`"
SERIAL = "1652622032001"
DAY = 86_400 * 10**9
PUBLIC = "https://kilowatch.example"


class LiveNode(ScriptedNode):
    """A scripted node whose frames are sampled now, with boards that have serial numbers."""

    slot = EVIL

    def sample(self) -> tuple[int, bytes]:
        """Make the next frame, now."""
        seq = self.made.get(self.session, 0)
        self.made[self.session] = seq + 1
        encoded = payload(self.name, self.gpus, self.session, seq, at=time.time_ns())
        self.ring.setdefault(self.session, {})[seq] = encoded
        return seq, encoded

    async def hello(self) -> None:
        """Publish who it is, with names that would do harm."""
        await super().hello()  # its inventory is replaced at once
        await self.publish(Topic.INVENTORY, messages.encode(self.described()), retain=True)

    def described(self) -> Inventory:
        """Return its inventory: GPU 0 is a board that moves."""
        what = bare(self.name, self.gpus, self.session, version=1)
        gpus = tuple(
            msgspec.structs.replace(
                gpu,
                uuid="GPU-moves" if gpu.index == 0 else gpu.uuid,
                serial=SERIAL if gpu.index == 0 else None,
                pci=f"0000:{gpu.index + 1:02x}:00.0",
                slot=self.slot,
            )
            for gpu in what.gpus
        )
        return msgspec.structs.replace(what, gpus=gpus, host={"rack": EVIL, "job": "4711"})

    async def xid(self, number: int, gpu: Gpu, xid: int = 79) -> None:
        """Publish an XID of a GPU, now."""
        event = Event(
            id=f"{self.session}-{number}",
            node=self.name,
            at=time.time_ns(),
            kind="xid",
            gpu=gpu.uuid,
            pci=gpu.pci,
            data={"xid": xid, "line": f"NVRM: Xid: {xid} {EVIL}"},
        )
        await self.publish(Topic.EVENT, messages.encode(event))


def config(broker: Broker, folder: Path, pager: Pager) -> AggregatorConfig:
    return AggregatorConfig(
        broker=broker.config,
        data_dir=folder / "data",
        listen="127.0.0.1:0",
        flush_seconds=0.05,
        rule_seconds=0.1,
        store=StoreConfig(write_seconds=0.1),
        alerts=AlertsConfig(channels={"oncall": pager.settings(folder)}, group_wait_seconds=0, external_url=PUBLIC),
    )


async def fetched(aggregator: Aggregator, path: str) -> tuple[int, str, str]:
    """Return status, type and text of an answer, as a browser on the machine gets it."""
    await until(aggregator.serving.is_set)
    assert aggregator.http_address is not None
    host, port = aggregator.http_address
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, answer.content_type, await answer.text()


async def seen(aggregator: Aggregator, node: LiveNode) -> None:
    """Wait until frames of a node are in the fleet and in the store."""
    await until(lambda: "GPU-moves" in aggregator.fleet.by_uuid)
    stored = aggregator.stats.frames_stored
    for _ in range(4):
        await node.tick()
        await asyncio.sleep(0.05)
    await until(lambda: aggregator.stats.frames_stored >= stored + 4)


async def rung(pager: Pager, count: int = 1) -> list[Call]:
    """Wait for so many triggers."""
    await until(lambda: sum(call.action == "trigger" for call in pager.calls) >= count)
    return [call for call in pager.calls if call.action == "trigger"]


def texts(tree: Any) -> list[str]:
    """Return all texts of a document."""
    if isinstance(tree, dict):
        return [text for pair in tree.items() for part in pair for text in texts(part)]
    if isinstance(tree, list):
        return [text for part in tree for text in texts(part)]
    return [tree] if isinstance(tree, str) else []


async def test_a_page_brings_its_evidence_and_the_api_and_the_journal_keep_it(broker: Broker, tmp_path: Path) -> None:
    pager, node = Pager(), LiveNode(broker.config, "a")
    settings = config(broker, tmp_path, pager)
    async with pager.listening(), node:
        async with running(settings) as aggregator:
            await seen(aggregator, node)
            lost, other = node.described().gpus
            await node.xid(1, other, 13)
            await node.xid(2, lost)
            (call,) = await rung(pager)
            key = call.key
            status, _, body = await fetched(aggregator, f"/api/v1/incidents/{quote(key, safe='')}/evidence")
        details = call.body["payload"]["custom_details"]
        assert status == 200
        reply = msgspec.json.decode(body, type=EvidenceReply)
        (card,) = reply.cards
        assert card.uuid == lost.uuid
        assert (card.node, card.index, card.serial) == ("a", "0", SERIAL)
        assert card.pci == lost.pci
        for text in (card.slot, card.rack, card.lines[0].line):
            assert text.endswith("<script>alert(1)</script>$(reboot)`id`")
            assert text.isprintable()
        assert any(near.gpu == other.uuid for near in card.nearby)
        # readings: the last instants are numbers, those of before the first frame are gaps
        columns = card.readings.columns
        assert len(columns["gpu_temperature_celsius"]) == len(card.readings.at) >= 2
        assert columns["gpu_temperature_celsius"][-1] is not None
        assert columns["gpu_temperature_celsius"][0] is None
        assert columns["gpu_ecc_volatile_corrected_total"][-1] is None
        assert card.readings.gaps["gpu_ecc_volatile_corrected_total"] == "not_read"
        assert card.missing == {}
        assert card.history is not None
        assert card.history.board_total == 0
        assert card.remedy.what
        assert card.remedy.runbook == f"{PUBLIC}/runbook/{card.rule}"
        commands = {one.name: one.command for one in card.commands}
        assert commands["Silence"].startswith(f"kilowatch silence rule={card.rule} node=a uuid=GPU-moves ")
        # the page has the short form, and the data
        assert any(one["uuid"] == lost.uuid for one in details["Evidence"])
        assert "NVRM: Xid: 79" in details["Log"]
        assert details["This board"] == "no other fault in 30 days"
        assert {"href": f"{PUBLIC}/runbook/{card.rule}", "text": "Runbook"} in call.body["links"]
        assert all(text.replace("\n", "").isprintable() for text in texts(call.body))
        assert not (settings.data_dir / "picture.key").exists()  # no channel has pictures
        # after a restart it is still there
        pager.take_calls()
        async with running(settings) as aggregator:
            path = f"/api/v1/incidents/{quote(key, safe='')}/evidence"
            status, _, again = await fetched(aggregator, path)
            assert status == 200
            assert msgspec.json.decode(again, type=EvidenceReply).cards == reply.cards


async def test_a_board_is_known_again_in_another_node(broker: Broker, tmp_path: Path) -> None:
    """By its serial number, from the journal; and a slot remembers the boards that were in it."""
    pager, node = Pager(), LiveNode(broker.config, "b")
    settings = config(broker, tmp_path, pager)
    settings.data_dir.mkdir()
    before = time.time_ns() - 10 * DAY
    pci = node.described().gpus[0].pci or ""
    journal = Journal.open(settings.data_dir / "alerts.sqlite", before)
    known = {"serial": SERIAL, "pci": pci, "slot": "7"}
    there = {"serial": "another", "pci": pci, "slot": "2"}
    past = (
        incident("moved", [alert(node="a", since=before, labels=known)], ended=before + DAY),
        incident("lost", [alert(node="b", since=before + DAY, labels=there)], ended=before + DAY),
        incident("old", [alert(node="a", since=before - 25 * DAY, labels=known)], ended=before),
    )
    journal.commit(IncidentChanges(incidents=past, wall_ns=before), lambda *_: {})
    journal.close()
    node.slot = "2"
    async with pager.listening(), running(settings) as aggregator, node:
        await seen(aggregator, node)
        await node.xid(1, node.described().gpus[0])
        (call,) = await rung(pager)
    details = call.body["payload"]["custom_details"]
    (card,) = details["Evidence"]
    assert [(one["node"], one["place"]) for one in card["history"]["board"]] == [("a", "slot 7")]
    assert [one["serial"] for one in card["history"]["slot"]] == ["another"]
    assert details["This board"].startswith("1 other fault in 30 days: gpu_lost; the last ")
    assert details["This board"].endswith(" on a")
    assert details["This slot"].startswith("1 other fault in 30 days")


async def test_a_page_goes_without_evidence_when_the_store_hangs_and_says_so(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late at most by the bound; what was in memory is on the card all the same."""
    monkeypatch.setattr(evidence, "PAGE_SECONDS", 0.3)
    monkeypatch.setattr(evidence, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(evidence, "QUERY_SECONDS", 1.0)
    pager, node = Pager(), LiveNode(broker.config, "a")
    async with pager.listening(), running(config(broker, tmp_path, pager)) as aggregator, node:
        await seen(aggregator, node)

        async def hangs(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(aggregator.store, "past", hangs)
        monkeypatch.setattr(aggregator.store, "events", hangs)
        await node.xid(1, node.described().gpus[0])
        (call,) = await rung(pager)
        details = call.body["payload"]["custom_details"]
        assert details["Evidence"].startswith("not collected in time; later: kilowatch alerts show ")
        path = f"/api/v1/incidents/{quote(call.key, safe='')}/evidence"
        _, _, body = await fetched(aggregator, path)
    (card,) = msgspec.json.decode(body, type=EvidenceReply).cards
    assert card.missing == {"lines": "not collected in time", "readings": "not collected in time"}
    assert card.lines[0].line.startswith("NVRM: Xid: 79")
    assert card.readings.columns["gpu_temperature_celsius"][-1] is not None


async def test_a_fault_of_the_collector_costs_no_page(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raises(*_: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(evidence.EvidenceCollector, "of_notice", raises)
    pager, node = Pager(), LiveNode(broker.config, "a")
    async with pager.listening(), running(config(broker, tmp_path, pager)) as aggregator, node:
        await seen(aggregator, node)
        await node.xid(1, node.described().gpus[0])
        (call,) = await rung(pager)
    details = call.body["payload"]["custom_details"]
    assert "Evidence" not in details
    assert details["Rule"] == "gpu_lost"


async def test_a_card_that_can_t_be_made_costs_no_page_and_is_an_alert(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident is paged without it, `/healthz` names its rule, and the alert names the cause."""

    def raises(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(evidence, "card_of", raises)
    pager, node = Pager(), LiveNode(broker.config, "a")
    async with pager.listening(), running(config(broker, tmp_path, pager)) as aggregator, node:
        await seen(aggregator, node)
        await node.xid(1, node.described().gpus[0])
        await rung(pager)
        key = "alerting_impaired/evidence/gpu_lost"
        await until(lambda: any(one.key == key and one.state is AlertState.FIRING for one in aggregator.alerts()))
        (found,) = [one for one in aggregator.alerts() if one.key == key]
        _, _, health = await fetched(aggregator, "/healthz")
    assert "a fault of our own" in found.summary
    assert "evidence/gpu_lost" in health


async def test_a_card_that_can_t_be_made_costs_no_other_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "AGAIN_SECONDS", 0.3)

    def raises(about: Alert, *given: Any, **named: Any) -> Evidence:
        if about.gpu == both.alerts[0].gpu:
            raise RuntimeError("a fault of our own")
        return card_of(about, *given, **named)

    both = incident("i-1", [alert(node="n1", gpu=0), alert(node="n1", gpu=1)])
    async with collecting(tmp_path) as (collector, _):
        with monkeypatch.context() as patch:
            patch.setattr(evidence, "card_of", raises)
            (card,) = (await collector.of_incident(both)).cards
            assert card.uuid == both.alerts[1].gpu
            assert "a fault of our own" in collector.faults()[both.alerts[0].rule]
            assert not collector.faults(), "each is reported once"
        await until(lambda: len(collector._cards["i-1"]) == 2)
        assert not collector.faults()


async def test_a_query_or_a_journal_that_raises_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = incident("i-1", [alert(node="n1", gpu=0)])

    def raises(*_: object) -> None:
        raise RuntimeError("a fault of our own")

    async with collecting(tmp_path) as (collector, journal):
        monkeypatch.setattr(collector._view.store, "events", raises)
        monkeypatch.setattr(journal, "store_evidence", raises)
        (card,) = (await collector.of_incident(about)).cards
        assert "a fault of our own" in card.missing["lines"]
        found: dict[str, str] = {}

        def reported() -> bool:
            found.update(collector.faults())
            return "journal" in found

        await until(reported)
    assert found.keys() == {"journal", about.alerts[0].rule}


async def test_a_card_that_lacks_a_part_is_made_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "QUERY_SECONDS", 1.5)
    monkeypatch.setattr(evidence, "AGAIN_SECONDS", 0.3)
    pager, node = Pager(), LiveNode(broker.config, "a")
    async with pager.listening(), running(config(broker, tmp_path, pager)) as aggregator, node:
        await seen(aggregator, node)
        whole, tries = aggregator.store.past, []

        async def hangs_once(*asked: Any) -> Any:
            tries.append(asked)
            if len(tries) == 1:
                await asyncio.Event().wait()
            return await whole(*asked)

        monkeypatch.setattr(aggregator.store, "past", hangs_once)
        await node.xid(1, node.described().gpus[0])
        (call,) = await rung(pager)
        assert call.body["payload"]["custom_details"]["Evidence"][0]["missing"] == {"readings": "not collected in time"}
        path = f"/api/v1/incidents/{quote(call.key, safe='')}/evidence"
        deadline = end_of_patience(120)
        while True:
            _, _, body = await fetched(aggregator, path)
            (card,) = msgspec.json.decode(body, type=EvidenceReply).cards
            if not card.missing:
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert len(card.readings.at) > 2


@contextlib.asynccontextmanager
async def collecting(folder: Path) -> AsyncIterator[tuple[evidence.EvidenceCollector, Journal]]:
    """A collector that runs on a fleet of two nodes, and its journal."""
    view = await small_cluster()
    journal = Journal.open(folder / "alerts.sqlite", view.wall())
    collector = evidence.EvidenceCollector(view, journal, (), Links())
    task = asyncio.ensure_future(collector.run())
    try:
        yield collector, journal
    finally:
        task.cancel()
        await asyncio.wait([task])
        journal.close()


async def test_a_gpu_that_joins_while_the_cards_are_stored_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = incident("i-1", [alert(node="n1", gpu=0)])
    grown = incident("i-1", [alert(node="n1", gpu=0), alert(node="n1", gpu=1)])
    storing, go_on = threading.Event(), threading.Event()
    async with collecting(tmp_path) as (collector, journal):
        store = journal.store_evidence

        def slow(key: str, body: bytes) -> bool:
            storing.set()
            assert go_on.wait(30)
            return store(key, body)

        monkeypatch.setattr(journal, "store_evidence", slow)
        collector.note(IncidentChanges(notices=(notice(about=first),)))
        try:
            await until(storing.is_set)
            more = notice(Action.UPDATE, about=grown)
            collector.note(IncidentChanges(notices=(more,)))
        finally:
            go_on.set()

        def stored() -> set[str | None]:
            body = journal.evidence("i-1")
            cards = () if body is None else msgspec.json.decode(body, type=tuple[Evidence, ...])
            return {card.uuid for card in cards}

        await until(lambda: len(stored()) == 2)
        assert stored() == {one.gpu for one in grown.alerts}


async def test_a_page_about_a_gpu_that_joined_brings_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the journal is slow to store the first cards, and while the first card is made."""
    monkeypatch.setattr(evidence, "PAGE_SECONDS", 30.0)
    grown = [incident("i-1", [alert(node="n1", gpu=n) for n in range(count)]) for count in (1, 2, 3)]
    go_on = threading.Event()
    async with collecting(tmp_path) as (collector, journal):
        store = journal.store_evidence

        def slow(key: str, body: bytes) -> bool:
            assert go_on.wait(60)
            return store(key, body)

        monkeypatch.setattr(journal, "store_evidence", slow)
        try:
            for count, about in enumerate(grown, 1):
                page = notice(
                    Action.UPDATE if count > 1 else Action.TRIGGER,
                    about=about,
                    reason="more" if count > 1 else "new",
                    at=time.time_ns(),
                )
                collector.note(IncidentChanges(notices=(page,)))
                reply = await collector.of_notice(page)
                assert reply is not None
                assert {card.uuid for card in reply.cards} == {one.gpu for one in about.alerts}
                assert reply.cards[0].uuid == about.alerts[-1].gpu, "the newest comes first"
        finally:
            go_on.set()

        def stored() -> int:
            body = journal.evidence("i-1")
            return 0 if body is None else len(msgspec.json.decode(body, type=tuple[Evidence, ...]))

        await until(lambda: stored() == 3)


def test_a_reading_that_is_no_number_is_a_gap_on_the_card() -> None:
    """Neither infinity nor NaN is a reading; the reason of a gap stays."""
    latest = {
        "gpu_power_watts": float("inf"),
        "gpu_temperature_celsius": float("nan"),
        "gpu_sm_clock_hertz": TIMED_OUT,
        "gpu_utilization_ratio": 0.5,
        "gpu_pcie_replays_total": float("-inf"),
    }
    found = evidence._joined(((1,), {"gpu_power_watts": (1.0,)}), latest, 2)
    assert {name: values[-1] for name, values in found.columns.items() if name not in found.gaps} == {
        "gpu_utilization_ratio": 0.5
    }
    assert found.columns["gpu_power_watts"] == (1.0, None)
    assert found.gaps == {
        "gpu_power_watts": "error",
        "gpu_temperature_celsius": "unknown",
        "gpu_sm_clock_hertz": "timed_out",
        "gpu_pcie_replays_total": "error",
    }
    assert b"null" in msgspec.json.encode(found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


async def test_readings_of_the_past_that_are_no_numbers_are_gaps_on_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting(tmp_path) as (collector, _):
        about = incident("i-1", [alert(node="n1", gpu=0)])
        uuid = about.alerts[0].gpu

        async def past(_: Table, columns: Any, when: PastInstants, reach: object, nodes: Any) -> FleetPast:
            count = len(when.all())
            values = np.full((count, 1), np.inf, np.float32)
            values[0], values[1] = 5.0, np.nan
            device = StoredDevice(1, nodes[0], str(uuid))
            return FleetPast([device], dict.fromkeys(columns, values), {}, {}, set())

        monkeypatch.setattr(collector._view.store, "past", past)
        (card,) = (await collector.of_incident(about)).cards
    for name, values in card.readings.columns.items():
        assert values[:2] == (5.0, None), name
        assert set(values[2:-1]) <= {None}


async def test_a_card_has_the_jobs_that_held_the_gpu_or_the_node_at_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting(tmp_path) as (collector, _):
        view = collector._view
        assert isinstance(view, FakeView)
        lead = msgspec.structs.replace(alert(node="n1", gpu=0), gpu="GPU-n1-0", labels={}, since=view.wall())

        async def card(number: int, **more: Any) -> Evidence:
            about = incident(f"i-{number}", [msgspec.structs.replace(lead, **more)])
            return (await collector.of_incident(about)).cards[0]

        assert (await card(1)).jobs_total is None  # nobody says: that is not none
        give_jobs(view, ("n1", "4711", "ada", (0,)), ("n1", "4712", "bob", (1,)), ("n2", "1", "eve", (0,)))
        found = await card(2)
        assert (found.job, found.user, found.account) == ("4711", "ada", "physics")
        assert [one.gpus for one in found.jobs] == [("0",)]
        found = await card(3, gpu=None)
        assert ({one.user for one in found.jobs}, found.jobs_total, found.job) == ({"ada", "bob"}, 2, "")
        found = await card(4, since=view.wall() - 3 * 3600 * 10**9)
        assert (found.jobs, found.jobs_total) == ((), 0)  # it began an hour before them
        with monkeypatch.context() as patch:
            patch.setattr(view.jobs.ledger, "of_node", lambda _: 1 / 0)
            found = await card(5)
        assert (found.jobs_total, found.missing["jobs"][:20]) == (None, "they can't be read: ")
        assert "division" in collector.faults()[lead.rule]


async def test_who_asks_for_an_incident_gets_the_cards_that_it_lacks(tmp_path: Path) -> None:
    first = incident("i-1", [alert(node="n1", gpu=0)])
    grown = incident("i-1", [alert(node="n1", gpu=0), alert(node="n1", gpu=1)])
    async with collecting(tmp_path) as (collector, _):
        assert len((await collector.of_incident(first)).cards) == 1
        both = {one.gpu for one in grown.alerts}
        deadline = end_of_patience()  # the first may still wait for its card to be stored
        while {card.uuid for card in (await collector.of_incident(grown)).cards} != both:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


async def test_the_runbook_is_a_plain_page(broker: Broker, tmp_path: Path) -> None:
    """For every rule, without a token on loopback, and without anything that a browser runs."""
    pager = Pager()
    (tmp_path / "mine.toml").write_text(
        '[[rule]]\nname = "mine"\nseverity = "page"\nrunbook = "mine"\nremediation = "reset"\n'
        'when = { type = "above", metric = "gpu_temperature_celsius", level = 80 }\n'
        'summary = "{where} <script>alert(1)</script>"\ndescription = "a & b <img src=x>"\n'
    )
    settings = msgspec.structs.replace(config(broker, tmp_path, pager), rules=(tmp_path / "mine.toml",))
    async with running(settings) as aggregator:
        for name in ("gpu_lost", "mine", "bus_lost", "circuit_trip_soon"):
            if name not in {rule.name for rule in aggregator.pipeline.engine.rules} | {"bus_lost"}:
                continue
            status, kind, text = await fetched(aggregator, f"/runbook/{name}")
            assert (status, kind) == (200, "text/html")
            assert f"<h1>{name}" in text
            assert "<script>" not in text
            assert "<img" not in text
            assert "kilowatch ack KEY" in text
        _, _, text = await fetched(aggregator, "/runbook/gpu_lost")
        assert "<li>Drain NODE: no new work" in text
        assert "<code>dmesg &gt; dmesg.txt</code>" in text
        assert "silence rule=gpu_lost node=NODE uuid=UUID" in text
        status, kind, text = await fetched(aggregator, "/runbook/gpu_lots")
        assert (status, kind) == (404, "text/html")
        assert "gpu_lost" in text
