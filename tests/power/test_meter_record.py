"""From samples to readings: poles, periods, going away, clamps the wrong way round."""

from __future__ import annotations

import tomllib

import pytest

from power.devices.wall_power import WallSource
from power.live.metering import Metering
from power.meters.meter_record import MeterRecord, PeriodEstimator
from power.meters.reading import MeterReading
from power.meters.sample import MeterSample
from power.site.attach import attach
from power.site.decode import decode

SITE = """
[circuits.lab]
breaker = 60
volts = 208
poles = 3
[meters.m]
type = "tasmota"
topic = "x"
limit_watts = 2500
{target}
"""


def is_fresh(reading: MeterReading, now: float) -> bool:
    """Return whether the live state counts a reading."""
    metering = Metering({"lab": 0}, {})
    metering.absorb([reading])
    return bool(metering.fresh(now)[0])


def record(target: str = 'on = "lab"') -> MeterRecord:
    """One meter's book."""
    site = decode("s", tomllib.loads(SITE.format(target=target)))
    return MeterRecord(attach("s", site)[0], "somewhere", asked=False)


def test_the_whole_and_its_poles_are_readings_of_the_circuit() -> None:
    meter = record()
    phase = MeterSample(channel="a", part_of="", pole="L1", watts=300.0, amps=2.5)
    assert meter.add([MeterSample(watts=900.0, neutral_amps=1.5), phase], 100.0) == []
    whole, first = meter.readings()
    assert (whole.kind, whole.target, whole.pole, whole.watts) == ("circuit", "lab", None, 900)
    assert (whole.neutral_amps, whole.limit_watts, whole.source) == (1.5, 2500, WallSource.PLUG)
    assert (first.pole, first.watts, first.amps) == ("L1", 300, 2.5)


def test_a_part_is_put_on_what_the_map_says_and_nothing_else() -> None:
    meter = record('map = { 2 = "lab.L2" }')
    meter.add(
        [MeterSample(watts=900.0), MeterSample(channel="1", watts=400.0), MeterSample(channel="2", watts=500.0)], 1.0
    )
    assert [(one.pole, one.watts) for one in meter.readings()] == [("L2", 500)]


def test_a_meter_without_the_part_says_what_it_has() -> None:
    meter = record('map = { 3 = "lab" }')
    told = meter.add([MeterSample(watts=900.0), MeterSample(channel="1", watts=400.0)], 1.0)
    assert told == ["it does not report 3; it reports 1"]
    assert meter.state.message == told[0]
    assert meter.add([MeterSample(watts=900.0), MeterSample(channel="1", watts=400.0)], 2.0) == []


def test_a_reversed_clamp_is_its_amount_said_once() -> None:
    meter = record()
    told = meter.add([MeterSample(watts=-900.0, amps=-4.0)], 1.0)
    assert ["below 0 W" in line for line in told] == [True]
    reading = meter.readings()[0]
    assert (reading.watts, reading.amps, reading.flags) == (900, 4, ("reversed",))
    assert meter.add([MeterSample(watts=-800.0)], 2.0) == []


def test_a_device_that_says_good_bye_is_stale_at_once() -> None:
    meter = record()
    for at in range(0, 100, 10):
        meter.add([MeterSample(watts=900.0)], float(at))
    fresh = meter.readings()[0]
    assert is_fresh(fresh, 91.0)
    assert meter.presence(False, 91.0)
    gone = meter.readings()[0]
    assert not is_fresh(gone, 91.0)
    assert "offline" in gone.flags
    assert not meter.presence(False, 92.0)
    assert meter.readings()[0].at == gone.at  # saying it twice does not age it
    meter.add([MeterSample(watts=50.0)], 95.0)
    assert meter.state.online
    assert meter.readings()[0].flags == ()


@pytest.mark.parametrize(
    ("times", "period"),
    [
        ([0.0], 10),
        ([0, 300, 600, 900], 300),
        ([0, 10, 20, 30, 430, 440, 450], 10),
        ([0, 300, 305, 600, 602, 900, 1200], 300),
        ([0, 5000, 10000, 15000], 600),
    ],
    ids=["first", "slow", "one outage", "slow with changes between", "bounded"],
)
def test_a_period_is_learnt_from_what_comes(times: list[float], period: float) -> None:
    rhythm = PeriodEstimator(10.0, fixed=False)
    for at in times:
        rhythm.observe(at)
    assert rhythm.period == period


def test_a_slow_meter_is_told_of() -> None:
    meter = record()
    told = [line for at in (0, 300, 600) for line in meter.add([MeterSample(watts=1.0)], float(at))]
    assert told == ["it reports every 300 s, slower than a breaker trips: set it to 10 s"]
    assert meter.state.period == 300


def test_what_is_configured_is_not_learnt() -> None:
    rhythm = PeriodEstimator(20.0, fixed=True)
    for at in (0.0, 300.0, 600.0):
        rhythm.observe(at)
    assert rhythm.period == 20


def test_the_live_state_lets_go_of_a_device_that_said_good_bye() -> None:
    """The other side of the contract: its time goes back, and that counts."""
    meter, live = record(), Metering({"lab": 0}, {})
    meter.add([MeterSample(watts=900.0)], 100.0)
    live.absorb(meter.readings())
    assert list(live.fresh(101.0)) == [True]
    meter.presence(False, 101.0)
    live.absorb(meter.readings())
    assert list(live.fresh(101.0)) == [False]
    meter.add([MeterSample(watts=800.0)], 102.0)
    live.absorb(meter.readings())
    assert list(live.fresh(102.0)) == [True]
    assert list(live.number("watts")) == [800]
