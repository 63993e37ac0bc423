"""The health of a GPU: what is not read is said so, and is never 0."""

from __future__ import annotations

from collections.abc import Sequence

from api.device import GpuPageReply, LinkReply
from api.fleet import NodeReply, NodeStatus
from present.device.health import health_rows, held_row, link_traffic_row, links_row
from present.row import Tone
from telemetry.devices import Event, Gpu, Link

NODE = NodeReply("dgx-02", NodeStatus.ONLINE)
GPU = Gpu(uuid="GPU-1", index=1, name="NVIDIA H100 80GB HBM3")


def links(*states: float | None) -> Sequence[LinkReply]:
    """Return links of a GPU by their states; None is not read."""
    return [
        LinkReply(Link(gpu="GPU-1", number=n), {} if state is None else {"link_state": state})
        for n, state in enumerate(states)
    ]


def rows(page: GpuPageReply) -> dict[str, tuple[str, Tone]]:
    """Return values and tones by label."""
    return {row.label: (row.value, row.tone) for row in health_rows(page) if row.value}


def test_counters_are_numbers_and_what_is_absent_says_why() -> None:
    read = {
        "gpu_ecc_volatile_corrected_total": 1204.0, "gpu_ecc_volatile_uncorrected_total": 2.0,
        "gpu_remapped_rows_uncorrectable": 0.0, "gpu_pcie_link_generation": 5.0, "gpu_pcie_link_width": 16.0,
    }  # fmt: skip
    xid = Event(id="1", node="dgx-02", at=1, kind="xid", gpu="GPU-1", message="XID 63", data={"xid": 63})
    page = GpuPageReply(at=1, node=NODE, gpu=GPU, readings=read, links=list(links(1.0, 1.0)), events=[xid])
    assert rows(page) == {
        "corrected errors": ("1,204", Tone.PLAIN), "uncorrected errors": ("2", Tone.WARN), "rows remapped": ("0", Tone.PLAIN),
        "links": ("2 of 2 up", Tone.PLAIN), "PCIe": ("gen 5 x16", Tone.PLAIN), "XIDs": ("XID 63", Tone.WARN),
    }  # fmt: skip
    bare = GpuPageReply(at=1, node=NODE, gpu=GPU, gaps={"gpu_ecc_volatile_corrected_total": "not_supported"})
    assert rows(bare) == {
        "corrected errors": ("not supported", Tone.DIM),
        "uncorrected errors": ("not read", Tone.DIM),
        "XIDs": ("none", Tone.PLAIN),
    }


def test_a_link_that_is_not_read_is_neither_up_nor_down() -> None:
    assert links_row(links(1.0, None)).whole == "1 of 2 up, 1 link not read"
    assert links_row(links(1.0, None)).tone is Tone.PLAIN
    assert links_row(links(1.0, 0.0)).tone is Tone.WARN
    assert links_row(links(None, None)).whole == "not read, of 2 links"
    assert links_row([]).value == ""


def carrying(*rates: float | None) -> Sequence[LinkReply]:
    """Return links by the bytes a second that each carries either way; None is not read."""
    return [
        LinkReply(
            Link(gpu="GPU-1", number=n),
            {} if rate is None else {f"link_{way}_bytes_per_second": rate for way in ("transmit", "receive")},
        )
        for n, rate in enumerate(rates)
    ]


def test_the_least_used_link_is_named_where_it_differs() -> None:
    row = link_traffic_row(carrying(7e9, 0.3e9, 7.25e9))
    assert (row.label, row.whole) == ("over NVLink", "0.6 to 14.5 GB/s a link, both ways, least: link 1")
    assert link_traffic_row(carrying(7e9, 7e9)).whole == "14 GB/s a link, both ways"
    assert link_traffic_row(carrying(0.0, 0.0)).whole == "0 GB/s a link, both ways"
    assert link_traffic_row(carrying(7e9, None)).whole == "14 GB/s a link, both ways, 1 link not read"
    assert link_traffic_row(carrying(None, None)).value == ""


def test_a_power_limit_is_how_a_busy_gpu_works_and_heat_is_a_fault() -> None:
    cap = held_row("gpu_clocks_event_sw_power_cap", 0.38, 1.0)
    assert (cap.whole, cap.tone) == ("38%, of the time", Tone.PLAIN)
    heat = held_row("gpu_clocks_event_sw_thermal_slowdown", 0.58, 0.5)
    assert (heat.whole, heat.tone) == ("58%, of the 50% of the time that is known", Tone.WARN)
