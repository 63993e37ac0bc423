"""What each family's payloads mean: channels, units, partial updates, nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.devices.wall_power import WallSource
from power.meters.base import Decoder, MqttConfig
from power.meters.config import TYPES, decode_meter
from power.meters.sample import MeterSample, number
from telemetry.errors import WireError


def decoder(kind: str, topic: str, **more: Any) -> Decoder:
    """A meter's decoder, from its settings as they are written."""
    meter = decode_meter("t: meters.m", {"type": kind, "topic": topic, "on": "lab", **more})
    assert isinstance(meter, MqttConfig)
    return meter.decoder()


def heard(meter: Decoder, topic: str, payload: object) -> dict[str, MeterSample]:
    """What a message says, by channel."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return {sample.channel: sample for sample in meter.samples(topic, text.encode())}


def test_a_tasmota_plug_says_watts_volts_amps_and_kilowatt_hours() -> None:
    """Its clock has no zone and is not looked at."""
    energy = {"Total": 12.5, "Yesterday": 1.1, "Today": 0.4, "Period": 2, "Power": 845,
              "ApparentPower": 871, "ReactivePower": 211, "Factor": 0.97, "Voltage": 119, "Current": 7.32}  # fmt: skip
    told = heard(decoder("tasmota", "plug-lab"), "tele/plug-lab/SENSOR", {"Time": "2099-13-41", "ENERGY": energy})
    assert told == {
        "": MeterSample(watts=845, volt_amps=871, amps=7.32, volts=119, power_factor=0.97, energy_joules=4.5e7)
    }


def test_a_tasmota_meter_with_lists_is_its_channels_and_their_sum() -> None:
    """Golden test 9: what is a list belongs to channels, what is one number is shared or the sum."""
    energy = {"Total": [1.0, 2.0], "Power": [150, 240], "Voltage": 230, "Current": [1.32, 2.1], "Factor": [0.5, 0.99]}
    told = heard(decoder("tasmota", "tele/x/SENSOR"), "tele/x/SENSOR", {"ENERGY": energy})
    assert told[""] == MeterSample(parts=2, watts=390, amps=1.32 + 2.1, volts=230, energy_joules=3 * 3.6e6)
    assert told["1"] == MeterSample(
        channel="1",
        part_of="",
        pole="L1",
        parts=2,
        watts=150,
        amps=1.32,
        volts=230,
        power_factor=0.5,
        energy_joules=3.6e6,
    )
    assert told["2"].amps == 2.1
    partly = heard(decoder("tasmota", "x"), "tele/x/SENSOR", {"ENERGY": {"Power": [150, None], "Current": [1, 2]}})
    assert partly[""].watts is None  # a part of a sum is no sum
    assert partly["1"].watts == 150
    summed = heard(decoder("tasmota", "x"), "tele/x/SENSOR", {"ENERGY": {"Power": 390, "Current": [1.32, 2.1]}})
    assert summed[""].watts == 390
    assert summed["1"].watts is None


def test_tasmota_messages_without_energy_and_its_last_will() -> None:
    plug = decoder("tasmota", "tele/plug-lab/SENSOR")
    assert plug.samples("tele/plug-lab/SENSOR", b'{"AM2301":{"Temperature":21}}') == []
    assert plug.presence("tele/plug-lab/LWT", b"Offline") is False
    assert plug.presence("tele/plug-lab/LWT", b"Online") is True
    assert plug.presence("tele/plug-lab/SENSOR", b"Offline") is None


def notify(**components: Any) -> dict[str, Any]:
    """Return a change as a Shelly of the second generation reports it."""
    return {"src": "shelly", "dst": "x/events", "method": "NotifyStatus",
            "params": {"ts": 1.5, **{name.replace("_", ":"): state for name, state in components.items()}}}  # fmt: skip


def test_a_shellys_partial_update_is_laid_over_what_was_known() -> None:
    """Golden test 8: the current alone changes; watts and volts stand."""
    plug = decoder("shelly", "plug", component="switch:0")
    full = {"id": 0, "output": True, "apower": 845.2, "voltage": 119.4, "current": 7.3, "aenergy": {"total": 12500.0}}
    assert heard(plug, "plug/events/rpc", notify(switch_0=full))[""].watts == 845.2
    told = heard(plug, "plug/events/rpc", notify(switch_0={"id": 0, "current": 8.1}))[""]
    assert (told.watts, told.amps, told.volts) == (845.2, 8.1, 119.4)
    assert told.energy_joules == 12500 * 3600
    plug.forget()
    after = heard(plug, "plug/events/rpc", notify(switch_0={"id": 0, "current": 8.2}))
    assert after[""].watts is None  # it was away: its present draw is unknown


def test_a_shelly_answers_questions_and_publishes_whole_components() -> None:
    plug = decoder("shelly", "plug", component="switch:0")
    ((topic, question),) = plug.polls("me/7")
    assert topic == "plug/rpc"
    asked = json.loads(question)
    assert (asked["method"], asked["params"], asked["src"]) == ("Switch.GetStatus", {"id": 0}, "me/7")
    answer = {"id": asked["id"], "src": "plug", "dst": "me/7", "result": {"id": 0, "apower": 90, "voltage": 231}}
    assert heard(plug, "me/7/rpc", answer)[""].watts == 90
    assert heard(plug, "plug/status/switch:0", {"id": 0, "apower": 91})[""].volts is None  # whole
    assert plug.samples("plug/status/wifi", b'{"rssi":-60}') == []
    with pytest.raises(WireError, match="refused"):
        heard(plug, "me/7/rpc", {"id": 1, "error": {"code": -105, "message": "no handler"}})
    with pytest.raises(WireError, match="unasked"):
        heard(plug, "me/7/rpc", {"id": 9, "result": {"apower": 5}})


def test_a_strip_of_relays_is_a_whole_only_when_all_are_known() -> None:
    """Half a strip must not pass for the strip; all of it is asked for in one question."""
    strip = decoder("shelly", "strip")
    assert json.loads(strip.polls("r")[0][1])["method"] == "Shelly.GetStatus"
    first = heard(strip, "strip/events/rpc", notify(switch_0={"apower": 100}))
    assert set(first) == {"switch:0"}
    every = {"switch:0": {"apower": 100}, "switch:1": {"apower": 50}, "sys": {"uptime": 9}}
    assert heard(strip, "r/rpc", {"id": 0, "result": every})[""].watts == 150
    assert heard(strip, "strip/events/rpc", notify(switch_1={"apower": 60}))[""].watts == 160


def test_three_clamps_of_a_shelly_are_poles() -> None:
    """a, b, c are L1, L2, L3; the neutral has a clamp of its own; a reversed one stays negative."""
    meter = decoder("shelly-3em", "shellypro3em-x")
    state = {"id": 0, "a_current": 4.0, "a_voltage": 230.1, "a_act_power": 900.0, "a_aprt_power": 920.0,
             "a_pf": 0.98, "b_current": 2.0, "b_voltage": 229.0, "b_act_power": -455.0, "b_pf": -0.99,
             "c_current": 0.1, "c_act_power": None, "n_current": 1.2, "total_act_power": 455.0,
             "total_aprt_power": 1400.0, "total_current": 6.1}  # fmt: skip
    heard(
        meter,
        "r/rpc",
        {"id": 0, "result": {"em:0": state, "emdata:0": {"total_act": 1000.0, "a_total_act_energy": 600.0}}},
    )
    told = heard(meter, "shellypro3em-x/status/em:0", state)
    assert (told[""].watts, told[""].neutral_amps, told[""].energy_joules) == (455, 1.2, 3.6e6)
    assert told[""].source is WallSource.CIRCUIT_METER
    assert (told["a"].pole, told["a"].watts, told["a"].energy_joules) == ("L1", 900, 600 * 3600)
    assert (told["b"].pole, told["b"].watts, told["b"].power_factor) == ("L2", -455, 0.99)
    assert (told["c"].pole, told["c"].watts) == ("L3", None)


def test_a_relay_that_cut_off_says_so() -> None:
    plug = decoder("shelly", "plug", component="switch:0")
    told = heard(plug, "plug/events/rpc", notify(switch_0={"apower": 0.0, "errors": ["overpower"]}))
    assert told[""].flags == ("tripped",)
    assert told[""].watts == 0  # a reported 0 is a 0


def test_a_first_generation_shelly_counts_watt_minutes() -> None:
    plug = decoder("shelly-gen1", "shellyplug-s-1")
    assert plug.samples("shellies/shellyplug-s-1/relay/0/energy", b"600") == []
    told = heard(plug, "shellies/shellyplug-s-1/relay/0/power", "845.25")
    assert (told[""].watts, told[""].energy_joules) == (845.25, 36000)
    assert told["relay/0"].watts == 845.25
    assert plug.presence("shellies/shellyplug-s-1/online", b"false") is False


def test_a_first_generation_three_phase_meter_waits_for_all_its_clamps() -> None:
    meter = decoder("shelly-gen1", "shellyem3-1")
    topic = "shellies/shellyem3-1/emeter"
    for place, watts in enumerate((100, 200)):
        assert "" not in heard(meter, f"{topic}/{place}/power", str(watts))
    meter.samples(f"{topic}/2/voltage", b"230.5")
    meter.samples(f"{topic}/2/total", b"1500")
    told = heard(meter, f"{topic}/2/power", "-300")
    assert (told[""].watts, told["c"].pole, told["c"].volts) == (0, "L3", 230.5)
    assert told["c"].energy_joules == 1500 * 3600


def test_a_device_with_a_name_of_its_own_is_whole_when_all_was_heard_twice() -> None:
    meter = decoder("shelly-gen1", "kitchen/meter")
    said = [("0", 10), ("1", 20), ("0", 11), ("1", 21)]
    told = [heard(meter, f"kitchen/meter/emeter/{n}/power", str(w)).get("") for n, w in said]
    assert told[:3] == [None, None, None]
    assert told[3] is not None
    assert told[3].watts == 32


@pytest.mark.parametrize(
    ("settings", "payload", "quantity", "value"),
    [
        ({}, "845.5", "watts", 845.5),
        ({"unit": "kW"}, " 0.8 \n", "watts", 800),
        ({"path": "a.b[1].w", "unit": "mW", "scale": 10}, {"a": {"b": [0, {"w": 5000}]}}, "watts", 50),
        ({"path": '["switch:0"].apower'}, {"switch:0": {"apower": 12}}, "watts", 12),
        ({"path": '["a.b"]', "unit": "A"}, {"a.b": "7,3".replace(",", ".")}, "amps", 7.3),
        ({"path": "e", "unit": "kWh"}, {"e": 2}, "energy_joules", 7.2e6),
        ({"path": "l", "unit": "%"}, {"l": 45}, "load_ratio", 0.45),
    ],
)
def test_any_json_by_path(settings: Any, payload: object, quantity: str, value: float) -> None:
    told = heard(decoder("json", "any", **settings), "any", payload)
    assert getattr(told[""], quantity) == pytest.approx(value)


def test_several_numbers_of_one_payload() -> None:
    values = [{"path": "p"}, {"path": "i", "unit": "mA"}, {"path": "u", "unit": "V"}]
    told = heard(decoder("json", "any", values=values), "any", {"p": 500, "i": 2200, "u": None})
    assert told[""] == MeterSample(watts=500, amps=2.2)


def test_home_automation_presets() -> None:
    """A bridge's state, with messages that say nothing of power; sensors that are not there now."""
    plug = decoder("zigbee2mqtt", "desk")
    told = heard(
        plug, "zigbee2mqtt/desk", {"power": 61, "current": 0.3, "voltage": 229, "energy": 1.5, "linkquality": 9}
    )
    assert told[""] == MeterSample(watts=61, amps=0.3, volts=229, energy_joules=5.4e6)
    assert plug.samples("zigbee2mqtt/desk", b'{"linkquality":9}') == []
    assert plug.presence("zigbee2mqtt/desk/availability", b'{"state":"offline"}') is False
    sensors = decoder("home-assistant", "ha/p/state", voltage="ha/v/state")
    assert sensors.samples("ha/v/state", b"231") == []
    assert heard(sensors, "ha/p/state", "70.5")[""] == MeterSample(watts=70.5, volts=231)
    assert sensors.samples("ha/p/state", b"unavailable") == []


NONSENSE = [b"", b"nonsense", b"\xff\xfe", b"[1,2]", b"null", b'{"ENERGY":5}', b'{"ENERGY":{"Power":"x"}}',
            b'{"ENERGY":{"Power":true}}', b'{"ENERGY":{"Power":1e300}}', b'{"ENERGY":{"Power":[1,2],"Current":[1]}}',
            b'{"ENERGY":{"Power":NaN}}', b'{"ENERGY":{"Power":{"a":1}}}', b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("payload", NONSENSE, ids=lambda raw: repr(raw[:40]))
def test_nonsense_is_an_error_that_is_counted_and_never_a_value(payload: bytes) -> None:
    with pytest.raises(WireError):
        decoder("tasmota", "x").samples("tele/x/SENSOR", payload)


MQTT_TYPES = [name for name, kind in TYPES.items() if issubclass(kind, MqttConfig)]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["ENERGY", "Power", "Current", "params", "method", "switch:0", "em:0", "apower",
                         "a_act_power", "aenergy", "total", "result", "id", "power", "errors"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("kind", MQTT_TYPES)
@given(payload=st.one_of(st.binary(max_size=30), json_values.map(lambda v: json.dumps(v).encode())))
def test_whatever_comes_is_a_finite_number_or_a_wire_error(kind: str, payload: bytes) -> None:
    """The contract of every member of the union."""
    meter = decoder(kind, "a/b")
    for pattern in meter.filters():
        topic = pattern.replace("+", "switch:0" if kind == "shelly" else "0")
        meter.presence(topic, payload)
        try:
            samples = meter.samples(topic, payload)
        except WireError:
            continue
        for one in samples:
            for value in (one.watts, one.amps, one.volts, one.energy_joules, one.power_factor):
                assert value is None or abs(value) < 1e19


def test_an_integer_longer_than_a_number_is_no_number() -> None:
    """JSON has integers of any length, and `float` raises OverflowError for them."""
    with pytest.raises(WireError, match="more digits"):
        number(10**400, "watts")
