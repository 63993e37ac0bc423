"""A GPU and its users are worded once: golden texts, and the faces that lay them out."""

from __future__ import annotations

import html
import re

import pytest

from api.device import GpuPageReply
from api.fleet import NodeReply, NodeStatus
from kilowatch.text.who import who_lines
from present.device.gpu import (
    CLOCK_LIMITS,
    clock_limit_row,
    event_row,
    identity_rows,
    limit_word,
    now_rows,
    state_row,
    unread_row,
)
from present.device.use import lacking_lines, use_lines
from telemetry.devices import Event, Gpu
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, JobSourceState, NodeJobs
from tests.aggregator.http_client import door
from tests.present import golden
from tests.tui.test_lines import line_text
from tests.web.busy_lab import busy_lab
from tui.screens.gpu import gpu_lines
from tui.state.dashboard_state import DashboardState

GIB = 2.0**30
BUSY = {
    "gpu_power_watts": 702.4, "gpu_power_limit_watts": 700.0, "gpu_memory_used_bytes": 71.2 * GIB,
    "gpu_memory_total_bytes": 80 * GIB, "gpu_performance_state": 0.0, "gpu_pcie_link_generation": 5.0,
    "gpu_pcie_link_width": 16.0, "gpu_pcie_link_generation_max": 5.0, "gpu_pcie_link_width_max": 16.0,
    "gpu_remapped_rows_uncorrectable": 0.0, "gpu_remapped_rows_pending": 0.0, "gpu_remapped_rows_failure": 0.0,
    **dict.fromkeys(CLOCK_LIMITS, 0.0), "gpu_clocks_event_sw_power_cap": 1.0,
}  # fmt: skip
FAULTY = BUSY | {
    "gpu_pcie_link_width": 8.0,
    "gpu_remapped_rows_uncorrectable": 2.0,
    "gpu_remapped_rows_pending": 1.0,
    "gpu_clocks_event_hw_thermal_slowdown": 1.0,
}
READINGS = {
    "busy at its power cap": BUSY,
    "a narrow bus, rows pending, too hot": FAULTY,
    "a remap that failed": {"gpu_remapped_rows_uncorrectable": 8.0, "gpu_remapped_rows_failure": 1.0},
    "a board that says little": {"gpu_power_watts": 31.0, "gpu_pcie_link_generation": 3.0, "gpu_pcie_link_width": 4.0},
}
UNREAD = {
    "gone from the bus": (False, {"gpu_power_watts": "device_lost"}),
    "lost, with what is read seldom": (True, {"gpu_power_watts": "device_lost"}),
    "hung": (True, {"gpu_power_watts": "timed_out"}),
    "silent": (True, {"gpu_power_watts": "stale"}),
    "without a word": (True, {"gpu_power_watts": "error"}),
}
BOARD = Gpu(uuid="GPU-1", index=3, name="NVIDIA H100 80GB HBM3", pci="0000:18:00.0", serial="1650", slot="14")
TRAY = Gpu(uuid="GPU-2", index=4, name="NVIDIA GB200", slot="slot 14, tray 4")
MINUTE = 60 * 10**9
NOW = 1_790_000_000 * 10**9
SLURM, ANN = JobKey("slurm", "lab", "4711"), JobKey("user", "", "ann")
HELD = NodeJobs(
    session=1,
    jobs=(Job(key=SLURM, name="train", user="ada"), Job(key=ANN, user="ann")),
    allocations=(
        Allocation(job=SLURM, gpu="GPU-1", begin=NOW - MINUTE, source="slurm-hook"),
        Allocation(job=SLURM, gpu="GPU-2", begin=NOW - MINUTE, source="slurm-hook"),
    ),
    processes=(
        GpuProcess(
            gpu="GPU-1",
            pid=7,
            started=NOW - MINUTE,
            user="ada",
            name="python",
            job=SLURM,
            memory_bytes=2 << 30,
            sm_ratio=0.5,
            instance=3,
        ),
        GpuProcess(gpu="GPU-1", pid=8, hidden="no permission", type="graphics"),
        GpuProcess(gpu="GPU-1", pid=9, user="ann", name="nvidia-cuda-mps-server", job=ANN, type="mps"),
    ),
    sources=(JobSourceState(name="process"), JobSourceState(name="ray", state="absent")),
)
BLIND = NodeJobs(
    session=1, left_out=3, sources=(JobSourceState(name="process", state="no permission", message="hidepid"),)
)
FREE = Gpu(uuid="GPU-3", index=5, name="L4")


def event(kind: str, message: str = "", **data: object) -> Event:
    return Event(id=kind, node="n1", at=NOW, kind=kind, message=message, data=data)


def test_every_fact_of_a_gpu_reads_as_kept() -> None:
    """What its page says, why it is not read, what identifies it, and its events."""
    pages = {
        name: [*golden.told(now_rows(each.get)), *golden.told([clock_limit_row(each.get)])]
        for name, each in READINGS.items()
    }
    unread = {name: golden.told([unread_row(present, gaps.values())]) for name, (present, gaps) in UNREAD.items()}
    events = [
        event("xid", "fallen off the bus", xid=79, line="NVRM: Xid (PCI:0000:18:00): 79"),
        event("gpu_lost", "GPU 3 is gone"),
        event("clocks_down", "a power brake"),
        event("driver_up"),
    ]
    golden.check(
        "gpu",
        {
            **pages,
            **{f"unread: {name}": lines for name, lines in unread.items()},
            "a board": golden.told(identity_rows(BOARD)),
            "in a tray": golden.told(identity_rows(TRAY)),
            "events": golden.told(map(event_row, events)),
            "reasons": [limit_word(name) for name in ("hw_thermal_slowdown", "sw_power_cap", "sync_boost")],
        },
    )


def test_every_user_of_a_gpu_reads_as_kept() -> None:
    """A process with and without its owner, an allocation without a process, a free GPU, and a blind node."""

    def lines(message: NodeJobs) -> list[str]:
        found = [line for gpu in (BOARD, TRAY, FREE) for line in use_lines(message, gpu, NOW)]
        return [" | ".join((str(each.gpu.index), str(each.instance), each.pid, each.user, each.job, each.memory, each.use, each.age, each.program)) for each in found] + list(lacking_lines(message))  # fmt: skip

    golden.check("use", {"a node that says": lines(HELD), "a blind node": lines(BLIND)})


@pytest.mark.parametrize(
    ("present", "readings", "gaps", "words"),
    [
        (True, BUSY, {}, ""), (False, BUSY, {}, "lost"), (True, {}, {}, "stale"),
        (True, BUSY, {"a": "device_lost"}, "lost"), (True, BUSY, {"a": "timed_out"}, ""),
    ],
)  # fmt: skip
def test_a_gpu_is_unread_where_it_is_gone_or_has_no_reading(
    present: bool, readings: dict[str, float], gaps: dict[str, str], words: str
) -> None:
    gpu = Gpu(uuid="GPU-1", index=0, name="H100", present=present)
    assert state_row(gpu, readings, gaps).value == words


@pytest.mark.parametrize("name", READINGS)
def test_the_page_in_the_terminal_says_what_is_kept(name: str) -> None:
    node = NodeReply(node="n1", state=NodeStatus.ONLINE, gpus=1)
    page = GpuPageReply(at=NOW, node=node, gpu=BOARD, readings=READINGS[name])
    state = DashboardState().with_doc("api/v1/gpus/GPU-1", page, 0.0)
    said = " ".join(" ".join(map(line_text, gpu_lines(state, "GPU-1", 900, 4000, 60, utc=True))).split())
    for row in now_rows(READINGS[name].get):
        assert row.value in said
        assert row.note in said


async def test_web_and_command_say_the_same_of_who_uses_a_gpu() -> None:
    view = await busy_lab()
    async with door(view) as client:
        for node in ("n1", "n2"):
            inventory, message = view.fleet.nodes[node].inventory, view.jobs.lists[node]
            page = html.unescape(re.sub(r"<[^>]*>", " ", (await client.text(f"/nodes/{node}"))[1]))
            web = " ".join(page.split())
            at = view.wall()
            command = [
                " ".join(line.split())
                for line in who_lines(
                    Inventory(node=node, driver_state="up", gpus=inventory.gpus), inventory.gpus, message, at
                )
            ]
            for gpu in inventory.gpus:
                for line in use_lines(message, gpu, at):
                    cells = (line.pid, line.user, line.job, line.memory, line.use, line.age, line.program)
                    assert " ".join(filter(None, cells)) in web
                    assert any(
                        line.startswith(str(gpu.index)) and all(cell in line for cell in cells) for line in command
                    )


def test_a_board_in_a_tray_is_not_named_slot_twice() -> None:
    node = NodeReply(node="n1", state=NodeStatus.ONLINE, gpus=1)
    page = GpuPageReply(at=NOW, node=node, gpu=TRAY, readings=BUSY)
    state = DashboardState().with_doc("api/v1/gpus/GPU-2", page, 0.0)
    lines = [line_text(line) for line in gpu_lines(state, "GPU-2", 900, 200, 60, utc=True)]
    assert lines[1] == "GPU-2  slot 14, tray 4"
