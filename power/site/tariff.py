"""Tariffs: the price of a kilowatt-hour by the time of the week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from telemetry.errors import ConfigError

WEEK = 7 * 1440
"""Minutes of a week; minute 0 is Monday 00:00, local time."""

Clock = Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$|^24:00$")]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_DAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class TariffRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price that holds for some hours of some days: `{ from = "22:00", to = "06:00", price = 0.12 }`."""

    price: float
    """Money per kWh; below 0 where taking energy is paid for."""
    start: Clock = msgspec.field(name="from", default="00:00")
    """Time of day at which it begins, `HH:MM`."""
    end: Clock = msgspec.field(name="to", default="24:00")
    """Not after `from` means the next morning."""
    days: tuple[Weekday, ...] = _DAYS
    """Days on which it begins."""


def minutes(clock: str) -> int:
    """Return minutes since midnight of `HH:MM`."""
    hours, _, rest = clock.partition(":")
    return 60 * int(hours) + int(rest)


def price_at(flat: float | None, rates: Sequence[TariffRate], minute: int) -> float | None:
    """Return the price at a minute of the week: the first rate that holds, else the flat one.

    None without a configured price.
    """
    return next((rate.price for rate in rates if holds(rate, minute)), flat)


def holds(rate: TariffRate, minute: int) -> bool:
    """Return whether a rate holds at a minute of the week."""
    start, end = minutes(rate.start), minutes(rate.end)
    length = end - start if end > start else end - start + 1440
    return any((minute - 1440 * _DAYS.index(day) - start) % WEEK < length for day in rate.days)


def mean_price(flat: float | None, rates: Sequence[TariffRate]) -> float | None:
    """Return the mean price per kWh of a constant load; None when some hour has no price."""
    if not rates:
        return flat
    prices = [price_at(flat, rates, minute) for minute in range(WEEK)]
    known = [price for price in prices if price is not None]
    return sum(known) / WEEK if len(known) == WEEK else None


def check_rates(where: str, flat: float | None, rates: Sequence[TariffRate]) -> None:
    """Raise `ConfigError` for implausible prices."""
    for number, rate in enumerate(rates):
        if not rate.days:
            raise ConfigError(
                f"{where}.tariffs[{number}]",
                "it has no day on which it holds",
                'Write { from = "22:00", to = "06:00", price = 0.12 }.',
            )
    if rates and mean_price(flat, rates) is None:
        raise ConfigError(
            f"{where}.tariffs",
            "some hours of the week have no price",
            "Write tariff = 0.30 for the hours that no entry names.",
        )
