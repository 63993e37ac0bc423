"""The headline of a node and of a GPU says the worst true thing, and never that all is well of what is not known."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from aggregator.access.private_fields import public_json
from api.alerts import AlertState, Severity
from api.decoding import decode
from api.device import GpuPageReply, GpuReply, NodePageReply
from api.fleet import NodeReply, NodeStatus
from api.jobs import GpuHolder
from api.power import TripSeconds
from present.device.figures import UNKNOWN, DeviceFigure, gpu_figures, node_figures, others
from present.fleet.device_headline import OpenAlert, gpu_headline, node_headline
from present.fleet.headline import IN_THE_KNOWN, WELL, Urgency
from present.row import Tone
from telemetry.devices import Gpu
from tests.alerts.notices import alert
from tests.present.circuits import ASSUMED, COOL

NODE = NodeReply("dgx-02", NodeStatus.ONLINE, 1.0, gpus=3, gpus_present=3)
TRIPS = replace(COOL, trip_seconds=TripSeconds(61.0, 200.0, None), facts={"remedy": "cap each GPU at 400 W"})
WARM = {
    "gpu_power_watts": 690.0, "gpu_power_limit_watts": 700.0, "gpu_temperature_celsius": 65.0,
    "gpu_temperature_slowdown_celsius": 87.0, "gpu_utilization_ratio": 0.97, "gpu_memory_used_bytes": 72 * 2.0**30,
    "gpu_memory_total_bytes": 80 * 2.0**30, "gpu_sm_clock_hertz": 1.98e9, "gpu_sm_clock_max_hertz": 1.98e9,
    "gpu_clocks_event_sw_power_cap": 1.0, "gpu_clocks_event_sw_thermal_slowdown": 0.0,
}  # fmt: skip
SLOW = WARM | {
    "gpu_temperature_celsius": 88.0,
    "gpu_sm_clock_hertz": 1.275e9,
    "gpu_clocks_event_sw_thermal_slowdown": 1.0,
}


def gpu(index: int, readings: dict[str, float], **gaps: str) -> GpuReply:
    """A GPU of the node."""
    return GpuReply(Gpu(uuid=f"GPU-{index}", index=index, name="NVIDIA H100 80GB HBM3"), readings, gaps)


COOL_ONES = [gpu(0, WARM), gpu(1, WARM | {"gpu_temperature_celsius": 61.0})]
LOST = gpu(2, {}, gpu_power_watts="device_lost")


def node(*gpus: GpuReply, **more: object) -> NodePageReply:
    """Return the page of the node."""
    return NodePageReply(at=1, node=replace(NODE, **more), gpus=list(gpus))


def test_a_node_is_well_only_where_its_gpus_and_its_feeds_are_known() -> None:
    calm = node_headline(node(*COOL_ONES), [], [COOL], {})
    assert (calm.urgency, calm.text) == (Urgency.WELL, WELL)
    assert calm.why.startswith(f"Hottest GPU 65 °C; nearest limit: {COOL.id} at ")
    partly = node_headline(node(*COOL_ONES, gpu(2, {})), [], [ASSUMED], {})
    assert (partly.urgency, partly.text) == (Urgency.UNKNOWN, IN_THE_KNOWN)
    assert "The power of 1 of 3 GPUs is not known" in partly.why
    assert "the load of 1 of 1 circuit that feeds it is not measured" in partly.why
    silent = node_headline(node(*COOL_ONES, state=NodeStatus.STALE, age_seconds=42.0), [], [COOL], {})
    assert silent.urgency is Urgency.UNKNOWN
    assert silent.text == "dgx-02 is stale: nothing new for 42 s"


def test_what_is_wrong_with_one_gpu_is_said_beside_what_the_others_do() -> None:
    """No alert need fire yet; a GPU at its power limit works as it should."""
    found = node_headline(node(*COOL_ONES, gpu(2, SLOW)), [], [COOL], {})
    assert found.urgency is Urgency.TICKET
    assert found.text == "GPU 2 is slowed down: sw thermal"
    assert found.why == "1,275 MHz of 1,980 MHz (2 others: 1,980 MHz); 88 °C (2 others: 61 to 65 °C)"
    lost = node_headline(node(*COOL_ONES, LOST, gpu(3, SLOW)), [], [COOL], {})
    assert (lost.urgency, lost.text) == (Urgency.PAGE, "GPU 2 is lost")


def test_a_circuit_that_may_trip_comes_first_with_what_helps_by_the_model() -> None:
    found = node_headline(node(*COOL_ONES, LOST), [OpenAlert(alert())], [TRIPS], {TRIPS.id: Tone.CRIT})
    assert found.text == f"{TRIPS.id}, which feeds it, may trip in 61 s"
    assert (found.act, found.trips) == ("cap each GPU at 400 W", TRIPS)
    assert found.urgency is Urgency.PAGE


def test_alerts_are_counted_and_the_worst_is_named_with_what_helps() -> None:
    ticket = OpenAlert(replace(alert(severity=Severity.TICKET), summary="a ticket"))
    page = OpenAlert(replace(alert(), summary="GPU 3 is lost"), "i-1", "kilowatch recover GPU-3")
    over = OpenAlert(replace(alert(state=AlertState.RESOLVED), summary="over"))
    found = node_headline(node(*COOL_ONES), [ticket, over, page], [COOL], {})
    assert (found.urgency, found.text) == (Urgency.PAGE, "1 page, 1 ticket: GPU 3 is lost")
    assert (found.incident, found.act) == ("i-1", "kilowatch recover GPU-3")
    silent = node_headline(node(*COOL_ONES, state=NodeStatus.OFFLINE), [ticket], [COOL], {})
    assert silent.why.startswith("dgx-02 is offline: nothing new for 1 s. ")


def page(one: GpuReply, **more: object) -> GpuPageReply:
    """Return the page of a GPU."""
    return GpuPageReply(at=1, node=replace(NODE, **more), gpu=one.gpu, readings=one.readings, gaps=one.gaps)


def test_a_gpu_is_judged_by_itself_and_shown_beside_its_peers() -> None:
    calm = gpu_headline(page(COOL_ONES[0]), [], COOL_ONES[1:])
    assert (calm.urgency, calm.text) == (Urgency.WELL, WELL)
    assert calm.why.startswith("Clocks held by power cap; 1,980 MHz of 1,980 MHz")
    slow = gpu_headline(page(gpu(2, SLOW)), [], COOL_ONES)
    assert (slow.urgency, slow.text) == (Urgency.TICKET, "It is slowed down: sw thermal")
    assert slow.why.endswith("88 °C (2 others: 61 to 65 °C)")
    assert gpu_headline(page(LOST), [], COOL_ONES).text == "It is lost"
    blind = gpu_headline(page(gpu(2, {"gpu_temperature_celsius": 50.0})), [], COOL_ONES)
    assert (blind.urgency, blind.why) == (Urgency.UNKNOWN, "Its power is not known. 50 °C (2 others: 61 to 65 °C)")
    stale = gpu_headline(page(gpu(2, {}), state=NodeStatus.STALE), [], COOL_ONES)
    assert (stale.urgency, stale.text) == (Urgency.UNKNOWN, "dgx-02 is stale: nothing new for 1 s")


def said(figures: list[DeviceFigure]) -> dict[str, str]:
    """Return values and notes by label."""
    return {one.row.label: f"{one.row.value} | {one.row.note}" for one in figures}


def test_the_figures_of_a_node_say_how_many_of_its_gpus_are_read() -> None:
    whole = list(node_figures(node(*COOL_ONES)))
    assert said(whole) == {
        "at its GPUs": "1.4 kW | at the wall it is not read",
        "hottest: GPU 0": "65 °C | slows at 87 °C; 1 other: 61 °C",
        "use": "97% | mean of 2 GPUs",
        "memory": "144 GiB | of 160 GiB; fullest: GPU 0, 90%",
    }
    part = list(node_figures(node(*COOL_ONES, LOST)))
    assert [one.row.value[0] for one in part] == ["≥", "6", "9", "≥"]
    assert all("2 of 3 GPUs read" in one.row.note for one in part)
    blind = list(node_figures(node(LOST)))
    assert [one.row.value for one in blind] == [UNKNOWN] * 4
    assert all(one.part is None and one.row.tone is Tone.STALE for one in blind)


def test_jobs_that_are_hidden_from_the_reader_are_not_counted_as_one() -> None:
    jobs = [GpuHolder(scheduler="slurm", job=str(number), user="ada") for number in (1, 2)]
    held = [replace(one, holders=[job]) for one, job in zip(COOL_ONES, jobs, strict=True)]
    assert said(list(node_figures(node(*held))))["held by"] == "2 jobs | 2 of 2 GPUs held"
    hidden = decode(public_json(msgspec.json.encode(node(*held))), NodePageReply)
    found = said(list(node_figures(hidden)))
    assert "held by" not in found
    assert found["held"] == "2 of 2 GPUs | "


@pytest.mark.parametrize(("readings", "tones"), [(WARM, {"": 5}), (SLOW, {"warn": 2, "": 3}), ({}, {"stale": 5})])
def test_the_figures_of_a_gpu_are_loud_where_it_is_slowed_and_unknown_where_it_is_not_read(
    readings: dict[str, float], tones: dict[str, int]
) -> None:
    found = list(gpu_figures(readings.get, COOL_ONES))
    counts = {tone: sum(one.row.tone == tone for one in found) for tone in tones}
    assert counts == tones
    if readings is SLOW:
        assert said(found)["clock"] == "1,275 MHz | of 1,980 MHz; held by sw thermal, power cap; 2 others: 1,980 MHz"
        assert found[0].part == pytest.approx(88 / 87)


def test_a_board_that_says_its_margin_alone_has_the_temperature_at_which_it_is_slowed() -> None:
    """NVIDIA's boards since Hopper: the temperature itself is not among their readings."""
    newer = {
        "gpu_temperature_celsius": 65.0,
        "gpu_thermal_margin_celsius": 22.0,
        "gpu_thermal_margin_slowdown_celsius": -2.0,
    }
    found = next(iter(gpu_figures(newer.get, [])))
    assert (found.row.note, found.row.tone) == ("slows at 89 °C", Tone.PLAIN)
    assert found.part == pytest.approx(65 / 89)
    hot = newer | {"gpu_temperature_celsius": 90.0, "gpu_thermal_margin_celsius": -3.0}
    assert next(iter(gpu_figures(hot.get, []))).row.tone is Tone.WARN


def test_what_others_do_is_a_span_in_one_unit() -> None:
    assert others("gpu_temperature_celsius", []) == ""
    assert others("gpu_temperature_celsius", [64.0, 71.0]) == "2 others: 64 to 71 °C"
    assert others("gpu_utilization_ratio", [0.5, 0.98, 0.7]) == "3 others: 50% to 98%"
