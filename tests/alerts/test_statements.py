"""Statements of drivers and errors of NVSwitches: the rules that they ring, and their diagnosis."""

from __future__ import annotations

import msgspec
import pytest

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import Finding
from alerts.engine.engine import RuleEngine
from alerts.rules.events import Happens
from alerts.rules.rule import conditions_of, load
from alerts.xid.catalogue import XidSeverity
from alerts.xid.evaluate import LINK_FAULT
from alerts.xid.event import event_data, explain, fault_of
from alerts.xid.sxids import Fatality, SxidMeaning, sxids
from telemetry.devices import Event
from telemetry.notations.kernel_log import Assembler, parse_node_line
from telemetry.statements.catalogue import Statement, statements
from telemetry.wire.border import decode_event
from tests.alerts.test_engine import Plant

ALL = list(statements().values())
EVENT_RULES = [(rule, part) for rule in load() for part in conditions_of(rule.when) if isinstance(part, Happens)]


def diagnose(*lines: str) -> list[Finding]:
    """Return the findings of a log."""
    diagnosis = Diagnosis()
    diagnosis.next_log()
    diagnosis.feed("\n".join(lines))
    return diagnosis.incidents()


def event_of(line: str) -> Event:
    """The event of a line, as it comes over the border."""
    record = Assembler().feed(line) or parse_node_line(line)
    assert record is not None
    kind, data = event_data(record, line)
    event = Event(id="1-1", node="a", at=1, kind=kind, message=line, data=data)
    return decode_event(msgspec.json.encode(event), "a")


@pytest.mark.parametrize("said", ALL, ids=lambda said: said.name)
def test_a_statement_rings_the_rule_of_its_severity_alone(said: Statement) -> None:
    event = event_of(said.example)
    rung = [rule for rule, part in EVENT_RULES if part.fits(event)]
    if said.severity == "info":
        assert rung == []
    else:
        assert [rule.severity.value for rule in rung] == [said.severity]
    assert fault_of(event)[0] == said.fault
    if event.kind == "driver_log":
        assert explain(event) == (said.meaning, said.remedy)


@pytest.mark.parametrize("said", ALL, ids=lambda said: said.name)
def test_a_saved_log_with_a_statement_has_its_finding(said: Statement) -> None:
    found = [(one.severity.value, one.fault) for one in diagnose(said.example)]
    assert found == [(said.severity, said.fault)]


def test_the_count_of_a_repeated_statement_rings_no_rule() -> None:
    """The first one has rung: `driver_log_repeated` has its line, its words and its severity."""
    for said in ALL:
        event = event_of(said.example)
        count = {**event.data, "count": 40, "first_at": 1}
        again = msgspec.structs.replace(event, id="1-2", kind=f"{event.kind}_repeated", data=count)
        decoded = decode_event(msgspec.json.encode(again), "a")
        assert not [rule.name for rule, part in EVENT_RULES if part.fits(decoded)], said.name


def test_statements_beside_a_number_are_its_evidence() -> None:
    """The driver tells a dead GSP in many ways: one finding, named by the XID."""
    (one,) = diagnose(
        "[10.0] NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out",
        "[11.0] NVRM: Xid (PCI:0000:4f:00): 119, pid=7, name=python3, Timeout after 6s of waiting"
        " for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).",
        "[12.0] NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:4f:00 (printing 1 of every 30).",
    )
    assert (one.fault, one.severity.value) == ("gsp_dead", "page")


def test_a_statement_outlives_a_restart_with_its_texts() -> None:
    plant = Plant()
    plant.add("a", ["GPU-a0"])
    said = next(one for one in ALL if one.name == "gsp_heartbeat")
    rules = [rule for rule in load() if rule.name == "driver_fault"]
    plant.engine = RuleEngine(rules)
    plant.tick([msgspec.structs.replace(event_of(said.example), at=plant.wall, gpu="GPU-a0")])
    plant.run(60)
    records = plant.engine.snapshot(plant.wall)
    assert [(one.meaning, one.remedy) for one in records] == [(said.meaning, said.remedy)]
    plant.engine = RuleEngine(rules)
    plant.engine.restore(records, plant.now, plant.wall)
    plant.tick(seconds=60)
    assert plant.engine.snapshot(plant.wall)[0].remedy == said.remedy


# -- Errors of NVSwitches ------------------------------------------------------------------------


def test_of_a_hundred_errors_of_switches_it_is_known_what_they_cost() -> None:
    """Each with where its name, and what it costs, were found."""
    errors = sxids()
    known = [one for one in errors.values() if one.fatal is not Fatality.UNKNOWN]
    assert len(errors) >= 400
    assert len(known) >= 100
    assert all(len(one.sources) == 2 and one.remedy for one in known)
    assert all(one.name and one.sources and one.date for one in errors.values())


@pytest.mark.parametrize("error", sxids().values(), ids=lambda error: f"{error.sxid}")
def test_a_cut_off_line_of_a_switch_is_judged_by_its_number(error: SxidMeaning) -> None:
    """A line that tells itself whether it is fatal is believed."""
    head = f"nvidia-nvswitch0: SXid (PCI:0000:86:00.0): {error.sxid:05}"
    fatal, harmless, cut_off = (
        fault_of(event_of(head + rest)) for rest in (", Fatal, Link 3 x", ", Non-fatal, Link 3 x", ", ")
    )
    assert fatal[1] is (XidSeverity.TICKET if error.sxid == LINK_FAULT else XidSeverity.PAGE)
    assert harmless == ("nvswitch_noise", XidSeverity.IGNORE)
    match error.fatal:
        case Fatality.NONE:
            assert cut_off == harmless
        case Fatality.UNKNOWN:
            assert cut_off == ("nvswitch_unknown", XidSeverity.TICKET)
        case _:
            assert cut_off == fatal
