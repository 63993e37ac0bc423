"""Numbers and names of a configuration that can mean nothing."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from telemetry.errors import ConfigError

if TYPE_CHECKING:
    from power.site import Site

_MAY_BE_NEGATIVE = frozenset({"ambient_c", "tariff", "price"})
"""Cold places, and hours in which energy is paid for taking it."""
_ABOVE_ZERO = frozenset({
    "volts", "poles", "volt_amps", "plug_amps", "neutral_amps", "kw", "budget_kw", "kwh_month",
    "cost_month", "pue", "count", "needed", "home_watts", "ev_kwh", "atx", "cap_watts",
})  # fmt: skip
_HOTTEST_CELSIUS = 100.0


def check_numbers(where: str, site: Site) -> None:
    """Refuse NaN, infinity, what is below 0, and names that lists could not hold."""
    _numbers(f"{where}: site", site.site)
    if site.site.ambient_c > _HOTTEST_CELSIUS:
        raise ConfigError(f"{where}: site.ambient_c", f"{site.site.ambient_c:g} degrees are too hot for any breaker", "Write degrees Celsius: ambient_c = 35.")  # fmt: skip
    if site.region is not None and not re.fullmatch("[A-Z]{2}", site.region):
        # A region that is not known means 230 V: "USA" would halve every current.
        raise ConfigError(f"{where}: region", f"{site.region!r} is no region", "Write two capital letters: US, CA, JP, EU, UK or another.")  # fmt: skip
    for table in ("panels", "circuits", "ups", "nodes", "budgets"):
        for name, spec in getattr(site, table).items():
            place = f"{where}: {table}.{name}"
            if not name.strip() or "," in name:
                raise ConfigError(place, f"{name!r} is no name", "Names are joined by commas in lists: use letters, digits, '-', '_', '.' and '/'.")  # fmt: skip
            _numbers(place, spec)
            if table == "ups" and spec.watts == 0:
                raise ConfigError(f"{place}.watts", "0 is no rating", "Write the watts on its label.")  # fmt: skip
    for name, node in site.nodes.items():
        supply = node.supply
        if supply is not None and supply.watts == 0:
            raise ConfigError(f"{where}: nodes.{name}.supply.watts", "0 is no rating", "Write the watts on its label, or remove it.")  # fmt: skip
        if supply is not None and supply.needed is not None and supply.needed > supply.count:
            raise ConfigError(f"{where}: nodes.{name}.supply.needed", f"{supply.needed} are needed and {supply.count} are there", "Write at most count.")  # fmt: skip


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
            raise ConfigError(place, f"{value:g} is below 0", "Write a number above 0, or remove the key.")  # fmt: skip
        if value == 0 and name in _ABOVE_ZERO:
            raise ConfigError(place, "0 means nothing here", "Write a number above 0, or remove the key.")  # fmt: skip
