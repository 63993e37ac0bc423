"""Bursts of lines in the kernel's log: one cause is one incident; what means nothing is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.simulated import scenario
from tests.alerts.scenes import Scene
from tests.alerts.test_scenes import CALM, roomy, staged

LOST = "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SWITCH = "nvidia-nvswitch{n}: SXid (PCI:0000:0{n}:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
LINK = "NVRM: Xid (PCI:{pci}): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
WISH = "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
REMAP = "NVRM: Xid (PCI:{pci}): 64, pid=7, name=a, Row Remapper: Failed to write a row"
CONTAINED = "NVRM: Xid (PCI:{pci}): 94, pid=7, name=a, Contained: CE User Channel (0x9). RST: No, D-RST: No"


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    """Two nodes of eight GPUs that have been well for five minutes."""
    simulated = scenario("two-dgx-h100", faults="", links=False)
    scene = staged(simulated, roomy(simulated), tmp_path)
    await scene.play(CALM, every=15)
    assert scene.notices == []
    return scene


async def test_a_lost_gpu_and_the_switches_that_complain_of_it_are_one_page(scene: Scene) -> None:
    scene.say("dgx-01", LOST, pci=scene.pci("dgx-01", 3))
    await scene.play(12)
    scene.say("dgx-01", *(SWITCH.replace("{n}", str(number)) for number in (0, 1, 2)))
    await scene.play(60)
    assert scene.pages() == ["dgx-01 GPU 3 has fallen off the bus"]
    assert scene.tickets() == []


async def test_three_gpus_off_the_bus_in_one_instant_are_one_page(scene: Scene) -> None:
    for gpu in (1, 3, 6):
        scene.say("dgx-01", LOST, pci=scene.pci("dgx-01", gpu))
    await scene.play(300)
    assert len(scene.pages()) == 1
    assert scene.tickets() == []
    (incident,) = scene.pipeline.manager.incidents()
    assert {alert.labels["gpu"] for alert in incident.alerts} == {"1", "3", "6"}


async def test_links_and_wishes_of_four_gpus_of_one_tray_are_one_page(scene: Scene) -> None:
    for gpu in range(4):
        scene.say("dgx-02", LINK, WISH, pci=scene.pci("dgx-02", gpu))
    await scene.play(90)
    assert len(scene.pages() + scene.tickets()) == 1


async def test_a_row_that_failed_and_the_program_that_it_hit_are_one_page(scene: Scene) -> None:
    scene.say("dgx-01", REMAP, CONTAINED, pci=scene.pci("dgx-01", 5))
    await scene.play(60)
    assert scene.pages() == ["dgx-01 GPU 5 could not replace a memory row"]
    assert scene.tickets() == []


async def test_one_program_hurt_on_six_gpus_at_once_is_one_ticket(scene: Scene) -> None:
    """No error is counted anywhere: it is the program or the fabric."""
    for gpu in range(6):
        scene.say("dgx-01", CONTAINED, pci=scene.pci("dgx-01", gpu))
    await scene.play(60)
    assert scene.pages() == []
    [title] = scene.tickets()
    assert title == "6 GPUs of dgx-01 have a contained memory error"


async def test_a_program_that_fails_is_nobodys_alert(scene: Scene) -> None:
    for number, text in (
        (13, "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address"),
        (31, "Ch 00000007, intr 00000000. MMU Fault"),
        (43, "Ch 00000007"),
        (45, "Ch 00000007"),
    ):
        line = f"NVRM: Xid (PCI:{{pci}}): {number}, pid=7, name=a, {text}"
        scene.say("dgx-01", line, pci=scene.pci("dgx-01", 1))
    scene.say("dgx-01", "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress")
    await scene.play(60)
    assert scene.notices == []


@pytest.mark.parametrize("xid", [79, 95, 48, 119, 62, 64, 140])
async def test_an_edge_is_told_within_two_seconds(scene: Scene, xid: int) -> None:
    """The one that must wait for its companion, XID 48, needs one more."""
    line = f"NVRM: Xid (PCI:{{pci}}): {xid}, pid=7, name=a, said by the driver"
    scene.say("dgx-02", line, pci=scene.pci("dgx-02", 6))
    began = scene.second + 1
    await scene.play(8)
    [page] = [notice for notice in scene.notices if notice.reason == "new"]
    assert scene.delay(page) - began <= (3 if xid == 48 else 2)
    assert len(scene.pages()) == 1
