"""Decoding of parsed TOML into a checked site: numbers, names and meters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from power.meters.config import MeterBroker, decode_meter
from power.site.attach import attach
from power.site.config import (
    BillConfig,
    BudgetConfig,
    CircuitConfig,
    NodeConfig,
    PanelConfig,
    PowerConfig,
    SourceConfig,
    TransferConfig,
    TransformerConfig,
    UpsConfig,
)
from power.site.plausible import check_ranges
from power.site.tariff import check_rates
from telemetry.errors import ConfigError
from telemetry.text.settings import Fault, convert


def _hint(fault: Fault) -> str:
    """Return what to write in place of a value that does not decode."""
    if fault.problem.startswith("expected `array`"):
        return 'Write a list in brackets, as in ["rig1"].'
    number = fault.problem.startswith(("expected `float", "expected `int"))
    return "Write a number." if number else fault.hint


# Checks of numbers and names.

_MAY_BE_NEGATIVE = frozenset({"ambient_c", "tariff", "price", "priority"})
"""Settings that may be negative: cold places, and hours with a negative price."""
_ABOVE_ZERO = frozenset({
    "volts", "poles", "volt_amps", "plug_amps", "neutral_amps", "kw", "budget_kw", "kwh_month",
    "cost_month", "pue", "count", "needed", "kva", "modules", "contract_kw", "demand_days", "ratchet_months", "home_watts", "ev_kwh", "atx", "cap_watts",
    "tdp_watts", "floor_watts",
})  # fmt: skip


def check_numbers(where: str, site: PowerConfig) -> None:
    """Refuse NaN, infinity, negative values, and names that lists could not hold."""
    _numbers(f"{where}: site", site.site)
    if site.bill is not None:
        _numbers(f"{where}: bill", site.bill)
        check_bill(f"{where}: bill", site.bill, site.budgets)
    if site.region is not None and not re.fullmatch("[A-Z]{2}", site.region):
        # A region that is not known means 230 V: "USA" would halve every current.
        raise ConfigError(
            f"{where}: region",
            f"{site.region!r} is no region",
            "Write two capital letters: US, CA, JP, EU, UK or another.",
        )
    for table in ("sources", "transformers", "transfers", "panels", "circuits", "ups", "nodes", "budgets"):
        for name, spec in getattr(site, table).items():
            place = f"{where}: {table}.{name}"
            if not name.strip() or "," in name:
                raise ConfigError(
                    place,
                    f"{name!r} is no name",
                    "Names are joined by commas in lists: use letters, digits, '-', '_', '.' and '/'.",
                )
            _numbers(place, spec)
            if table == "ups" and spec.watts == 0:
                raise ConfigError(f"{place}.watts", "0 is no rating", "Write the watts on its label.")
    for name, node in site.nodes.items():
        supply = node.supply
        if supply is not None and supply.watts == 0:
            raise ConfigError(
                f"{where}: nodes.{name}.supply.watts", "0 is no rating", "Write the watts on its label, or remove it."
            )
        if supply is not None and supply.needed is not None and supply.needed > supply.count:
            raise ConfigError(
                f"{where}: nodes.{name}.supply.needed",
                f"{supply.needed} are needed and {supply.count} are there",
                "Write at most count.",
            )


def check_bill(where: str, bill: BillConfig, budgets: Mapping[str, BudgetConfig]) -> None:
    """Raise `ConfigError` for a contract that can't be."""
    if bill.ratchet > 1:
        raise ConfigError(
            f"{where}.ratchet", f"{bill.ratchet:g} is more than the whole", "Write 0.8 for 80 % of the highest demand."
        )
    if bill.power_factor is not None and not 0.5 <= bill.power_factor < 1:
        raise ConfigError(
            f"{where}.power_factor",
            f"{bill.power_factor:g} is no least power factor",
            "Write 0.9; contracts have 0.8 to 0.97.",
        )
    if bill.power_factor is None and (bill.reactive_charge or bill.power_factor_adjusts_demand):
        raise ConfigError(
            f"{where}.power_factor",
            "it is missing",
            "Write power_factor = 0.9: the one from which on the penalty counts.",
        )
    if bill.contract_kw is None and (bill.contract_charge or bill.excess_charge):
        raise ConfigError(f"{where}.contract_kw", "it is missing", "Write the agreed demand in kW.")
    if "bill" in budgets:
        raise ConfigError(f"{where}", "a budget is called bill, too", "Give [power.budgets.bill] another name.")


def _numbers(place: str, spec: msgspec.Struct) -> None:
    for name in spec.__struct_fields__:
        _number(f"{place}.{name}", name, getattr(spec, name))


def _number(place: str, name: str, value: object) -> None:
    if isinstance(value, msgspec.Struct):
        _numbers(place, value)
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            _number(f"{place}[{number}]", name, part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(place, f"{value} is no number", "Write a number, or remove the key.")
        if value < 0 and name not in _MAY_BE_NEGATIVE:
            raise ConfigError(place, f"{value:g} is below 0", "Write a number above 0, or remove the key.")
        if value == 0 and name in _ABOVE_ZERO:
            raise ConfigError(place, "0 means nothing here", "Write a number above 0, or remove the key.")


_TABLES: dict[str, type[msgspec.Struct]] = {
    "sources": SourceConfig,
    "transformers": TransformerConfig,
    "transfers": TransferConfig,
    "panels": PanelConfig,
    "circuits": CircuitConfig,
    "ups": UpsConfig,
    "brokers": MeterBroker,
    "nodes": NodeConfig,
    "budgets": BudgetConfig,
}


def section(where: str, tree: dict[str, Any]) -> dict[str, Any]:
    """Return the site's part of parsed TOML: its `[power]`, else all of it."""
    inner = tree.get("power", tree)
    if not isinstance(inner, dict):
        raise ConfigError(f"{where}: power", "it is a section, not a value", "Write [power].")
    beside = [name for name in PowerConfig.__struct_fields__ if name in tree and inner is not tree]
    if beside:
        raise ConfigError(
            f"{where}: {beside[0]}",
            "it is outside [power], where it has no effect",
            f"Write power.{beside[0]} in its heading.",
        )
    return inner


def decode(where: str, tree: dict[str, Any]) -> PowerConfig:
    """Return the site that `tree` (parsed TOML) describes; a `[power]` section may hold it all.

    Raises `ConfigError` that names place and cure.
    """
    inner = section(where, tree)
    sections = {name: kind for name, kind in _TABLES.items() if isinstance(inner.get(name), dict)}
    for name, kind in sections.items():
        # One by one: the decoder's own message does not name the of a table it means.
        for key, raw in inner[name].items():
            convert(kind, raw, f"{where}: {name}.{key}", hint=_hint)
    rest = dict(inner)
    meters = rest.pop("meters", {})
    if not isinstance(meters, dict):
        raise ConfigError(
            f"{where}: meters", "it is a section, not a value", "Write [power.meters.plug] and its keys below."
        )
    site = convert(PowerConfig, rest, f"{where}:", hint=_hint)
    read = {name: decode_meter(f"{where}: meters.{name}", raw) for name, raw in meters.items()}
    site = msgspec.structs.replace(site, meters=read)
    check_numbers(where, site)
    check_ranges(where, site)
    attach(where, site)
    check_rates(f"{where}: site", site.site.tariff, site.site.tariffs)
    return site
