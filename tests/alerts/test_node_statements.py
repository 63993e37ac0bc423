"""Statements of the driver that name no GPU: faults of one node, by real rules and real incidents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pytest

from aggregator.alerting.pipeline import AlertPipeline
from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges, RecordKey
from alerts.notice import Notice
from alerts.notifiers.labels import fingerprint, identity_of
from alerts.rules.rule import Rule
from api.alerts import Action, Severity
from telemetry.devices import Event
from tests.alerts.deliveries import memory_of
from tests.alerts.test_engine import RULES, Plant
from tests.alerts.test_statements import event_of

HEARTBEAT = "NVRM: GPU5 _kgspRpcRecvPoll: GSP RM heartbeat timed out"
BAD_STATE = "NVRM: GPU7 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)"
UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
WATCHED = [
    rule
    for rule in RULES
    if rule.name in {"driver_fault", "driver_oddity", "gpu_lost", "gsp_dead", "node_fault", "node_oddity"}
]
LOST = "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 10!"


class Watched(Plant):
    """Two nodes, watched by the whole pipeline, which can be started again."""

    rules: ClassVar[Sequence[Rule]] = WATCHED

    def __init__(self) -> None:
        super().__init__()
        self.add("a", ["GPU-a0", "GPU-a1"])
        self.add("b", ["GPU-b0", "GPU-b1"])
        self.notices: list[Notice] = []
        self._incidents: dict[RecordKey, bytes] = {}
        self._alerts: list[AlertRecord] = []
        self._number = 0
        self.start()
        self.play(5)

    def start(self) -> None:
        """Start the aggregator, with what its journal holds."""
        memory = memory_of(self._incidents) if self._incidents else None
        self.pipeline = AlertPipeline(
            self.rules, self._store, memory=memory, records=self._alerts, now=self.now, wall=self.wall
        )
        self.engine = self.pipeline.engine

    def _store(self, step: IncidentChanges, records: list[AlertRecord] | None) -> None:
        self.notices += step.notices
        self._alerts = self._alerts if records is None else records
        for key, record in step.records.items():
            if record is None:
                self._incidents.pop(key, None)
            else:
                self._incidents[key] = record

    def play(self, seconds: int, *lines: str | Event) -> list[Notice]:
        """Let lines of the node come, and time pass; return the notices that page."""
        before = len(self.notices)
        events = [self._event(line) for line in lines]
        end = self.now + seconds
        while self.now < end:
            self.now += 1 if events or self.now < end - seconds + 20 else 10
            self.hear()
            self.pipeline.evaluate(self.fleet, self.now, self.wall, events, listening=True, snapshots=())
            events = []
            due = self.pipeline.manager.next_due()
            if due is not None and due < self.now + 1:
                self.pipeline.advance(self.now + 0.9, self.wall + 900_000_000)
        return [one for one in self.notices[before:] if one.action is Action.TRIGGER]

    def _event(self, line: str | Event) -> Event:
        found = event_of(line) if isinstance(line, str) else line
        self._number += 1
        node = "b" if found.node == "b" else (found.gpu or "GPU-a")[4]
        return msgspec.structs.replace(found, id=f"1-{self._number}", node=node, at=self.wall + 1_000_000_000)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def xid(number: int, gpu: str) -> Event:
    """An XID of a GPU, with its line."""
    line = f"NVRM: Xid (PCI:0000:10:00): {number}, pid=7, name=python3"
    found = event_of(line)
    return msgspec.structs.replace(found, gpu=gpu)


def lines(pages: list[Notice]) -> list[list[str]]:
    """Return acts and meanings of the alerts of each page."""
    return [[alert.advice for alert in page.incident.alerts] for page in pages]


def test_another_fault_of_the_node_rings_while_the_first_still_fires(watched: Watched) -> None:
    """Of another GPU, by the driver's number, or of another kind; each page has its own line."""
    said = [HEARTBEAT, BAD_STATE, UVM]
    pages = [watched.play(300, line) for line in said]
    assert [len(each) for each in pages] == [1, 1, 1]
    assert len({each[0].incident.key for each in pages}) == 3
    alerts = [one for (page,) in pages for one in page.incident.alerts]
    assert len({fingerprint(identity_of(one)) for one in alerts}) == 3
    for line, (page,) in zip(said, pages, strict=True):
        assert page.incident.severity is Severity.PAGE
        ((text,),) = lines([page])
        assert line in text
    (alert,) = [one for one in watched.engine.alerts() if one.rule == "driver_fault"]
    assert alert.faults == ("GPU5", "GPU7", "reboot_required")
    assert watched.pipeline.notified() == alerts  # to an Alertmanager


def test_a_fault_beside_the_gpus_rings_for_each_part_that_it_names(watched: Watched) -> None:
    """At night by its line, its meaning and what to do; the same part again rings nobody."""
    gone = "[171167.620236] {} 0000:{}:00.0: Adapter removed"
    pages = [watched.play(300, gone.format("ice", slot)) for slot in ("9c", "9d", "9c")]
    assert [len(each) for each in pages] == [1, 1, 0]
    ((text,),) = lines(pages[1])
    assert "A network adapter, or its firmware, has stopped." in text
    assert "0000:9d:00.0" in text
    assert "Drain the node and reboot it" in text
    (alert,) = [one for one in watched.engine.alerts() if one.rule == "node_fault"]
    assert alert.faults == ("nic_failed 0000:9c:00.0", "nic_failed 0000:9d:00.0")
    (ticket,) = watched.play(
        60, "[171168.620236] DMAR: [DMA Read] Request device [9c:00.0] fault addr 0x1f [fault reason 0x05] x"
    )
    assert ticket.incident.severity is Severity.TICKET


def test_the_same_fault_again_rings_nobody(watched: Watched) -> None:
    for line in (HEARTBEAT, BAD_STATE):
        assert len(watched.play(300, line)) == 1
    for line in (HEARTBEAT, BAD_STATE, HEARTBEAT):
        assert watched.play(300, line) == []


def test_faults_in_one_moment_are_one_page_that_names_both(watched: Watched) -> None:
    (page,) = watched.play(60, HEARTBEAT, UVM)
    assert len(watched.pipeline.manager.incident(page.incident.key).alerts) == 2


def test_what_was_rung_is_known_after_a_restart(watched: Watched) -> None:
    for line in (HEARTBEAT, BAD_STATE):
        assert len(watched.play(300, line)) == 1
    watched.start()
    assert watched.play(60) == []
    assert watched.play(300, HEARTBEAT) == []
    (page,) = watched.play(300, UVM)
    assert UVM in page.incident.alerts[0].description


@pytest.mark.parametrize("restart", [False, True])
def test_every_fault_ends_when_the_driver_is_quiet_for_long_enough(watched: Watched, restart: bool) -> None:
    for line in (HEARTBEAT, BAD_STATE):
        watched.play(300, line)
    if restart:
        watched.start()
    ended = len(watched.notices)
    watched.play(3700)
    over = [one for one in watched.notices[ended:] if one.action is Action.RESOLVE]
    assert sorted(text for (text,) in lines(over)) == sorted(
        one.advice for page in watched.notices[:ended] if page.action is Action.TRIGGER for one in page.incident.alerts
    )
    assert watched.pipeline.manager.incidents() == []
    assert len(watched.play(60, HEARTBEAT)) == 1


def test_a_person_who_acknowledged_one_fault_is_called_for_another(watched: Watched) -> None:
    (page,) = watched.play(60, HEARTBEAT)
    _, step = watched.pipeline.manager.acknowledge(
        page.incident.key, who="me", why="", until=None, now=watched.now, wall_ns=watched.wall
    )
    assert step.incidents[0].acknowledged is not None
    assert len(watched.play(60, BAD_STATE)) == 1


@pytest.mark.parametrize("number", [79, 119])
@pytest.mark.parametrize("first", ["xid", "statement"])
def test_what_the_driver_says_beside_a_page_of_a_gpu_is_no_page_of_the_node(
    watched: Watched, number: int, first: str
) -> None:
    both: list[str | Event] = [xid(number, "GPU-a0"), LOST]
    pages = []
    for one in both if first == "xid" else reversed(both):
        pages += watched.play(5, one)
    pages += watched.play(55)
    assert [page.incident.alerts[0].gpu for page in pages] == ["GPU-a0"]
    (later,) = watched.play(60, LOST)
    assert later.incident.alerts[0].rule == "driver_fault"


@pytest.mark.parametrize(("number", "node", "alone"), [(79, "b", False), (31, "a", False), (79, "a", True)])
def test_nothing_else_spares_the_node(watched: Watched, number: int, node: str, alone: bool) -> None:
    """Not a fault of another node, nor one that pages nobody."""
    pages = watched.play(3, xid(number, f"GPU-{node}0")) + watched.play(60, UVM)
    rules = [one.incident.alerts[0].rule for one in pages]
    assert ("driver_fault" in rules) is not alone
