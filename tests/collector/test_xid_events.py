"""One fault, one event, as timelines of NVML events and kernel log lines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.host.kernel_log import event_of
from collector.sampling.xid_events import SECOND, XidEvents
from collector.source import DeviceEvent
from telemetry.notations.kernel_log import Assembler, parse_node_line

PCI = "0000:01:00.0"


def kernel(at: float, text: str = "79, GPU has fallen off the bus.", pci: str = "01") -> DeviceEvent:
    """Return the event of an XID in the kernel log."""
    return line(at, f"NVRM: Xid (PCI:0000:{pci}:00): {text}")


def line(at: float, text: str) -> DeviceEvent:
    """Return the event of a line of the kernel log."""
    record = Assembler().feed(text) or parse_node_line(text)
    assert record is not None
    return event_of(record, text, int(at * SECOND))


def nvml(at: float, xid: int = 79) -> DeviceEvent:
    """Return the event of an XID from NVML."""
    return DeviceEvent("xid", int(at * SECOND), "GPU-1", PCI, f"XID {xid}", {"xid": xid, "source": "nvml"})


def published(*seen: DeviceEvent, until: float = 1000.0) -> list[tuple[float, str, object]]:
    """Play a timeline second by second: when, which kind, and which number or count."""
    merger = XidEvents()
    out = []
    for second in range(int(until)):
        now = [item for item in seen if second <= item.at / SECOND < second + 1]
        for item in merger.merge(now, (second + 1) * SECOND, {PCI: "GPU-1"}):
            number = item.data.get("count", item.data.get("xid", item.data.get("sxid")))
            out.append((item.at / SECOND, item.kind, number))
    assert merger._open == {}
    return out


def test_a_fault_reported_by_both_is_one_event() -> None:
    """Whoever is first; in words and with a number too."""
    assert published(kernel(5.0), nvml(5.4)) == [(5.0, "xid", 79)]
    assert published(nvml(5.0), kernel(5.4)) == [(5.0, "xid", 79), (67.0, "xid_repeated", 1)]
    lost = line(6.0, f"NVRM: GPU {PCI}: GPU has fallen off the bus.")
    assert published(kernel(5.0), lost, nvml(5.1)) == [(5.0, "xid", 79)]
    assert published(lost) == [(6.0, "gpu_lost", None)]


def test_the_line_reaches_the_bus_even_when_nvml_was_first() -> None:
    """The line has numbers that NVML does not report."""
    merger = XidEvents()
    merger.merge([nvml(5.0), kernel(5.4)], 6 * SECOND)
    (late,) = merger.merge([], 100 * SECOND)
    assert late.data["line"] == "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    assert (late.gpu, late.pci, late.data["xid"]) == ("GPU-1", PCI, 79)


def test_a_burst_is_one_event_and_a_count() -> None:
    """16 lines in a millisecond, and their 16 echoes."""
    burst = [kernel(9 + n / 10000, "13, Graphics Exception") for n in range(16)]
    echoes = [nvml(9.1 + n / 10000, 13) for n in range(16)]
    assert published(*burst, *echoes) == [(9.0, "xid", 13), (71.0, "xid_repeated", 16)]


def test_the_same_fault_a_minute_later_is_another_event() -> None:
    """A storm is one event a minute, not one for ever."""
    storm = [kernel(float(second), "45, Ch 1") for second in range(130)]
    both = [*storm, *(nvml(second + 0.3, 45) for second in range(130))]
    for timeline in (storm, both):
        assert sorted(published(*timeline)) == [
            (0.0, "xid", 45),
            (60.0, "xid", 45),
            (60.0, "xid_repeated", 60),
            (120.0, "xid", 45),
            (120.0, "xid_repeated", 60),
            (182.0, "xid_repeated", 10),
        ]


def test_a_statement_of_the_driver_that_is_repeated_is_one_event_and_a_count() -> None:
    """Each statement by itself; the count is no statement anew, so that it rings no rule."""
    gone = "nvidia 0000:01:00.0: can't change power state from D3cold to D0 (config space inaccessible)"
    other = gone.replace("0000:01", "0000:02")
    many = [line(5 + n / 100, gone) for n in range(40)]
    alone = line(6.0, other)
    assert published(*many, alone) == [
        (5.0, "driver_log", None),
        (6.0, "driver_log", None),
        (67.0, "driver_log_repeated", 40),
    ]
    merger = XidEvents()
    merger.merge(many, 6 * SECOND)
    (count,) = merger.merge([], 100 * SECOND)
    assert (count.data["what"], count.data["line"]) == (many[0].data["what"], gone)
    assert (count.data["first_at"], count.message) == (5 * SECOND, f"{many[0].message} (40 times within a minute)")


def test_states_of_the_reader_of_the_log_are_never_counted_away() -> None:
    """They are of the same kind, and each says something new."""
    states = [
        DeviceEvent("driver_log", at * SECOND, message=state, data={"what": "kernel_log", "state": state})
        for at, state in enumerate(("missing", "reading", "missing"), 1)
    ]
    assert [kind for _, kind, _ in published(*states)] == ["driver_log"] * 3


def test_an_echo_over_the_edge_of_the_minute_is_no_new_event() -> None:
    """The line at 59.9 s, NVML's word of it at 60.4 s."""
    assert published(kernel(0.0), nvml(0.2), kernel(59.9), nvml(60.4)) == [(0.0, "xid", 79), (62.0, "xid_repeated", 2)]


def test_other_gpus_numbers_and_instances_are_other_faults() -> None:
    """Different events are not merged."""
    assert len(published(kernel(1.0), kernel(1.1, pci="02"), kernel(1.2, "48, DBE"))) == 3
    mig = [line(1.0 + n, f"NVRM: Xid (PCI:0000:01:00 GPU-I:0{n}): 43, x") for n in (1, 2)]
    assert len(published(*mig)) == 2


def test_each_part_of_a_node_has_faults_of_its_own() -> None:
    gone = "[1714.620236] ice 0000:{}:00.0: Adapter removed"
    assert published(line(5.0, gone.format("9c")), line(5.1, gone.format("9d")), line(5.2, gone.format("9c"))) == [
        (5.0, "node_log", None),
        (5.1, "node_log", None),
        (67.0, "node_log_repeated", 2),
    ]


def test_a_change_of_the_recovery_action_is_published_at_once() -> None:
    """Recovery action, fatal after nonfatal, reset needed."""
    for first, second in (
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
            "154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset)",
        ),
        ("149, NETIR Nonfatal XC0 i0 Link 1 (0x1)", "149, NETIR Fatal XC0 i0 Link 1 (0x1)"),
        ("95, Uncontained. RST: No, D-RST: No", "95, Uncontained. RST: Yes, D-RST: No"),
    ):
        assert len(published(kernel(1.0, first), kernel(1.5, second), nvml(1.6, 149))) >= 2
        again = published(kernel(1.0, first), kernel(1.5, first))
        assert [event[1] for event in again] == ["xid", "xid_repeated"]


def test_nvmls_unknown_number_is_the_line_beside_it() -> None:
    """Alone it is reported."""
    assert published(kernel(5.0, "175, new"), nvml(5.5, 999)) == [(5.0, "xid", 175)]
    assert published(nvml(5.5, 999)) == [(5.5, "xid", 999)]


def test_further_lines_of_a_switch_are_no_further_errors() -> None:
    """Fatal line, then its data."""
    head = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, "
    lines = [
        line(1.0, head + "Fatal, Link 30 LTSSM Fault Up"),
        line(1.1, head + "Severity 1 Engine instance 30 Sub-engine instance 00"),
        line(1.2, head + "Data {0x1, 0x2}"),
    ]
    assert published(*lines) == [(1.0, "sxid", 20034)]


def test_events_other_than_xids_pass_unchanged() -> None:
    """Events other than XIDs are not merged."""
    event = DeviceEvent("driver_down", 5 * SECOND, message="gone")
    assert XidEvents().merge([event, event], 6 * SECOND) == [event, event]


CAPTURED = Path(__file__).parents[2] / "../shared/data/captures/kernel_log"


@pytest.mark.captures
@pytest.mark.skipif(not CAPTURED.is_dir(), reason="no ../shared/data/captures")
def test_the_duplicate_among_the_labelled_lines_is_one_event() -> None:
    """The file says so of itself."""
    truths = [json.loads(text) for text in (CAPTURED / "labelled_lines.jsonl").read_text().splitlines()]
    (place,) = [number for number, truth in enumerate(truths) if "duplicate" in truth.get("note", "")]
    twins = [line(1.0 + n, truths[place - 1 + n]["line"]) for n in range(2)]
    assert [event[1] for event in published(*twins)] == ["xid", "xid_repeated"]


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.sampled_from([13, 79, 154, 999])), max_size=60))
def test_no_fault_is_lost_and_none_is_published_twice(points: list[tuple[int, bool, int]]) -> None:
    """Every number is reported; two reports of one are a minute apart."""
    points = [point for point in points if point[1] or point[2] != 999]  # NVML's word only
    events = [nvml(at, xid) if heard else kernel(at, f"{xid}, x") for at, heard, xid in points]
    first = [event for event in published(*events, until=500) if event[1] == "xid"]
    seen = {xid for _, _, xid in points if xid != 999}
    assert seen <= {xid for _, _, xid in first}
    for xid in seen:
        times = [at for at, _, number in first if number == xid]
        assert all(later - earlier >= 60 for earlier, later in pairwise(times))


def test_a_loss_that_the_driver_reports_is_an_event_beside_its_xid() -> None:
    """The kernel's words repeat the XID; the driver's silence is a state of its own."""
    merger = XidEvents()
    pci = "0000:05:00.0"
    xid = DeviceEvent("xid", 10 * SECOND, pci=pci, data={"xid": 79, "source": "kernel"})
    lost = DeviceEvent("gpu_lost", 11 * SECOND, gpu="GPU-5", pci=pci)
    words = DeviceEvent("gpu_lost", 12 * SECOND, pci=pci, data={"source": "kernel"})
    published = merger.merge([xid, lost, words], 13 * SECOND)
    assert published == [xid, lost]
