"""The configuration of the electrical side, as it is written: from three lines to a whole site.

[circuits.office]
breaker = 15
nodes = ["rig1"]
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from power import thresholds
from power.devices.breaker import Curve
from power.devices.conversion import Conversion
from power.devices.lsi import LsiSettings
from power.devices.supply import Tier
from power.meters.config import Meter, MeterBroker
from power.site.tariff import TariffRate
from power.wiring import USUAL_POWER_FACTOR, Wiring
from present.units import quoted
from telemetry.errors import ConfigError


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of tables that people write: an unknown key is an error."""


class SiteConfig(_Strict, frozen=True):
    """Settings of the whole site."""

    tariff: float | None = None
    """Money per kWh in hours without an entry of `tariffs`."""
    tariffs: tuple[TariffRate, ...] = ()
    """Prices by hour and day; the first match counts."""
    timezone: str | None = None
    """Time zone of tariffs and days: `Europe/Berlin`. [the machine's]"""
    currency: str = "USD"
    """Letters of the currency of all prices."""
    pue: float = 1.0
    """Energy of the building over energy of the machines."""
    g_per_kwh: float = 475.0
    """Grams of CO2 per kWh; the world's average of 2019."""
    ambient_c: float = 30.0
    """Degrees around the breakers."""
    home_watts: float = 1200.0
    """Mean draw of a home, for comparison."""
    ev_kwh: float = 90.0
    """Battery of an electric car, for comparison."""
    life_years: float = 4.0
    """Years in which a machine is written off: what an idle hour costs where no rate is known."""


Scheme = Literal["2N", "N+1", "N", "2(N+1)"]
EfficiencyPoints = float | tuple[tuple[float, float], ...]
"""Output over input at every load, or [load, efficiency] pairs."""


class RedundancyConfig(_Strict, frozen=True):
    """Group of redundant elements of one kind: circuits, panels, UPSs, transformers, transfer switches or
    sources. N+1 bears the loss of one, 2N that of all of one side, 2(N+1) that of a side and one more."""

    group: str
    """Name of the group."""
    role: str
    """Its place in the group, as A or B2."""
    scheme: Scheme = "2N"
    """Redundancy of the group."""
    side: str | None = None
    """Members of one side are lost together under 2N and 2(N+1). [the role without its number: A of A2]"""


class SourceConfig(_Strict, frozen=True):
    """A utility's service or a generator. Panels and others name it as `source` or `parent`."""

    kw: float | None = None
    """Most that it can deliver, kW."""
    kva: float | None = None
    """Rating, kVA."""
    generator: bool = False
    """Whether it is a generator, which swinging loads disturb."""
    redundancy: RedundancyConfig | None = None


class PanelConfig(_Strict, frozen=True):
    """A distribution panel with its main breaker."""

    parent: str | tuple[str, ...] | None = None
    """Element that feeds it; several feed it together, as parallel UPSs do."""
    redundancy: RedundancyConfig | None = None
    volts: float | None = None
    """Between lines on three-phase and split-phase panels. [by region]"""
    wiring: Wiring | None = None
    """How its conductors relate. [that of what feeds it]"""
    breaker: float | str | None = None
    """Amps of the main breaker."""
    budget_kw: float | None = None
    """Ceiling on its power, kW."""
    source: str | None = None
    """The utility or generator behind it."""
    generator: bool = False
    """Whether its source is a generator, which swinging loads disturb."""
    curve: Curve | None = None
    """Standard and class of its main breaker. [by region]"""
    lsi: LsiSettings | None = None
    """Dials of its electronic trip unit."""
    continuous: float | None = None
    """Continuous limit over rating. [by the breaker's standard]"""
    other_w: float = 0.0
    """Load that hangs on none of its circuits, watts: cooling, light."""


class CircuitConfig(_Strict, frozen=True):
    """A breaker and all that hangs on it."""

    breaker: float | str | None = None
    """Amps: 15, or "15A"."""
    rated_amps: float | str | None = None
    """Amps of a circuit known only by rating (NetBox, Redfish)."""
    rating_is_derated: bool = False
    """The rating is the continuous limit already: nothing is taken off twice, and no trip time is known."""
    volts: float | None = None
    """Between lines on three-phase and split-phase circuits. [120 in the US, 100 in JP, else 230]"""
    poles: int | None = None
    """Poles of its breaker: 1, 2 or 3. [by `phase` and `wiring`]"""
    third_harmonic: float = 0.0
    """Amps of the third harmonic over those of a pole: its neutral carries three times that. 0.3 is bad; a meter
    on the neutral measures it."""
    phase: str | None = None
    """The poles it takes of its parent: L1, or L1-L2."""
    wiring: Wiring | None = None
    """How its conductors relate. [that of its panel]"""
    curve: Curve | None = None
    """Standard and class of its breaker. [by region]"""
    lsi: LsiSettings | None = None
    """Dials of an electronic trip unit, with `curve = "LSI"`."""
    continuous: float | None = None
    """Continuous limit over rating: for loads of 3 h and more. [0.8 of UL 489 and JIS breakers; the
    rating of IEC ones]"""
    connector: str | None = None
    """The outlet or plug in line: `L6-30`, `C19`, `CEE 32`, `Schuko`."""
    grouping: float = 1.0
    """Derating factor for a row of loaded breakers."""
    pf: float = USUAL_POWER_FACTOR
    """Power factor of its load, where no meter reads it."""
    sag: float = 1.0
    """Real voltage over nominal; 0.97 plans for a weak line, where constant power draws more amps."""
    panel: str | None = None
    """The panel that feeds it."""
    parent: str | None = None
    """The element that feeds it, where that is no panel."""
    nodes: tuple[str, ...] = ()
    """Nodes that are plugged in, each with all of its supplies; cords of a node say it in detail."""
    other_w: float = 0.0
    """Watts of loads that kilowatch does not monitor."""
    neutral_amps: float | None = None
    """Rating of the neutral. [that of the poles]"""
    plug_amps: float | None = None
    """Limit of a smart plug in the line."""
    redundancy: RedundancyConfig | None = None
    meter: str | None = None
    """An entry of [meters], or a short form: `tasmota:tele/plug-lab/SENSOR`."""
    rack: str | None = None
    """The rack that it feeds: a label, for people and for grouping."""
    rcd_ma: float | None = None
    """A note only: residual currents are not modelled."""


class CordConfig(_Strict, frozen=True):
    """A power cord of a node."""

    circuit: str
    """The circuit that it is plugged into."""
    psu: str | int | None = None
    """Supplies behind it: 1, or "1-3"."""
    share: float | None = None
    """Part of the node's power that it carries. [by the supplies behind it]"""
    phase: str | None = None
    """Poles of the circuit that it uses: L1 or L1-L2. [all of them, evenly]"""
    connector: str | None = None
    """Its weakest connector: `C13`, `C19`, `5-15`; of each supply where it names several."""


class SupplyConfig(_Strict, frozen=True):
    """A node's power supplies."""

    tier: Tier = Tier.GOLD
    """80 PLUS grade: `white` to `titanium`."""
    watts: float | None = None
    """Rating of one."""
    low_line_watts: float | None = None
    """Rating of one at 100 to 127 V, where that is less. [`watts`]"""
    count: int = 1
    """How many there are."""
    needed: int | None = None
    """How many must work for full performance. [all]"""
    points: tuple[tuple[float, float], ...] | None = None
    """[load, efficiency] pairs in place of the grade's."""
    atx: float | None = None
    """Version of the ATX guide; supplies before 3.0 need not bear a GPU's spikes."""
    inrush_amps: float | None = None
    """Inrush peak of one supply. [30]"""


class NodeConfig(_Strict, frozen=True):
    """A machine: what is in it, and where it is plugged in."""

    profile: str | None = None
    """A complete system of the catalogue: `dgx-h100`."""
    gpus: str | tuple[str, ...] | None = None
    """`4x RTX 5090`; several models as a list: `["2x RTX 4090", "1x A6000"]`."""
    tdp_watts: float | None = None
    """Watts of each GPU's board, for a card that the catalogue does not know, or in place of its value."""
    host_watts: float | None = None
    """Everything but the GPUs at full load, inside the case. [250]"""
    watts: float | None = None
    """At the wall, for a machine without GPUs or a measured one."""
    cap_watts: float | None = None
    """Enforced limit per GPU."""
    floor_watts: float | None = None
    """Lowest cap that the driver takes, in place of the catalogue's."""
    linked_gpus: int | None = None
    """GPUs that reach each other's memory over NVLink, as the driver's topology shows; for reports.
    [what the profile has, or a system of the catalogue with as many of the model; else 1]"""
    price_usd: float | None = None
    """Of the whole node."""
    host_price_usd: float | None = None
    """Of everything but the GPUs."""
    hourly_rate: float | None = None
    """Rent of one of its GPUs per hour."""
    priority: int = 0
    """Nodes of lower priority are capped first by `kilowatch cap --by priority`; may be negative."""
    role: str | None = None
    """Role of the node: `training`, `login`. [gpu or support]"""
    meter: str | None = None
    """Meter of the whole node at the wall: an entry of [meters], or a short form."""
    supply: SupplyConfig | None = None
    cords: tuple[CordConfig, ...] = ()


class WindingConfig(_Strict, frozen=True):
    """Winding of a transformer: its primary or secondary."""

    volts: float | None = None
    """Between lines. [the primary's: those of what feeds it]"""
    breaker: float | str | None = None
    """Amps."""
    wiring: Wiring | None = None
    """[that of three lines with neutral; of the primary: that of what feeds it]"""


class TransformerConfig(_Strict, frozen=True):
    """A transformer, or a distribution unit with one: 480 V in, 208 V out."""

    kva: float
    """Rating."""
    parent: str | None = None
    """Element that feeds it."""
    source: str | None = None
    """The utility behind it, where it has no parent."""
    primary: WindingConfig = WindingConfig()
    secondary: WindingConfig = WindingConfig()
    delta_wye: bool = True
    """Whether its primary has no neutral, so that a load of one pole draws from two lines."""
    efficiency: EfficiencyPoints | None = None
    """[the least that 10 CFR 431 allows for its rating]"""
    redundancy: RedundancyConfig | None = None


class TransferConfig(_Strict, frozen=True):
    """A transfer switch: feeds what is behind it from the preferred input, else from the alternate one."""

    preferred: str
    """Element that feeds it as a rule."""
    alternate: str
    """Element that feeds it otherwise."""
    kind: Literal["ATS", "STS"] = "ATS"
    """Automatic (contacts) or static (semiconductors)."""
    on: Literal["preferred", "alternate"] = "preferred"
    """The input in use while both have power."""
    breaker: float | str | None = None
    """Amps that it may carry."""
    redundancy: RedundancyConfig | None = None


class UpsConfig(_Strict, frozen=True):
    """A battery between some circuits or nodes and the line: a protective device of its own."""

    watts: float
    """Rating, with all modules."""
    parent: str | None = None
    """Element that feeds it: its load with its losses is then a load of that. [not modelled]"""
    source: str | None = None
    """The utility behind it, where it has no parent."""
    bypass: bool | str = False
    """Whether what is behind it stays on when it fails, from its own input or from the named one."""
    on_bypass: bool = False
    """Whether it is in bypass now, for maintenance."""
    volts: float | None = None
    """Output, between lines. [those of what feeds it]"""
    wiring: Wiring | None = None
    """Wiring of the output. [that of what feeds it]"""
    breaker: float | str | None = None
    """Amps of its output breaker."""
    modules: int = 1
    """Power modules that share the load; the loss of one leaves the rest."""
    conversion: Conversion = Conversion.DOUBLE_CONVERSION
    """How it converts."""
    efficiency: EfficiencyPoints | None = None
    """[typical for its conversion and rating]"""
    redundancy: RedundancyConfig | None = None
    volt_amps: float | None = None
    """Rating. [watts over 0.9]"""
    battery_wh: float | None = None
    """Energy of its batteries when new, Wh: `plan` says for how long they carry the load."""
    circuits: tuple[str, ...] = ()
    """Circuits behind it."""
    nodes: tuple[str, ...] = ()
    """Nodes behind it that are on none of its circuits."""
    overload: tuple[tuple[float, float], ...] | None = None
    """[load, seconds] pairs: seconds for which it bears a load up to that ratio. [typical values]"""


class BudgetConfig(_Strict, frozen=True):
    """A ceiling on power, or on a month's energy or cost."""

    circuits: tuple[str, ...]
    """Circuits and panels whose sum it limits."""
    kw: float | None = None
    """Ceiling on power, kW."""
    warn: float = thresholds.BUDGET
    """Part of the ceiling from which it is near."""
    crit: float = thresholds.BUDGET_NEAR
    """Part of the ceiling from which it is a breach soon."""
    clear: float = thresholds.BUDGET_CLEAR
    """Part of the ceiling below which all is well again."""
    kwh_month: float | None = None
    """Ceiling on a calendar month's energy, kWh."""
    cost_month: float | None = None
    """Ceiling on a calendar month's cost."""


class BillConfig(_Strict, frozen=True):
    """The utility's contract beside the price of energy: what a month's demand costs."""

    circuits: tuple[str, ...] = ()
    """Circuits and panels that are billed. [all that nothing feeds, and nodes on no circuit]"""
    demand_minutes: Literal[15, 30, 60] = 15
    """Interval over which demand is averaged."""
    demand_days: int = 1
    """Days of whose highest demands the mean is billed: 3 where the contract says so, 1 is the month's highest."""
    demand_charge: float = 0.0
    """Money per kW of the month's billed demand."""
    contract_kw: float | None = None
    """Agreed demand."""
    contract_charge: float = 0.0
    """Money per kW of agreed demand and month, used or not."""
    excess_charge: float = 0.0
    """Money per kW of demand above the agreed one, beside `demand_charge`."""
    ratchet: float = 0.0
    """Part of the highest demand of the months before that is billed at least."""
    ratchet_months: int = 11
    """Months before that `ratchet` looks at."""
    power_factor: float | None = None
    """Least power factor of a month."""
    reactive_charge: float = 0.0
    """Money per kvarh beyond that power factor."""
    power_factor_adjusts_demand: bool = False
    """Whether billed demand is raised by the least power factor over the month's."""
    fixed_charge: float = 0.0
    """Money per month."""


class PowerConfig(_Strict, frozen=True):
    """The configuration of the electrical side."""

    region: str | None = None
    """Two capital letters, US, CA, JP, EU, UK ...: selects default voltage and curve."""
    site: SiteConfig = SiteConfig()
    sources: dict[str, SourceConfig] = {}
    transformers: dict[str, TransformerConfig] = {}
    transfers: dict[str, TransferConfig] = {}
    panels: dict[str, PanelConfig] = {}
    circuits: dict[str, CircuitConfig] = {}
    meters: dict[str, Meter] = {}
    """Meters by name."""
    brokers: dict[str, MeterBroker] = {}
    """MQTT brokers of meters that do not publish to kilowatch's own."""
    meter_broker: str | None = None
    """Entry of [power.brokers] of meters that name none. [kilowatch's own; that of `run --meters-port`]"""
    ups: dict[str, UpsConfig] = {}
    nodes: dict[str, NodeConfig] = {}
    budgets: dict[str, BudgetConfig] = {}
    bill: BillConfig | None = None


def amps(where: str, value: float | str) -> float:
    """Return amps of 15, "15" or "15A"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*A?\s*", value)
        if not match:
            number = re.match(r"\s*(\d+(?:\.\d+)?)", value)
            example = number[1] if number else "15"
            raise ConfigError(where, f"{value!r} is no current", f'Write {example} or "{example}A".')
        value = float(match[1])
    if value <= 0:
        raise ConfigError(where, f"a current of {quoted(value, 'A')} is none", "Write the breaker's amps.")
    return value
