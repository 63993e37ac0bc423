"""Plausibility of settings: the range of every number, the reason for it, and the unit that was probably meant.

A range is wide enough for whatever is on sale; a number outside is a slip of the keyboard or of the unit, and
makes every figure behind it wrong. What is allowed and unusual is a notice (E24), and not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from power.devices.catalogue import SYSTEM_BY_ID, key_of
from power.devices.connectors import find_connector
from power.devices.mains import MAINS
from power.site.circuit import Circuit
from power.site.config import (
    CircuitConfig,
    NodeConfig,
    PanelConfig,
    PowerConfig,
    RedundancyConfig,
    SupplyConfig,
    UpsConfig,
    amps,
)
from power.site.cords import Plugged
from power.site.machine import Machine, gpu_parts, lowest_cap
from power.wiring import Wiring
from present.units import amperes, exact_watts, quoted
from telemetry.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MistakenUnit:
    """A unit that is mistaken for another: its sign, and the conversion to that."""

    sign: str
    convert: Callable[[float], float]


def _times(sign: str, factor: float) -> MistakenUnit:
    return MistakenUnit(sign, lambda value: value * factor)


KILO_W, KILO_V, KILO_VA = _times("kW", 1000), _times("kV", 1000), _times("kVA", 1000)
WATT, VOLT_AMPERE, MILLI_A = _times("W", 0.001), _times("VA", 0.001), _times("mA", 0.001)
MILLI_V, PERCENT, CENTS = _times("mV", 0.001), _times("%", 0.01), _times("cents", 0.01)
KILOGRAM, MEGA_W, AMPERE = _times("kg", 1000), _times("MW", 1000), _times("A", 1000)
FAHRENHEIT = MistakenUnit("°F", lambda value: (value - 32) / 1.8)


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a number in its unit, with the reason."""

    low: float
    high: float
    unit: str
    why: str
    meant: tuple[MistakenUnit, ...] = ()
    """Units that people write in its place."""
    zero: bool = False
    """Whether 0 is allowed below `low`."""

    def holds(self, value: float) -> bool:
        """Return whether a value is plausible."""
        return self.low <= value <= self.high or (self.zero and value == 0)

    def check(self, place: str, value: float, write: str) -> None:
        """Refuse an implausible value. `write` shows what to write, with the value in place of `{}`."""
        if self.holds(value):
            return
        unit = f" {self.unit}" if self.unit else ""
        side = f"above {self.high:,.10g}" if value > self.high else f"below {self.low:,.10g}"
        problem = f"{value:,.10g}{unit} is {side}{unit}: {self.why}"
        for meant in self.meant:
            found = float(f"{meant.convert(value):.4g}")
            if self.holds(found):
                cure = f"Did you mean {value:g} {meant.sign}, which are {found:g}{unit}? Write {write.format(f'{found:g}')}."
                raise ConfigError(place, problem, cure)
        raise ConfigError(place, problem, f"Write a number from {self.low:,.10g} to {self.high:,.10g}.")


RATIO = Range(0.3, 1.0, "", "a ratio of what is nominal", (PERCENT,))
BREAKER = Range(0.5, 6300, "A", "the largest circuit breakers have 6,300 A", (MILLI_A,))
POWER = Range(5, 1_000_000, "W", "the power of a machine, up to a row of racks", (KILO_W,), zero=True)
PRELOAD = Range(0, 2, "", "load over rating for hours", (PERCENT,))
CAP = Range(10, 3000, "W", "the power limit of one GPU", (KILO_W,))
KW = Range(0.01, 1_000_000, "kW", "power of a circuit up to a site", (WATT, MEGA_W))
KVA = Range(0.05, 1_000_000, "kVA", "a rating between a bell's transformer and a substation's", (VOLT_AMPERE,))
RATING = Range(20, 100_000_000, "W", "the rating on its label", (KILO_W,))
EFFICIENCY = Range(0.4, 1.0, "", "output over input", (PERCENT,))
COUNT = Range(1, 1000, "", "a number of parts of one machine")
MONEY = Range(0, 1e9, "", "a price of a machine")
CHARGE = Range(0, 1e6, "", "money per kW, kvar or kvarh")
PRICE = Range(-5, 5, "per kWh", "no grid charges more than 5 a kWh in this currency", (CENTS,))
"""In currencies of a dollar's size; others are not judged."""

RANGES: dict[str, Range] = {
    # Of the site.
    "ambient_c": Range(-40, 70, "°C", "no breaker works beyond", (FAHRENHEIT,)),
    "pue": Range(1, 5, "", "the building includes its machines, so that its energy is no less than theirs", (PERCENT,)),
    "g_per_kwh": Range(1, 3000, "g", "the dirtiest grids emit some 1,200 g per kWh", (KILOGRAM,), zero=True),
    "home_watts": Range(20, 50_000, "W", "the mean draw of a home", (KILO_W,)),
    "ev_kwh": Range(1, 1000, "kWh", "the battery of a car", (WATT,)),
    "life_years": Range(0.1, 50, "years", "the life of a machine"),
    # Of circuits, panels and what feeds them.
    "breaker": BREAKER,
    "rated_amps": BREAKER,
    "neutral_amps": BREAKER,
    "plug_amps": Range(1, 125, "A", "plugs end at 125 A", (MILLI_A,)),
    "continuous": Range(
        0.5, 1.0, "", "a part of the rating: 0.8 is usual", (PERCENT, MistakenUnit("as a divisor", lambda x: 1 / x))
    ),
    "grouping": RATIO,
    "pf": Range(0.3, 1.0, "", "watts over volt-amperes: 0.97 is usual", (PERCENT,)),
    "sag": Range(0.6, 1.0, "", "real voltage over nominal: a supply gives up below", (PERCENT,)),
    "other_w": POWER,
    "third_harmonic": Range(0, 1, "", "amps of the third harmonic over those of a pole", (PERCENT,)),
    "rcd_ma": Range(1, 30_000, "mA", "residual-current devices trip at 10 mA to 30 A", (AMPERE,)),
    "poles": Range(1, 3, "", "a circuit has one pole to three"),
    "budget_kw": KW,
    "kw": KW,
    "kva": KVA,
    "volt_amps": Range(20, 100_000_000, "VA", "the rating on its label", (KILO_VA,)),
    "battery_wh": Range(1, 1e9, "Wh", "the energy of a battery", (_times("kWh", 1000),)),
    "modules": COUNT,
    "efficiency": EFFICIENCY,
    # Of machines.
    "host_watts": Range(1, 1_000_000, "W", "all of a machine but its GPUs", (KILO_W,), zero=True),
    "cap_watts": CAP,
    "floor_watts": CAP,
    "tdp_watts": CAP,
    "linked_gpus": Range(1, 1000, "", "GPUs of one NVLink domain"),
    "price_usd": MONEY,
    "host_price_usd": MONEY,
    "hourly_rate": Range(0, 1000, "an hour", "the rent of one GPU"),
    "priority": Range(-1000, 1000, "", "the order in which nodes are capped"),
    "share": Range(0, 1, "", "a part of the machine's power", (PERCENT,)),
    "count": COUNT,
    "needed": COUNT,
    "atx": Range(1, 4, "", "the version of the ATX guide, 3.1 for example"),
    "inrush_amps": Range(0.1, 2000, "A", "the inrush peak of one supply", (MILLI_A,)),
    # Of budgets.
    "warn": Range(0, 1, "", "a part of the budget", (PERCENT,)),
    "crit": Range(0, 1, "", "a part of the budget", (PERCENT,)),
    "clear": Range(0, 1, "", "a part of the budget", (PERCENT,)),
    "kwh_month": Range(0.1, 1e9, "kWh", "the energy of a month", (_times("MWh", 1000),)),
    "cost_month": Range(0.01, 1e12, "", "money of a month"),
    # Of the bill.
    "demand_charge": CHARGE,
    "contract_kw": KW,
    "contract_charge": CHARGE,
    "excess_charge": CHARGE,
    "ratchet": Range(0, 1, "", "a part of an earlier month's peak", (PERCENT,)),
    "demand_days": Range(1, 28, "days", "of whose highest demands the mean is billed"),
    "ratchet_months": Range(1, 60, "months", "how far back a peak counts"),
    "power_factor": Range(0.5, 1, "", "watts over volt-amperes: 0.9 to 0.95 is usual", (PERCENT,)),
    "reactive_charge": CHARGE,
    "fixed_charge": Range(0, 1e12, "", "money of a month"),
}
"""By the name of the setting; `_OF` has what a table means otherwise."""
_OF: dict[tuple[type[msgspec.Struct], str], Range] = {
    (NodeConfig, "watts"): POWER,
    (UpsConfig, "watts"): RATING,
    (SupplyConfig, "low_line_watts"): Range(20, 200_000, "W", "the rating of one supply at 100 to 127 V", (KILO_W,)),
    (SupplyConfig, "watts"): Range(20, 200_000, "W", "the rating of one supply", (KILO_W,)),
}
CHECKED_ELSEWHERE = frozenset({"volts", "tariff", "price", "psu", "ir", "tr", "isd", "tsd", "ii"})
"""Numbers that other checks judge: voltages by `check_volts`, prices by currency, supplies by cords, the dials
of a trip unit by `power.devices.lsi`."""

_HOST, _HOST_OVER_GPUS = 10_000, 3
"""Watts that a host may draw whatever its GPUs, and times their watts beyond that."""
_ONE_POLE = 250
"""Amps from which on no breaker of one pole is made."""
_OVER_TDP = 1.5
"""Most that a board's firmware lets its limit be over its nominal power, generously."""
_DOLLARS = frozenset({"USD", "EUR", "GBP", "CHF", "CAD", "AUD", "NZD", "SGD"})

_CODES = (
    "AD AE AF AG AI AL AM AO AR AT AU AW AZ BA BB BD BE BF BG BH BI BJ BM BN BO BR BS BT BW BY BZ CA CD CF CG CH CI"
    " CL CM CN CO CR CU CV CW CY CZ DE DJ DK DM DO DZ EC EE EG ER ES ET FI FJ FM FO FR GA GB GD GE GF GH GI GL GM"
    " GN GP GQ GR GT GU GW GY HK HN HR HT HU ID IE IL IM IN IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY"
    " KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MG MH MK ML MM MN MO MQ MR MS MT MU MV MW MX MY MZ NA NC NE"
    " NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SI SK SL"
    " SM SN SO SR SS ST SV SX SY SZ TC TD TG TH TJ TL TM TN TO TR TT TV TW TZ UA UG US UY UZ VA VC VE VG VI VN VU"
    " WS XK YE YT ZA ZM ZW EU UK"
)
_COUNTRIES = frozenset(_CODES.split())
"""ISO 3166, with EU, UK, and NA for North America."""


def check_ranges(where: str, site: PowerConfig) -> None:
    """Refuse numbers and a region that can't be. Raises `ConfigError` with place, reason and cure."""
    if site.region is not None and site.region not in _COUNTRIES:
        raise ConfigError(
            f"{where}: region",
            f"there is no country {site.region!r}",
            "Write the two letters of ISO 3166, US or DE for example, or EU.",
        )
    if not re.fullmatch("[A-Z]{3}", site.site.currency):
        raise ConfigError(
            f"{where}: site.currency",
            f"{site.site.currency!r} is no currency",
            "Write the three letters of ISO 4217: USD, EUR or JPY for example.",
        )
    prices = [("tariff", site.site.tariff)]
    prices += [(f"tariffs[{n}].price", rate.price) for n, rate in enumerate(site.site.tariffs)]
    for key, price in prices:
        if price is not None and site.site.currency in _DOLLARS:
            PRICE.check(f"{where}: site.{key}", price, f"{key.rpartition('.')[2]} = {{}}")
    for table in site.__struct_fields__:
        value = getattr(site, table)
        if isinstance(value, msgspec.Struct):
            _check(f"{where}: {table}", value)
        elif isinstance(value, dict):
            for name, spec in value.items():
                _check(f"{where}: {table}.{name}", spec)
    check_together(where, site)


def check_together(where: str, site: PowerConfig) -> None:
    """Refuse numbers that can't be beside each other. Raises `ConfigError`."""
    for name, ups in site.ups.items():
        if ups.volt_amps is not None and ups.volt_amps < ups.watts:
            raise ConfigError(
                f"{where}: ups.{name}.volt_amps",
                f"{ups.volt_amps:g} VA are less than its {quoted(ups.watts, 'W')}, and a power factor is at most 1",
                f"Write at least {ups.watts:g}, as on its label.",
            )
    for name, source in site.sources.items():
        if source.kw is not None and source.kva is not None and source.kva < source.kw:
            raise ConfigError(
                f"{where}: sources.{name}.kva",
                f"{source.kva:g} kVA are less than its {quoted(source.kw, 'kW')}, and a power factor is at most 1",
                f"Write at least {source.kw:g}.",
            )
    for name, node in site.nodes.items():
        _check_idle(f"{where}: nodes.{name}", node)
        _check_host(f"{where}: nodes.{name}", node)
        _check_cards(f"{where}: nodes.{name}", node)


_IDLE: dict[str, tuple[tuple[str, ...], str, str]] = {
    "profile": (
        ("watts", "host_watts", "tdp_watts", "supply"), "a profile is a complete system with watts and supplies of its own",
        "Remove it, or write gpus, host_watts and supply in place of the profile.",
    ),
    "gpus": (
        ("watts",), "the power of a machine with GPUs follows from them",
        "Keep one: gpus, with host_watts for all the rest, or watts for a machine without GPUs.",
    ),
    "watts": (("host_watts", "tdp_watts"), "watts are those of the whole machine", "Remove it, or write gpus in place of watts."),
    "host_watts": (("tdp_watts",), "no GPU is written", 'Write gpus = "4x RTX 5090", or remove it.'),
}  # fmt: skip
"""Keys of a node, and those that have no effect beside each; the first that is written counts."""


def _check_idle(place: str, node: NodeConfig) -> None:
    """Refuse what has no effect beside the rest of a node."""
    kind = next((key for key in _IDLE if getattr(node, key) is not None), "host_watts")
    keys, why, cure = _IDLE[kind]
    for key in keys:
        if getattr(node, key) is not None:
            raise ConfigError(f"{place}.{key}", f"it has no effect: {why}", cure)


def _check_host(place: str, node: NodeConfig) -> None:
    """Refuse a host that dwarfs its GPUs."""
    if node.gpus is None or node.host_watts is None:
        return
    gpus = sum(part.count * part.card.tdp_watts for part in gpu_parts(place, node))
    most = max(_HOST, _HOST_OVER_GPUS * gpus)
    if node.host_watts > most:
        raise ConfigError(
            f"{place}.host_watts",
            f"{exact_watts(node.host_watts)} beside GPUs of {exact_watts(gpus)}: all of a machine but its GPUs draws less",
            f"Write the watts of its processors, memory, fans and disks, {most:,g} at most: host_watts = 250 for a desktop, 3500 for a server of eight GPUs.",
        )


def _check_cards(place: str, node: NodeConfig) -> None:
    """Refuse counts and limits that the node's GPUs can't have."""
    if node.gpus is None:
        return
    parts = gpu_parts(place, node)
    count = sum(part.count for part in parts)
    if not COUNT.holds(count) or not all(part.count for part in parts):
        raise ConfigError(
            f"{place}.gpus",
            f"{count:,} GPUs in one machine are not to be had",
            'Write 1 to 1,000 of them: gpus = "8x H100 SXM".',
        )
    for part in parts:
        card = part.card
        if node.floor_watts is not None and node.floor_watts > card.tdp_watts:
            raise ConfigError(
                f"{place}.floor_watts",
                f"the lowest cap of {quoted(node.floor_watts, 'W')} is above the {quoted(card.tdp_watts, 'W')} of {card.name}",
                f"Write at most {card.tdp_watts:g}: nvidia-smi -q -d POWER shows it as the least limit.",
            )
        if node.cap_watts is not None and node.cap_watts > _OVER_TDP * card.tdp_watts and isinstance(node.gpus, str):
            raise ConfigError(
                f"{place}.cap_watts",
                f"{quoted(node.cap_watts, 'W')} is far above the {quoted(card.tdp_watts, 'W')} of {card.name}",
                f"Write its limit per GPU: cap_watts = {card.tdp_watts:g}.",
            )


def _check(place: str, spec: msgspec.Struct) -> None:
    if isinstance(spec, RedundancyConfig):
        for key in ("group", "role"):
            if not getattr(spec, key).strip():
                raise ConfigError(f"{place}.{key}", "it is empty", 'Write redundancy = { group = "R12", role = "A" }.')
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        found = range_of(type(spec), name)
        if isinstance(value, msgspec.Struct):
            _check(f"{place}.{name}", value)
        elif isinstance(value, tuple):
            for number, part in enumerate(value):
                if isinstance(part, msgspec.Struct):
                    _check(f"{place}.{name}[{number}]", part)
        elif name in {"breaker", "rated_amps"} and value is not None:
            BREAKER.check(f"{place}.{name}", amps(f"{place}.{name}", value), f"{name} = {{}}")
        elif found is not None and isinstance(value, int | float) and not isinstance(value, bool):
            found.check(f"{place}.{name}", value, f"{name} = {{}}")
        if name == "volts" and value is not None:
            check_volts(f"{place}.volts", value, spec)


def range_of(kind: type[msgspec.Struct], name: str) -> Range | None:
    """Return the range of a setting; None where it is no number or another check judges it."""
    return _OF.get((kind, name)) or RANGES.get(name)


# Voltages: low voltage of mains, or a busbar of direct current.

_LOWEST, _HIGHEST = 90.0, 1000.0
_BUSBAR = (40.0, 60.0)
_SAME_VOLTS = 0.1
"""Nominal voltages of one system differ by less: 380, 400 and 415 V."""
_BETWEEN_LINES = frozenset({380, 400, 415, 480, 600})
_NOMINAL = (100, 110, 115, 120, 127, 200, 208, 220, 230, 240, 277, 347, 380, 400, 415, 480, 600, 690)


def check_volts(place: str, volts: float, spec: msgspec.Struct) -> None:
    """Refuse a voltage that no circuit has. Three lines and split phase are named between lines."""
    several = _poles(spec) > 1
    lowest = 170.0 if several else _LOWEST
    if lowest <= volts <= _HIGHEST or (not several and _BUSBAR[0] <= volts <= _BUSBAR[1]):
        return
    if several and _LOWEST <= volts < lowest:
        line = 208 if volts < 125 else 220
        raise ConfigError(
            place,
            f"{quoted(volts, 'V')} between lines: no mains has so little",
            f"Did you mean {quoted(volts, 'V')} to neutral? Write the volts between lines: volts = {line}.",
        )
    side = (
        "above the 1,000 V where medium voltage begins"
        if volts > _HIGHEST
        else f"below the {quoted(lowest, 'V')} of any mains"
    )
    meant = _voltage_meant(volts)
    if 2000 <= volts <= 60_000:
        cure = (
            f"Did you mean {volts / 1000:g} kV, before the transformer? Write the volts at this breaker: volts = 400."
        )
    elif meant is not None:
        cure = f"Did you mean {meant}? Write volts = {meant.rpartition(' = ')[2].split()[0]}."
    else:
        cure = "Write the nominal volts: volts = 120, 230, 208, 400 or 480 for example."
    raise ConfigError(place, f"{quoted(volts, 'V')} is {side}", cure)


def _voltage_meant(volts: float) -> str | None:
    """Return the nominal voltage that was meant, with its unit."""
    for factor, words in (
        (1000, "{} kV = {} V"),
        (0.001, "{} mV = {} V"),
        (10, "{} with one more digit = {} V"),
        (0.1, "{} with one digit less = {} V"),
        (0.01, "{} without its decimals = {} V"),
    ):
        found = volts * factor
        nominal = next((one for one in _NOMINAL if abs(found / one - 1) < 0.01), None)
        if nominal is not None:
            return words.format(f"{volts:g}", f"{found:g}")
    return None


def _poles(spec: msgspec.Struct) -> int:
    """Return between how many poles the volts of a table are."""
    if isinstance(spec, CircuitConfig):
        named = len(spec.phase.replace("-", " ").split()) if spec.phase else 1
        wired = 3 if str(spec.wiring).startswith("3ph") else 2 if str(spec.wiring) == "split" else 1
        return spec.poles or (named if spec.phase else wired)
    if isinstance(spec, PanelConfig):
        return 1 if str(spec.wiring) == "single" else 2
    return 1


def check_circuit_volts(where: str, site: PowerConfig, circuits: Mapping[str, Circuit]) -> None:
    """Refuse a circuit's voltage that what feeds it does not have, or that its connector or breaker is not made for."""
    for name, spec in site.circuits.items():
        circuit = circuits[name]
        above = circuits.get(circuit.parent or "")
        if spec.volts is not None and above is not None:
            lines = above.outlet_ratio if len(circuit.poles) > 1 else 1.0
            has = above.volts / above.sag * lines
            if abs(spec.volts / has - 1) > _SAME_VOLTS:
                between = "between two lines" if len(circuit.poles) > 1 else "from a line to neutral"
                raise ConfigError(
                    f"{where}: circuits.{name}.volts",
                    f"{quoted(spec.volts, 'V')}, and {above.id}, which feeds it, has {quoted(round(has), 'V')} {between}",
                    "Remove volts, which are inherited, or put a transformer between them: [power.transformers.PDU].",
                )
        _check_connector(f"{where}: circuits.{name}.connector", spec.connector, circuit)
        if (
            spec.breaker is not None
            and len(circuit.poles) == 1
            and circuit.nominal_volts > _BUSBAR[1]
            and circuit.rated_amps > _ONE_POLE
        ):
            rated = circuit.rated_amps
            cure = "Write poles = 3, and the volts between lines."
            if rated / 100 in {10, 15, 16, 20, 25, 30, 32}:
                cure = f"Did you mean {amperes(rated / 100)}, without its decimals? Write breaker = {rated / 100:g}."
            raise ConfigError(
                f"{where}: circuits.{name}.breaker",
                f"{amperes(rated)} on one pole: breakers of one pole end at {amperes(_ONE_POLE)}",
                cure,
            )
    for name, node in site.nodes.items():
        for number, cord in enumerate(node.cords):
            if cord.circuit in circuits:
                _check_connector(
                    f"{where}: nodes.{name}.cords[{number}].connector", cord.connector, circuits[cord.circuit]
                )


def _check_connector(place: str, connector: str | None, circuit: Circuit) -> None:
    if connector is None:
        return
    low, high = find_connector(place, connector).volts
    offered = (circuit.volts / circuit.sag, circuit.nominal_volts)
    if not any(low * 0.9 <= one <= high * 1.06 for one in offered):
        raise ConfigError(
            place,
            f"{connector} is made for {low:g} to {quoted(high, 'V')}, and the circuit has {quoted(round(circuit.nominal_volts), 'V')}",
            "Name the connector that is there: 5-15 has 120 V, 6-20 and L6-30 have 208 or 240 V, C19 any.",
        )


def pole_notices(site: PowerConfig, circuits: Mapping[str, Circuit]) -> list[str]:
    """Return notices (E24) of voltages between lines on circuits of one pole."""
    return [
        f"circuits.{name}: {quoted(spec.volts, 'V')} on one pole: it is counted to neutral. Write poles = 3 where that is between lines"
        for name, spec in site.circuits.items()
        if spec.volts in _BETWEEN_LINES and len(circuits[name].poles) == 1 and circuits[name].parent is None
    ]


# Supplies, and the voltage between the poles that they are plugged into.

_ANY_MAINS = (90.0, 264.0)
"""Input window of desktop supplies: 100 to 240 V nominal, a tenth more and less."""
_HIGH_LINE = (180.0, 264.0)
"""Input window of supplies of complete systems: 200 to 240 V nominal."""


def input_window(node: NodeConfig | None, machine: Machine) -> tuple[float, float] | None:
    """Return the lowest and highest volts that a machine's supplies take; None where that is not known.

    Racks with shelves of their own, machines that are known by their watts alone and supplies with efficiency
    points of their own are not judged.
    """
    if node is None:
        return None
    if node.profile is not None:
        system = SYSTEM_BY_ID.get(key_of(node.profile))
        if system is None or system.supply_watts is None:
            return None
        if system.volts is not None:
            return 0.9 * system.volts[0], 1.1 * system.volts[1]
        return _HIGH_LINE if system.supply_watts > 1000 else _ANY_MAINS
    if not machine.gpus or (node.supply is not None and node.supply.points is not None):
        return None
    return _ANY_MAINS


def check_supply_volts(
    where: str,
    site: PowerConfig,
    circuits: Mapping[str, Circuit],
    machines: Mapping[str, Machine],
    cords: Sequence[Plugged],
) -> None:
    """Refuse a cord between poles whose voltage the machine's supplies do not take."""
    for cord in cords:
        node = site.nodes.get(cord.machine)
        window = input_window(node, machines[cord.machine])
        if window is None:
            continue
        circuit, count = circuits[cord.circuit], len(cord.poles)
        neutral = circuit.volts / circuit.sag
        between = neutral * circuit.outlet_ratio
        # A load of three poles is spread by a distribution unit, to neutral or between lines.
        offered = [neutral] if count == 1 else [between] if count == 2 else [neutral, between]
        if any(window[0] <= volts <= window[1] for volts in offered):
            continue
        shown = " or ".join(quoted(round(volts), "V") for volts in offered)
        takes = f"{round(window[0] / 0.9)} to {quoted(round(window[1] / 1.1), 'V')}"
        raise ConfigError(
            f"{where}: nodes.{cord.machine}",
            f"its supplies take {takes}, and {cord.circuit} has {shown} there",
            _other_outlet(circuit, count, offered),
        )


def _other_outlet(circuit: Circuit, count: int, offered: Sequence[float]) -> str:
    if max(offered) < 180:
        return "Plug it into a circuit of 200 to 240 V: poles = 2 in a split-phase or 208 V panel."
    if count == 2 and circuit.wiring is Wiring.WYE and min(offered) / 3**0.5 <= 264:
        neutral = quoted(round(min(offered) / 3**0.5), "V")
        return f'Plug it in between a line and neutral, which is {neutral}: phase = "L1".'
    return "Plug it in behind a transformer: [power.transformers.PDU] with secondary = { volts = 208 }."


def mains_notices(site: PowerConfig) -> list[str]:
    """Return notices (E24) of circuits whose voltage is assumed from a region that does not decide it."""
    unsure = [
        f"circuits.{name}"
        for name, circuit in site.circuits.items()
        if circuit.volts is None and circuit.parent is None and circuit.panel is None
    ]
    if site.region is None or not unsure:
        return []
    mains = MAINS.get(site.region)
    if mains is None:
        return [f"{', '.join(unsure)}: the mains of {site.region} are not in the table; 230 V are assumed, write volts"]
    if not mains.also:
        return []
    others = " or ".join(quoted(volts, "V") for volts in mains.also)
    return [
        f"{', '.join(unsure)}: homes in {site.region} have {quoted(mains.volts, 'V')} or {others}; {quoted(mains.volts, 'V')} are assumed, write volts"
    ]


def cap_notices(site: PowerConfig) -> list[str]:
    """Return notices (E24) of caps in the file that no driver accepts."""
    found = []
    for name, node in site.nodes.items():
        floor = lowest_cap(node)
        if node.cap_watts is not None and floor is not None and node.cap_watts < floor:
            found.append(
                f"nodes.{name}.cap_watts: {quoted(node.cap_watts, 'W')} is below the cards' floor of {quoted(floor, 'W')}, which is planned with; write floor_watts where the driver takes less"
            )
    return found
