"""Nonsense is refused with the place, the reason and what was probably meant."""

from __future__ import annotations

import math
import tomllib
import types
import typing

import msgspec
import pytest

from power.plan.plan import Suppose
from power.site.config import PowerConfig
from power.site.decode import decode
from power.site.plausible import CHECKED_ELSEWHERE, range_of
from power.site.tariff import TariffRate
from telemetry.errors import ConfigError
from tests.power.sites import planned

A = "[circuits.a]\nbreaker = 15\n"
RIG = "[nodes.r]\ngpus = '2x RTX 5090'\ncords = [{circuit = 'a'}]\n"
GRID = "[circuits.a]\nbreaker = 32\npoles = 3\nwiring = '3ph-wye'\nvolts = 400\n"


def of_a(line: str) -> str:
    """Return a circuit with one more line."""
    return f"{A}{line}\n"


def of_site(line: str) -> str:
    return f"[site]\n{line}\n{A}"


def of_rig(line: str) -> str:
    return f"{A}[nodes.r]\ngpus = '2x RTX 5090'\ncords = [{{circuit = 'a'}}]\n{line}\n"


NONSENSE = [
    # Keys without effect.
    ("watts beside GPUs", of_rig("watts = 900"), "nodes.r.watts", "the power of a machine with GPUs follows from them"),
    *((f"{line} beside a profile", f"{A}[nodes.r]\nprofile = 'dgx-h100'\n{line} = {value}\n", f"nodes.r.{line}", "a complete system")
      for line, value in (("watts", 9000), ("host_watts", 2000), ("tdp_watts", 700), ("supply", "{count = 2}"))),
    *((f"{line} beside watts", f"{A}[nodes.r]\nwatts = 900\n{line} = 300\n", f"nodes.r.{line}", "of the whole machine")
      for line in ("host_watts", "tdp_watts")),
    ("a card's watts without a card", f"{A}[nodes.r]\ntdp_watts = 300\n", "nodes.r.tdp_watts", "no GPU is written"),
    # Voltages.
    ("0.12 V", of_a("volts = 0.12"), "circuits.a.volts", "0.12 kV = 120 V"),
    ("0.4 V", GRID.replace("400", "0.4"), "circuits.a.volts", "0.4 kV = 400 V"),
    ("12,000 V", of_a("volts = 12000"), "circuits.a.volts", "12 kV"),
    ("13,800 V of a panel", "[panels.p]\nvolts = 13800\n" + of_a("panel = 'p'\nphase = 'L1'"), "panels.p.volts", "13.8 kV"),
    ("millivolts", of_a("volts = 230000"), "circuits.a.volts", "230000 mV = 230 V"),
    ("a digit too few", of_a("volts = 24"), "circuits.a.volts", "volts = 240"),
    ("a digit too many", of_a("volts = 2300"), "circuits.a.volts", "volts = "),
    ("12 V of a car", of_a("volts = 12"), "circuits.a.volts", "volts = 120"),
    ("70 V", of_a("volts = 70"), "circuits.a.volts", "nominal volts"),
    ("120 V between three lines", GRID.replace("400", "120"), "circuits.a.volts", "volts = 208"),
    ("127 V between three lines", GRID.replace("400", "127"), "circuits.a.volts", "volts = 220"),
    ("120 V between split poles", of_a("volts = 120\nwiring = 'split'"), "circuits.a.volts", "volts = 208"),
    ("48 V between three lines", GRID.replace("400", "48"), "circuits.a.volts", "volts = 480"),
    ("a transformer to 20.8 V", A + "[panels.p]\nvolts = 480\n[transformers.t]\nkva = 75\nparent = 'p'\nsecondary = {volts = 20.8}\n", "transformers.t.secondary.volts", "volts = 208"),
    ("120 V behind a panel of 415 V", "[panels.p]\nvolts = 415\n" + of_a("panel = 'p'\nphase = 'L1'\nvolts = 120"), "circuits.a.volts", "has 240 V from a line to neutral"),
    ("415 V to neutral", "[panels.p]\nvolts = 415\n" + of_a("panel = 'p'\nphase = 'L1'\nvolts = 415"), "circuits.a.volts", "has 240 V from a line to neutral"),
    ("208 V behind 480 V without a transformer", "[panels.p]\nvolts = 480\n" + of_a("panel = 'p'\npoles = 3\nvolts = 208"), "circuits.a.volts", "put a transformer"),
    ("240 V between two lines of 208 V", "[panels.p]\nvolts = 208\n" + of_a("panel = 'p'\nphase = 'L1-L2'\nvolts = 240"), "circuits.a.volts", "has 208 V between two lines"),
    ("a 5-15 outlet of 230 V", "region = 'DE'\n" + of_a("connector = '5-15'"), "circuits.a.connector", "made for 110 to 127 V"),
    ("an L6-30 outlet of 120 V", of_a("connector = 'L6-30'"), "circuits.a.connector", "made for 200 to 250 V"),
    ("dollars", of_site("currency = 'dollars'"), "site.currency", "ISO 4217"),
    # Supplies and the voltage of their outlet.
    ("a DGX on 120 V", of_a("volts = 120\n[nodes.d]\nprofile = 'dgx-h100'\ncords = [{circuit = 'a'}]"), "nodes.d", "200 to 240 V"),
    ("a DGX on 100 V", "region = 'JP'\n" + of_a("[nodes.d]\nprofile = 'dgx-a100'\ncords = [{circuit = 'a'}]"), "nodes.d", "200 to 240 V"),
    ("a DGX on 277 V", of_a("volts = 277\n[nodes.d]\nprofile = 'dgx-b200'\ncords = [{circuit = 'a'}]"), "nodes.d", "behind a transformer"),
    ("a rig between two lines of 415 V", "[circuits.a]\nbreaker = 32\npoles = 2\nwiring = '3ph-wye'\nvolts = 415\n" + RIG, "nodes.r", "240 V: phase"),
    ("a rig on 347 V", of_a("volts = 347\n") + RIG, "nodes.r", "behind a transformer"),
    ("a rig on a busbar of 48 V", of_a("volts = 48\n") + RIG, "nodes.r", "200 to 240 V"),
    ("a rig between lines by its cord", GRID + "[nodes.r]\ngpus = '2x RTX 4090'\ncords = [{circuit = 'a', phase = 'L1-L2'}]\n", "nodes.r", "231 V: phase"),
    # Breakers.
    ("15,000 A", "[circuits.a]\nbreaker = 15000\n", "circuits.a.breaker", "15000 mA"),
    ("0.015 A", "[circuits.a]\nbreaker = 0.015\n", "circuits.a.breaker", "from 0.5"),
    ("15,000 A of a panel", "[panels.p]\nbreaker = 15000\n" + of_a("panel = 'p'\nphase = 'L1'"), "panels.p.breaker", "breaker = 15"),
    ("'20000A'", "[circuits.a]\nbreaker = '20000A'\n", "circuits.a.breaker", "breaker = 20"),
    ("a rating of 24,000 A", "[circuits.a]\nrated_amps = 24000\n", "circuits.a.rated_amps", "rated_amps = 24"),
    ("a neutral of 20,000 A", of_a("neutral_amps = 20000"), "circuits.a.neutral_amps", "neutral_amps = 20"),
    ("a plug of 10,000 A", of_a("plug_amps = 10000"), "circuits.a.plug_amps", "plug_amps = 10"),
    ("a residual current of 0.03 mA", of_a("rcd_ma = 0.03"), "circuits.a.rcd_ma", "rcd_ma = 30"),
    ("a transfer switch of 80,000 A", A + "[panels.p]\n[panels.q]\n[transfers.t]\npreferred = 'p'\nalternate = 'q'\nbreaker = 80000\n", "transfers.t.breaker", "breaker = 80"),
    ("four poles", of_a("poles = 4"), "circuits.a.poles", "1 to 3"),
    # Ratios.
    ("pf in per cent", of_a("pf = 97"), "circuits.a.pf", "pf = 0.97"),
    ("pf of 0.097", of_a("pf = 0.097"), "circuits.a.pf", "from 0.3 to 1"),
    ("continuous in per cent", of_a("continuous = 80"), "circuits.a.continuous", "continuous = 0.8"),
    ("the inverse of the factor", of_a("continuous = 1.25"), "circuits.a.continuous", "continuous = 0.8"),
    ("grouping in per cent", of_a("grouping = 70"), "circuits.a.grouping", "grouping = 0.7"),
    ("a sag of 5 %", of_a("sag = 0.05"), "circuits.a.sag", "from 0.6 to 1"),
    ("sag in per cent", of_a("sag = 95"), "circuits.a.sag", "sag = 0.95"),
    ("shares in per cent", A + "[nodes.r]\nwatts = 100\ncords = [{circuit = 'a', share = 70}, {circuit = 'a', share = 30}]\n", "nodes.r.cords[0].share", "share = 0.7"),
    ("a level in per cent", A + "[budgets.b]\ncircuits = ['a']\nkw = 1\nwarn = 90\n", "budgets.b.warn", "warn = 0.9"),
    ("a UPS of 96", A + "[ups.u]\nwatts = 900\nefficiency = 96.0\n", "ups.u.efficiency", "efficiency = 0.96"),
    # The site.
    ("PUE 0.9", of_site("pue = 0.9"), "site.pue", "from 1 to 5"),
    ("PUE 135", of_site("pue = 135"), "site.pue", "pue = 1.35"),
    ("95 as °C", of_site("ambient_c = 95"), "site.ambient_c", "95 °F, which are 35 °C"),
    ("300 kelvin", of_site("ambient_c = 300"), "site.ambient_c", "from -40 to 70"),
    ("0.38 g", of_site("g_per_kwh = 0.38"), "site.g_per_kwh", "g_per_kwh = 380"),
    ("18 cents as dollars", of_site("tariff = 18"), "site.tariff", "tariff = 0.18"),
    ("32 cents in a rate", of_site("tariffs = [{price = 32}]\ncurrency = 'EUR'"), "site.tariffs[0].price", "price = 0.32"),
    ("a home of 1.2 W", of_site("home_watts = 1.2"), "site.home_watts", "home_watts = 1200"),
    ("a car of 90,000 kWh", of_site("ev_kwh = 90000"), "site.ev_kwh", "ev_kwh = 90"),
    ("a life of 400 years", of_site("life_years = 400"), "site.life_years", "from 0.1 to 50"),
    ("region XX", "region = 'XX'\n" + A, "region", "ISO 3166"),
    ("region USA", "region = 'USA'\n" + A, "region", "two capital letters"),
    ("region AB", "region = 'AB'\n" + A, "region", "ISO 3166"),
    # Machines.
    ("a cap of 0.4 W", of_rig("cap_watts = 0.4"), "nodes.r.cap_watts", "cap_watts = 400"),
    ("a cap of 45,000 W", of_rig("cap_watts = 45000"), "nodes.r.cap_watts", "from 10 to 3,000"),
    ("a floor of 0.4 W", of_rig("floor_watts = 0.4"), "nodes.r.floor_watts", "floor_watts = 400"),
    ("a host of 0.3 W", of_rig("host_watts = 0.3"), "nodes.r.host_watts", "host_watts = 300"),
    ("a supply of 1.6 W", of_rig("supply = {watts = 1.6}"), "nodes.r.supply.watts", "watts = 1600"),
    ("2,000 supplies", of_rig("supply = {watts = 1600, count = 2000}"), "nodes.r.supply.count", "from 1 to 1,000"),
    ("ATX 31", of_rig("supply = {atx = 31}"), "nodes.r.supply.atx", "from 1 to 4"),
    ("12,000 GPUs that are linked", of_rig("linked_gpus = 12000"), "nodes.r.linked_gpus", "from 1 to 1,000"),
    ("5,000 GPUs in a node", A + "[nodes.r]\ngpus = '5000x RTX 5090'\ncords = [{circuit = 'a'}]\n", "nodes.r.gpus", "1 to 1,000"),
    ("1,500 GPUs of two models", A + "[nodes.r]\ngpus = ['900x RTX 5090', '600x RTX 3090']\ncords = [{circuit = 'a'}]\n", "nodes.r.gpus", "1 to 1,000"),
    ("no GPU in a node", A + "[nodes.r]\ngpus = '0x RTX 5090'\ncords = [{circuit = 'a'}]\n", "nodes.r.gpus", "1 to 1,000"),
    ("0.5 W at the wall", A + "[nodes.r]\nwatts = 0.5\ncords = [{circuit = 'a'}]\n", "nodes.r.watts", "watts = 500"),
    ("a rent of 2,500 an hour", of_rig("hourly_rate = 2500"), "nodes.r.hourly_rate", "from 0 to 1,000"),
    ("a load of 0.15 W", of_a("other_w = 0.15"), "circuits.a.other_w", "other_w = 150"),
    # Ratings and budgets.
    ("a UPS of 2.7 W", A + "[ups.u]\nwatts = 2.7\n", "ups.u.watts", "watts = 2700"),
    ("a UPS of 3 VA", A + "[ups.u]\nwatts = 2700\nvolt_amps = 3\n", "ups.u.volt_amps", "volt_amps = 3000"),
    ("fewer VA than W", A + "[ups.u]\nwatts = 2700\nvolt_amps = 2000\n", "ups.u.volt_amps", "at least 2700"),
    ("a transformer in VA", A + "[panels.p]\nvolts = 480\n[transformers.t]\nkva = 75000000\nparent = 'p'\nsecondary = {volts = 208}\n", "transformers.t.kva", "kva = 75000"),
    ("a source of more kW than kVA", A + "[sources.s]\nkw = 500\nkva = 400\n", "sources.s.kva", "at least 500"),
    ("a panel's budget in W", "[panels.p]\nbudget_kw = 180000000\n" + of_a("panel = 'p'\nphase = 'L1'"), "panels.p.budget_kw", "budget_kw = 180000"),
    ("a budget of 3 mW", A + "[budgets.b]\ncircuits = ['a']\nkw = 0.003\n", "budgets.b.kw", "kw = 3"),
    ("a ratchet in per cent", A + "[bill]\ndemand_charge = 12\nratchet = 80\n", "bill.ratchet", "0.8 for 80 %"),
    ("a power factor in per cent", A + "[bill]\npower_factor = 95\n", "bill.power_factor", "Write 0.9"),
    ("a dial of 16 for a pick-up", of_a("curve = 'LSI'\nlsi = {ir = 16}"), "circuits.a.lsi", "0.2 to 1"),
    ("an efficiency above 1 in a table", A + "[ups.u]\nwatts = 900\nefficiency = [[0.5, 1.2], [1.0, 0.9]]\n", "ups.u.efficiency", "Write 0.96"),
    ("a table of efficiency by per cent of load", A + "[ups.u]\nwatts = 900\nefficiency = [[50, 0.9], [100, 0.9]]\n", "ups.u.efficiency", "Write 0.96"),
    ("a transformer of 75,000 kVA behind 125 A", A + "[panels.p]\nvolts = 480\n[transformers.t]\nkva = 75000\nparent = 'p'\nprimary = {breaker = 125}\nsecondary = {volts = 208, breaker = 225}\n", "transformers.t.kva", "kva = 75."),
    ("one line of a delta", "[panels.p]\nvolts = 230\nwiring = '3ph-delta'\n" + of_a("panel = 'p'\nphase = 'L1'"), "circuits.a.phase", "L1-L2"),
    ("a supply that is not there", "[circuits.a]\nbreaker = 60\nvolts = 208\n[nodes.d]\nprofile = 'dgx-h100'\ncords = [{circuit = 'a', psu = '1-3'}, {circuit = 'a', psu = '7-9'}]\n", "nodes.d.cords", "1 to 6"),
    ("a group without a name", of_a("redundancy = {group = '', role = 'A'}"), "circuits.a.redundancy.group", "group = "),
    ("a role without a name", of_a("redundancy = {group = 'g', role = ' '}"), "circuits.a.redundancy.role", "role = "),
    ("a floor above the board's power", of_rig("floor_watts = 700"), "nodes.r.floor_watts", "at most 575"),
    ("a cap far above the board's power", of_rig("cap_watts = 1500"), "nodes.r.cap_watts", "575"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "cure"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_refused_with_place_and_cure(text: str, place: str, cure: str) -> None:
    """A reason comes before the cure, and the cure is what was meant where that can be guessed."""
    with pytest.raises(ConfigError) as caught:
        planned(text)
    assert caught.value.where == f"site.toml: {place}"
    assert cure in caught.value.hint or cure in caught.value.problem
    assert caught.value.problem
    assert caught.value.hint


@pytest.mark.parametrize(
    ("suppose", "place", "cure"),
    [
        (Suppose(cap=0.4), "--cap", "--cap 400"),
        (Suppose(cap=45_000.0), "--cap", "from 10 to 3,000"),
        (Suppose(watts={"r": 0.5}), "--watts r", "r=500"),
        (Suppose(watts={"r": 3e7}), "--watts r", "from 5 to 1,000,000"),
        (Suppose(watts={"r": -5.0}), "--watts r", "r=2500"),
        (Suppose(preload=80.0), "--preload", "--preload 0.8"),
        (Suppose(preload=-0.1), "--preload", "from 0 to 2"),
        (Suppose(preload=math.nan), "--preload", "from 0 to 2"),
        (Suppose(add=[("dgx-h100", "a")]), "nodes.added-1", "200 to 240 V"),
        (Suppose(add=[("rtx-5090:0", "a")]), "--add", "rtx-5090:4"),
        (Suppose(lose=["b"]), "--lose", "a"),
    ],
)
def test_nonsense_in_a_plan_is_refused_too(suppose: Suppose, place: str, cure: str) -> None:
    """By the command and by the API, which share this."""
    with pytest.raises(ConfigError) as caught:
        planned(of_rig("host_watts = 300"), suppose)
    assert place in caught.value.where
    assert cure in f"{caught.value.problem} {caught.value.hint}"


def test_sixty_rows_of_nonsense_at_least() -> None:
    """Each another one."""
    assert len({text for _, text, _, _ in NONSENSE}) == len(NONSENSE) >= 60


def test_every_number_of_the_settings_has_a_range() -> None:
    """A number that is added to the settings needs a row, with its reason."""
    missing = [
        f"{kind.__name__}.{name}"
        for kind in _tables(PowerConfig)
        for name, hint in typing.get_type_hints(kind, include_extras=False).items()
        if _numeric(hint) and name not in CHECKED_ELSEWHERE and range_of(kind, name) is None
    ]
    assert missing == []


def _tables(kind: type[msgspec.Struct], seen: set[type] | None = None) -> list[type[msgspec.Struct]]:
    """Return a table of the settings and all within it, without meters and brokers."""
    seen = set() if seen is None else seen
    if kind in seen or kind is TariffRate or "meters" in kind.__module__:
        return []
    seen.add(kind)
    inner = [part for hint in typing.get_type_hints(kind).values() for part in _parts(hint)]
    below = [
        t for part in inner if isinstance(part, type) and issubclass(part, msgspec.Struct) for t in _tables(part, seen)
    ]
    return [kind, *below]


def _parts(hint: object) -> list[object]:
    if typing.get_origin(hint) in {typing.Union, types.UnionType, tuple, dict}:
        return [part for each in typing.get_args(hint) for part in _parts(each)]
    return [hint]


def _numeric(hint: object) -> bool:
    """Return whether a setting is a number by itself, not a list of them."""
    options = typing.get_args(hint) if typing.get_origin(hint) in {typing.Union, types.UnionType} else (hint,)
    return bool({float, int} & {one for one in options if isinstance(one, type)})


@pytest.mark.parametrize(
    ("region", "word"), [("BR", "127 V"), ("BR", "220 V"), ("SA", "127 V"), ("NE", "230 V are assumed"), ("DE", "")]
)
def test_a_voltage_that_is_assumed_is_said(region: str, word: str) -> None:
    """Countries with two voltages, and those whose mains are not in the table; not where one is sure."""
    notices = " ".join(planned(f"region = '{region}'\n{A}").notices)
    assert (word in notices) if word else not notices
    assert not planned(f"region = '{region}'\n{of_a('volts = 220')}").notices


def test_lines_on_one_pole_are_said() -> None:
    """400 V are between lines; a circuit of one pole counts them to neutral, which is too few amps."""
    assert any("poles = 3" in each for each in planned(of_a("volts = 400")).notices)
    assert not any("poles = 3" in each for each in planned(GRID).notices)


@pytest.mark.parametrize("volts", [100, 110, 115, 120, 127, 200, 208, 220, 230, 240, 277, 347, 400, 480, 48, 50, 380])
def test_voltages_that_exist_are_taken(volts: float) -> None:
    """Of one pole: mains of the world, and busbars of racks."""
    site = decode("site.toml", tomllib.loads(of_a(f"volts = {volts}")))
    assert site.circuits["a"].volts == volts
