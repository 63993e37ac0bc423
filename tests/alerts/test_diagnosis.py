"""From kernel logs to incidents: one per cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import RULES, Finding
from alerts.rules.rule import load

LOGS = Path(__file__).parents[2] / "../shared/data/captures/kernel_log"
needs_captures = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/data/captures")
LABELLED: list[dict[str, Any]] = (
    [json.loads(line) for line in (LOGS / "labelled_lines.jsonl").read_text().splitlines()] if LOGS.is_dir() else []
)


def diagnose(*logs: str) -> list[Finding]:
    """Return what the logs say together."""
    diagnosis = Diagnosis()
    for log in logs:
        diagnosis.next_log()
        diagnosis.feed(log)
    return diagnosis.incidents()


def xid(at: float, gpu: str, number: int, rest: str = "pid=7, name=python3, Ch 00000008") -> str:
    """A line of dmesg."""
    return f"[{at:.6f}] NVRM: Xid (PCI:0000:{gpu}:00): {number}, {rest}"


def said(*lines: str) -> list[tuple[str, str]]:
    """Severity and fault of each incident of a log."""
    return [(one.severity.value, one.fault) for one in diagnose("\n".join(lines))]


@needs_captures
@pytest.mark.captures
@pytest.mark.parametrize("truth", LABELLED, ids=lambda truth: str(truth["xid"] or truth["sxid"]))
def test_every_labelled_line_gets_its_verdict(truth: dict[str, Any]) -> None:
    """Alone, as it stands."""
    (incident,) = diagnose(truth["line"])
    expected = {
        "page": {"page"},
        "ticket": {"ticket"},
        "ignore": {"ignore", "info"},
        "ticket_then_recovery_action": {"ticket"},
        "correlate": {"ticket", "ignore"},
        "decode": {"ticket"},
    }
    assert incident.severity in expected[truth["suggested"]]
    assert incident.xids == ([] if truth["xid"] is None else [truth["xid"]])
    if truth["bdf"] and truth["xid"]:
        assert incident.gpu == f"{truth['bdf'].removesuffix('.0')}.0"


@needs_captures
@pytest.mark.captures
def test_what_belongs_to_a_neighbour_goes_with_it() -> None:
    """All labelled lines as one log: the SXids that follow an XID 79 are its incident."""
    incidents = diagnose("\n".join(truth["line"] for truth in LABELLED))
    (lost,) = [one for one in incidents if one.gpu == "0000:91:00.0"]
    assert (lost.fault, lost.severity, lost.sxids) == ("gpu_lost", "page", [20034])
    tray = "\n".join(truth["line"] for truth in LABELLED if "[1711" in truth["line"])
    (one,) = diagnose(tray)
    assert (one.severity, one.fault, one.xids, one.gpu) == ("page", "nvlink_errors", [149, 154], None)


@needs_captures
@pytest.mark.captures
def test_the_recorded_logs() -> None:
    """A burst of program errors is one incident without notification; a log without faults has none."""
    (burst,) = diagnose((LOGS / "gpud_dmesg_xid13_burst_then_43.log").read_text())
    assert (burst.severity, burst.fault, burst.xids, burst.count) == ("ignore", "application", [13, 43], 17)
    assert burst.first == "2025-01-21T04:41:44.283302+00:00"
    assert diagnose((LOGS / "gpud_kmsg_1.log").read_text()) == []


NETIR = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000)"
ACTION = "GPU recovery action changed from 0x{:x} (a) to 0x{:x} (b)"
SWITCH = "[{}] nvidia-nvswitch{}: SXid (PCI:0000:0{}:00.0): 20034, {}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(  # case (a)
            [
                xid(100, "91", 79, "GPU has fallen off the bus."),
                SWITCH.format(112.1, 1, 6, "Fatal, Link 48 LTSSM Fault Up"),
                SWITCH.format(112.1, 1, 6, "Severity 1 Engine instance 37"),
                SWITCH.format(112.2, 2, 7, "Fatal, Link 48 LTSSM Fault Up"),
                xid(112.5, "3b", 74, "NVLink: fatal error detected on link 1(0x10, 0x0, 0x0)"),
            ],
            [("page", "gpu_lost")],
            id="a lost GPU takes its links along",
        ),
        pytest.param(  # case (b)
            [xid(1 + n / 10, f"0{n}", 149, NETIR) for n in range(4)]
            + [xid(1.5 + n / 10, f"0{n}", 154, ACTION.format(0, 1)) for n in range(4)],
            [("page", "nvlink_errors")],
            id="a tray loses its links",
        ),
        pytest.param([xid(1, "01", 149, NETIR)], [("ticket", "nvlink_errors")], id="149 alone"),
        pytest.param(
            [xid(1, "01", 149, NETIR), xid(2, "01", 154, ACTION.format(0, 4))],
            [("page", "nvlink_errors")],
            id="drain and reset beside 149",
        ),
        pytest.param(
            [xid(5, "01", 154, ACTION.format(0, 4))], [("ticket", "recovery_drain")], id="drain"
        ),
        pytest.param(
            [xid(5, "01", 154, ACTION.format(0, 3)), xid(6, "02", 154, ACTION.format(0, 3))],
            [("page", "recovery_action_p2p")],
            id="one incident per NVLink domain",
        ),
        pytest.param(
            [xid(5, "01", 154, ACTION.format(0, 1)), xid(25, "01", 154, ACTION.format(1, 0))],
            [("info", "recovery_action")],
            id="taken back within a minute",
        ),
        pytest.param(
            [xid(5, "01", 154, ACTION.format(0, 2)), xid(125, "01", 154, ACTION.format(2, 0))],
            [("page", "recovery_action")],
            id="taken back too late",
        ),
        pytest.param(  # case (d)
            [xid(1, "01", 64), xid(1.059, "01", 94)],
            [("page", "ecc_uncontained")],
            id="64, and 94 after 59 ms",
        ),
        pytest.param(  # case (e)
            [xid(3 + n / 100, f"0{n}", 137) for n in range(6)]
            + [xid(3.2 + n / 100, f"0{n}", 94) for n in range(3)],
            [("ticket", "nvlink_application")],
            id="137 and 94 on six GPUs at once",
        ),
        pytest.param(
            [xid(3 + n / 100, f"0{n}", number) for n in range(3) for number in (48, 94)],
            [("ticket", "ecc_contained")] * 3,
            id="three GPUs with errors of their own memory",
        ),
        pytest.param([xid(1, "01", 48)], [("page", "ecc_dbe")], id="48 alone"),
        pytest.param(
            [xid(1, "01", 94), xid(1.1, "01", 48), xid(1.5, "01", 154, ACTION.format(0, 4))],
            [("ticket", "ecc_contained")],
            id="contained, and to be reset when it is idle",
        ),
        pytest.param(
            [xid(1, "01", 48), xid(1.5, "01", 154, ACTION.format(0, 4))],
            [("page", "ecc_dbe")],
            id="not contained, and to be drained",
        ),
        pytest.param(
            [xid(1 + n / 1000, f"0{n}", 79, "GPU has fallen off the bus.") for n in range(3)],
            [("page", "gpu_lost")],
            id="three GPUs off the bus in one instant",
        ),
        pytest.param(
            [xid(1 + n * 3600, f"0{n}", 79, "GPU has fallen off the bus.") for n in range(3)],
            [("page", "gpu_lost")] * 3,
            id="three GPUs off the bus in three hours",
        ),
        pytest.param(
            [xid(1, "01", 63), xid(90000, "01", 64)],
            [("page", "ecc_uncontained"), ("ticket", "remap_pending")],
            id="a row that waits does not hide one that failed a day later",
        ),
        pytest.param(
            [xid(1, "01", 48), xid(1, "01", 63), xid(1.1, "01", 94), xid(1.2, "01", 45)],
            [("ticket", "ecc_contained")],
            id="contained",
        ),
        pytest.param(
            [xid(1, "01", 48), xid(1, "01", 94), xid(9000, "01", 48), xid(9000, "01", 94)],
            [("page", "ecc_repeat")],
            id="contained, again within a day",
        ),
        pytest.param(
            [xid(1, "01", 48), xid(1, "01", 94), xid(99000, "01", 48), xid(99000, "01", 94)],
            [("ticket", "ecc_contained")],
            id="contained, again after a day",
        ),
        pytest.param([xid(1, "01", 63)], [("ticket", "remap_pending")], id="never a page"),
        pytest.param(
            [xid(1, "01", 48), xid(1, "01", 157)], [("page", "ecc_dbe")], id="157 with 48"
        ),
        pytest.param(
            [xid(t, "01", 31, f"pid={t}, name=a") for t in (1, 2000, 4000)],
            [("ticket", "xid_app_repeat")],
            id="31 under three programs",
        ),
        pytest.param(
            [xid(t, gpu, 31, f"pid={t}, name=a") for t in (1, 2000, 4000) for gpu in ("01", "02")],
            [("ignore", "application")] * 2,
            id="31 under three programs on two GPUs",
        ),
        pytest.param(
            [xid(t, "01", 13, f"pid={t}, (GPC {t % 7}, TPC 1, SM 0)") for t in (1, 2000, 4000)],
            [("ignore", "application")],
            id="13 at three places",
        ),
        pytest.param(
            [xid(t, "01", 13, f"pid={t}, (GPC 2, TPC 1, SM 0)") for t in (1, 2000, 4000)],
            [("ticket", "xid_app_repeat")],
            id="13 at one place",
        ),
        pytest.param([xid(1, "01", 977)], [("ticket", "unknown_xid")], id="unknown"),
        pytest.param(
            [xid(1, "01", 119, "Timeout"), xid(300, "01", 79, "fallen"), xid(310, "01", 154,
             ACTION.format(0, 2)), "[400.1] INFO: task nvidia-smi:12 blocked for more than 120 seconds."],
            [("page", "gpu_lost")],
            id="all that a dying GPU leaves",
        ),
        pytest.param(
            ["[5.1] INFO: task python:12 blocked for more than 120 seconds.",
             "[5.1]  ? os_acquire_mutex+0x35/0x40 [nvidia]"],
            [("page", "driver_hung")],
            id="a task hung in the driver",
        ),
        pytest.param(
            ["[5.1] INFO: task nvme-wq:12 blocked for more than 120 seconds.",
             "[50.1]  ? os_acquire_mutex+0x35/0x40 [nvidia]"],
            [("ticket", "task_hung")],
            id="a task hung elsewhere",
        ),
        pytest.param(
            ["Feb 23 16:24:18 n1 gpud[77]: saw NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen"],
            [],
            id="a monitor that repeats the kernel",
        ),
        pytest.param(
            [f"[5.{n}] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/u/{text},task=x,pid=7"
             for n, text in enumerate((xid(1, "01", 79, "fallen"), "INFO: task nvidia-smi:1 blocked "
                                       "for more than 9 seconds", "NVRM: The NVIDIA GPU 0000:01:00.0"))],
            [],
            id="names of cgroups that read like the driver",
        ),
        pytest.param(
            [f"Feb 23 16:24:18 n{n} kernel: NVRM: Xid (PCI:0000:01:00): 79, fallen" for n in (1, 2)],
            [("page", "gpu_lost")] * 2,
            id="two nodes in one log",
        ),
        pytest.param(
            [f"gpu0{n}: [77.1] NVRM: Xid (PCI:0000:01:00): 79, fallen" for n in (1, 2)],
            [("page", "gpu_lost")] * 2,
            id="two nodes through pdsh",
        ),
        pytest.param(
            ["Feb 23 16:24:18 n1 gpud: saw NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen"],
            [],
            id="a monitor without a process number",
        ),
    ],
)  # fmt: skip
def test_one_incident_per_cause(lines: list[str], expected: list[tuple[str, str]]) -> None:
    """The grouping cases, and what may never page alone."""
    assert said(*lines) == expected


def test_gpus_that_are_lost_together_are_all_named() -> None:
    lines = [xid(1 + n / 1000, f"0{n}", 79, "GPU has fallen off the bus.") for n in range(3)]
    (one,) = diagnose("\n".join(lines))
    assert [gpu.pci for gpu in one.gpus] == [f"0000:0{n}:00.0" for n in range(3)]
    assert (one.gpu, one.lines, one.rule) == (None, lines, "gpu_lost")
    assert "what they share" in one.action


def test_a_decoded_sub_code_is_not_to_be_decoded_again() -> None:
    """Its unit, link, action and place of the cause are in the finding; undecoded, the advice stays."""
    (one,) = diagnose(xid(1, "01", 149, NETIR))
    assert "ecode" not in one.action
    assert "check the peer first" in one.action
    assert [(code.xid, code.action) for code in one.sub_codes] == [(149, "RESET_GPU")]
    assert (one.links, one.rule) == ([1], "nvlink_fault")
    (cut,) = diagnose(xid(1, "01", 149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406"))
    assert "Decode the sub-code" in cut.action
    assert cut.links == []


def test_three_ports_of_one_switch_are_a_page_and_so_is_its_halted_controller() -> None:
    """Two ports, or one of each of three switches, may be a GPU that went away."""
    line = "[{}.0] nvidia-nvswitch2: SXid (PCI:0000:{}:00.0): 20034, Fatal, Link {} LTSSM Fault Up"
    (found,) = diagnose("\n".join(line.format(10 + port, "05", port) for port in (30, 31, 32)))
    assert (found.severity, found.unit) == ("page", "0000:05:00.0")
    assert found.rule == "nvswitch_links"
    apart = [line.format(10, "05", 30), line.format(11, "05", 31), line.format(12, "06", 32)]
    assert {one.severity for one in diagnose("\n".join(apart))} == {"ticket"}
    (halted,) = diagnose("[9.0] nvidia-nvswitch2: SXid (PCI:0000:05:00.0): 26006, SOE HALTED")
    assert halted.severity == "page"


def test_each_finding_names_a_rule_that_exists() -> None:
    rules = {rule.name for rule in load()}
    assert set(RULES.values()) <= rules
    (one,) = diagnose(xid(1, "01", 62))
    assert one.rule == "gpu_fault"
    (one,) = diagnose(xid(1, "01", 977))
    assert one.rule == "gpu_oddity"
    (one,) = diagnose(xid(1, "01", 13))
    assert one.rule is None


def test_a_burst_is_counted_and_keeps_its_first_line() -> None:
    """Thousands of lines at the end of a job."""
    lines = [xid(n / 100, "01", 45, f"pid={n}, name=a, Ch {n:08x}") for n in range(3000)]
    (one,) = diagnose("\n".join(lines))
    assert (one.severity, one.count, one.line) == ("ignore", 3000, lines[0])
    assert (one.first, one.last) == ("0.000000 s after boot", "29.990000 s after boot")


def test_a_name_that_reads_like_the_driver_adds_to_no_burst() -> None:
    line = xid(1, "01", 45)
    forged = f"[1.5] Out of memory: Killed process 7 ({line.partition('] ')[2]})"
    (one,) = diagnose(f"{line}\n{forged}\n{forged}")
    assert one.count == 1


def test_an_unknown_number_keeps_its_raw_line() -> None:
    """It is all that anybody has."""
    line = xid(1, "01", 977, "something new")
    assert diagnose(line)[0].line == line


def test_the_same_lines_twice_count_once() -> None:
    """A bug report holds dmesg and the journal."""
    message = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    (one,) = diagnose(f"[12.5] {message}\nFeb 23 16:24:18 gpu-07 kernel: {message}\n")
    assert (one.fault, one.count, one.gpu) == ("gpu_lost", 1, "0000:01:00.0")


def test_what_was_cleaned_up_names_an_error_that_the_log_has_lost() -> None:
    rest = "pid=7, name=python3, Ch 00000001 caused by previous Xid"
    assert said(xid(1, "dc", 45, f"{rest} 149")) == [("ticket", "nvlink_errors")]
    (incident,) = diagnose(xid(1, "dc", 45, f"{rest} 149"))
    assert "an error that the line names" in incident.action
    assert said(xid(1, "dc", 45, f"{rest} 31")) == [("ignore", "application")]
    both = (xid(1, "dc", 79, "pid=7, GPU has fallen off the bus."), xid(2, "dc", 45, f"{rest} 79"))
    assert said(*both) == [("page", "gpu_lost")]


@pytest.mark.parametrize(
    ("head", "first"),
    [
        ("kwi 15 07:56:59 node1 kernel: ", "kwi 15 07:56:59"),
        ("11月 15 14:15:47 node1 kernel: ", "11月 15 14:15:47"),
        ("<4>Feb 14 05:03:41 node1 kernel: ", "Feb 14 05:03:41"),
        ("10.0.0.7: kern: warning: [2026-04-22T21:27:51.291660856Z]: ", "2026-04-22T21:27:51.291660+00:00"),
    ],
)
def test_the_kernels_lines_in_other_languages_and_tools(head: str, first: str) -> None:
    (incident,) = diagnose(f"{head}NVRM: Xid (PCI:0000:dc:00): 79, pid=7, GPU has fallen off.")
    assert (incident.fault, incident.first) == ("gpu_lost", first)


def test_a_message_of_several_lines_has_one_stamp() -> None:
    """The further ones are indented; the XID of the same fault is the same incident."""
    (one,) = diagnose(
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
        + xid(1850, "b3", 79, "GPU has fallen off the bus.")
    )
    assert (one.fault, one.gpu, one.xids, one.count) == ("gpu_lost", "0000:b3:00.0", [79], 2)
    assert one.first == "1843.308145 s after boot"


def test_a_log_with_its_newest_line_first() -> None:
    """As `journalctl -r` prints it."""
    (one,) = diagnose("\n".join(xid(at, "01", 79, "fallen") for at in (30, 20, 10)))
    assert (one.first, one.last, one.count) == ("10.000000 s after boot", "30.000000 s after boot", 3)


def test_the_journal_as_json() -> None:
    """Entries of the kernel count, those of programs do not."""
    entry = {
        "__REALTIME_TIMESTAMP": "1740327858000000",
        "_HOSTNAME": "n1",
        "_TRANSPORT": "kernel",
        "MESSAGE": "NVRM: Xid (PCI:0000:01:00): 95, pid=7, Uncontained: LTC TAG. RST: Yes",
    }
    (one,) = diagnose(json.dumps(entry))
    assert (one.severity, one.first) == ("page", "2025-02-23T16:24:18+00:00")
    assert diagnose(json.dumps(entry | {"_TRANSPORT": "stdout"})) == []


PIECES = st.sampled_from(
    ["NVRM: Xid (PCI:0000:01:00): ", "79, ", "154, ", ACTION.format(0, 9), "13", "SXid (PCI:0000:05:00.0): ",
     "nvidia-nvswitch0: ", "Fatal", "[12.5] ", "Feb 29 16:24:18 n1 kernel: ", "\n", "INFO: task ", "[nvidia]",
     "x:1 blocked for more than 9 seconds", '{"MESSAGE": "NVRM: ', '"}', "fallen off the bus", "4,1,2,-;"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES | st.text(max_size=20), max_size=40).map("".join))
def test_never_raises_on_any_text(text: str) -> None:
    """And is sorted, worst first."""
    ranks = [one.severity.rank for one in diagnose(text)]
    assert ranks == sorted(ranks)


NUMBERS = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 137, 149, 154, 977])
EVENTS = st.tuples(st.floats(0, 2e5), st.integers(1, 9), NUMBERS)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=30))
def test_every_line_is_in_exactly_one_incident(events: list[tuple[float, int, int]]) -> None:
    """Nothing is dropped and nothing counted twice, whatever is merged."""
    lines = [xid(at, f"{gpu:02d}", number) for at, gpu, number in sorted(events)]
    incidents = diagnose("\n".join(lines))
    assert sum(one.count for one in incidents) == len(lines)
    assert {x for one in incidents for x in one.xids} == {number for _, _, number in events}
    if any(number in {64, 79, 95, 119} for _, _, number in events):
        assert incidents[0].severity == "page"
