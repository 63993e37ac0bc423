"""Units that a reading of a node sums away: the mount, drive or module that fails is named, and grouped by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from alerts.rules.rule import Rule
from api.alerts import Severity
from collector.host.memory_errors import FEWEST_CORRECTED, MemoryErrors
from collector.host.parts import PAUSE, PartLog
from present.alert.incident import place_of
from telemetry.devices import WELL, Event, Gpu, Port
from telemetry.wire.inventory import Inventory
from tests.alerts.test_engine import RULES
from tests.alerts.test_node_statements import Watched
from tests.alerts.test_statements import event_of

FAILING = "node_network_mounts_failing"


class Summed(Watched):
    """Two nodes whose readings a test sets, with the events that a collector sends beside them."""

    rules: ClassVar[Sequence[Rule]] = [
        rule
        for rule in RULES
        if rule.name in {
            "mount_failing", "memory_uncorrected", "nvme_lost", "node_fault", "kernel_lockup", "service_down", "nvswitch_fault",
            "fan_failed", "supply_failed", "bmc_log_critical",
        }
    ]  # fmt: skip


@pytest.fixture
def summed() -> Summed:
    return Summed()


def mount(path: str, server: str, state: str = "does not answer", node: str = "a") -> Event:
    """Event of a collector about a mount."""
    data = {"unit": f"{path} (nfs4 of {server}:/export)", "state": state, "metric": FAILING, "server": server}
    return Event(id="1", node=node, at=0, kind="mount", data=data)


def part(metric: str, unit: str, node: str = "a", **data: object) -> Event:
    """Event of a collector about another part."""
    more = {"metric": metric, "unit": unit, "state": "fails", **data}
    return Event(id="1", node=node, at=0, kind="part", data=more)


def test_a_page_of_a_mount_names_it_and_its_server(summed: Summed) -> None:
    summed.wrong["a"] = {FAILING: 1.0}
    (page,) = summed.play(90, mount("/scratch", "fs04"))
    (alert,) = page.incident.alerts
    assert alert.summary == ("a network file system of a does not answer: /scratch (nfs4 of fs04:/export)")
    assert alert.labels["unit"] == "/scratch (nfs4 of fs04:/export)"
    assert alert.labels["server"] == page.incident.group["server"] == "fs04"
    assert place_of(alert) == "a /scratch (nfs4 of fs04:/export)"


@pytest.mark.parametrize(("second", "incidents"), [("fs04", 1), ("fs05", 2)])
def test_nodes_that_lose_one_server_are_one_incident_and_two_servers_two(
    summed: Summed, second: str, incidents: int
) -> None:
    """Whatever the paths are called on each node."""
    summed.wrong = {"a": {FAILING: 1.0}, "b": {FAILING: 1.0}}
    pages = summed.play(90, mount("/scratch", "fs04"), mount("/mnt", second, node="b"))
    assert len(pages) == len(summed.pipeline.manager.incidents()) == incidents


def test_a_second_server_of_a_node_rings_while_the_first_is_still_gone(summed: Summed) -> None:
    summed.wrong["a"] = {FAILING: 1.0}
    assert len(summed.play(90, mount("/scratch", "fs04"))) == 1
    summed.wrong["a"] = {FAILING: 2.0}
    (page,) = summed.play(90, mount("/home", "fs05"))
    assert "/home (nfs4 of fs05:/export)" in page.incident.title
    assert summed.play(90, mount("/home", "fs05")) == []
    summed.start()
    assert summed.play(90) == [], "what was rung is known after a restart"
    (page,) = summed.play(90, mount("/data", "fs06"))
    assert "/data" in page.incident.title


def test_what_was_well_again_before_the_page_is_not_named(summed: Summed) -> None:
    summed.wrong["a"] = {FAILING: 1.0}
    summed.play(20, mount("/home", "fs05"), mount("/scratch", "fs04"))
    (page,) = summed.play(70, mount("/home", "fs05", WELL))
    assert page.incident.title.endswith("/scratch (nfs4 of fs04:/export)")


def test_the_module_whose_errors_were_counted_is_named(summed: Summed) -> None:
    summed.wrong["a"] = {"node_edac_uncorrectable_errors_total": 0.0}
    summed.play(20)
    summed.wrong["a"] = {"node_edac_uncorrectable_errors_total": 1.0}
    (page,) = summed.play(20, part("node_edac_uncorrectable_errors_total", "CPU0_DIMM_A1", count=1))
    assert page.incident.title.endswith(": CPU0_DIMM_A1")


@pytest.mark.parametrize(
    ("metric", "kind", "more"),
    [
        ("node_fans_failed", "part", {}),
        ("node_supplies_failed", "part", {}),
        ("node_bmc_log_critical", "bmc_log", {"count": 1}),
    ],
)
def test_a_fan_a_supply_and_an_entry_of_the_bmc_name_their_part_and_another_part_rings(
    summed: Summed, metric: str, kind: str, more: dict[str, object]
) -> None:
    def about(unit: str) -> Event:
        return msgspec.structs.replace(part(metric, unit, **more), kind=kind)

    summed.wrong["a"] = {metric: 0.0}
    summed.play(20)
    summed.wrong["a"] = {metric: 1.0}
    (ticket,) = summed.play(700, about("PSU2"))
    assert ticket.incident.title.endswith(": PSU2")
    assert ticket.incident.severity is Severity.TICKET
    summed.wrong["a"] = {metric: 2.0}
    (second,) = summed.play(700, about("FAN2_F"))
    assert "FAN2_F" in second.incident.title


def test_the_kernels_line_names_what_has_no_count_of_its_own(summed: Summed) -> None:
    """The line itself rings nobody: the reading does."""
    summed.wrong["a"] = {"node_kernel_lockup": 0.0}
    line = "[9300.000000] watchdog: BUG: soft lockup - CPU#47 stuck for 26s! [kworker/47:1:91822]"
    assert summed.play(20, line) == []
    summed.wrong["a"] = {"node_kernel_lockup": 1.0}
    (page,) = summed.play(20)
    assert page.incident.alerts[0].labels["unit"] == "CPU#47"


def test_an_adapter_has_one_name_whatever_the_line_calls_it(summed: Summed) -> None:
    """Its PCI address in one line, its name in another: one fault, one page."""
    port = Port(id="port:a:0000:9a:00.0/1", adapter="mlx5_3", number=1, pci="0000:9a:00.0")
    gpus = (Gpu(uuid="GPU-a0", index=0, name="H100"),)
    summed.fleet.place(Inventory(node="a", gpus=gpus, ports=(port,), version=2))
    gone = "[171167.620236] mlx5_core 0000:9a:00.0: mlx5_health_try_recover:312:(pid 88): handling bad device here"
    (page,) = summed.play(60, gone)
    assert page.incident.title.endswith(": mlx5_3 (0000:9a:00.0)")
    assert page.incident.alerts[0].faults == ("nic_failed mlx5_3 (0000:9a:00.0)",)


def test_another_switch_of_the_node_rings_and_another_port_does_not(summed: Summed) -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:{}:00.0): 12026, Fatal, Link {} some error"

    def said(switch: str, port: int) -> Event:
        found = event_of(line.format(switch, port))
        return msgspec.structs.replace(found, pci=f"0000:{switch}:00.0")

    (page,) = summed.play(60, said("05", 32))
    assert page.incident.title.endswith(": 0000:05:00.0 port 32")
    assert summed.play(60, said("05", 33)) == []
    (page,) = summed.play(60, said("06", 32))
    assert page.incident.severity is Severity.PAGE


def test_a_module_is_told_of_once_in_ten_minutes(tmp_path: Path) -> None:
    """Errors of before the collector are old; its controller's count is read at each look, its modules' when it grows."""
    module = tmp_path / "sys/devices/system/edac/mc/mc0/dimm1"
    module.mkdir(parents=True)
    now = [0.0]
    parts = PartLog(lambda: now[0], lambda: 7)
    errors = MemoryErrors(tmp_path, parts)

    def write(corrected: int, uncorrected: int) -> list[dict[str, object]]:
        for folder, prefix in ((module, "dimm_"), (module.parent, "")):
            (folder / f"{prefix}ce_count").write_text(f"{corrected}\n")
            (folder / f"{prefix}ue_count").write_text(f"{uncorrected}\n")
        (module / "dimm_label").write_text("CPU0_DIMM_A1\n")
        assert errors.counts() == (corrected, uncorrected)
        return [event.data for event in parts.drain_events()]

    assert write(500, 2) == []
    assert write(500 + FEWEST_CORRECTED - 1, 2) == []
    [uncorrected] = write(500 + FEWEST_CORRECTED - 1, 3)
    assert uncorrected == {
        "metric": "node_edac_uncorrectable_errors_total",
        "unit": "CPU0_DIMM_A1",
        "state": "counts errors",
        "count": 1,
    }
    [corrected] = write(500 + FEWEST_CORRECTED, 3)
    assert corrected["count"] == FEWEST_CORRECTED
    assert write(5000, 9) == []
    now[0] = PAUSE
    assert [one["count"] for one in write(5001, 10)] == [5001 - 500 - FEWEST_CORRECTED, 7]
