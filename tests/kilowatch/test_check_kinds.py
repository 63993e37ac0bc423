"""`kilowatch check --quick` on six kinds of nodes, as it is installed: what it finds, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.check import KINDS, check_of

pytestmark = pytest.mark.systems
OF_THIS_MACHINE = ("clock", "free", "full", "space", "gap")
"""Words of findings that the machine of the test has of its own: its clock and its disks."""


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_sound_node_of_each_kind_has_no_finding_of_its_own(kind: str, tmp_path: Path) -> None:
    check = check_of(kind, tmp_path)
    for _ in range(20):  # a quick check waits for no driver that opens slowly, as on a busy machine
        reply = check().reply
        (driver,) = [each for each in reply["results"] if each["check"] == "driver"]
        if driver["verdict"] != "not known":
            break
    assert reply["node"] == kind
    found = {
        each["rule"]
        for each in reply["results"]
        if each["verdict"] not in {"fit", "left out", "not known"} and each.get("rule")
    }
    found = {rule for rule in found if not any(word in rule for word in OF_THIS_MACHINE)}
    count = {"dgx_h100": 8, "hgx_roce": 8, "gb200_tray": 4, "desktop": 4}.get(kind, 0)
    of_gpus = {"ecc_uncorrected"} if count else set()  # the stand-in of the driver counts some
    # the head node's tree lacks a mount of its /etc/fstab
    assert found == ({"mount_missing"} if kind == "head" else of_gpus)
    assert driver["text"].startswith(f"{count} GPUs answer" if count else "no GPU in this node")
