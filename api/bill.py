"""The bill of a month: `/api/v1/bill`, and `kilowatch report --month`."""

from __future__ import annotations

import msgspec


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the bill: `quantity` times `price` is `amount`, where there is one price."""

    name: str
    """`energy, measured`, `demand`, `excess demand`, `contract`, `reactive energy`, `fixed`."""
    quantity: float | None = None
    """Of the building: the machines' times PUE. Null is not known."""
    unit: str = ""
    price: float | None = None
    """Money per unit; null where it differs by the hour."""
    amount: float | None = None
    """Null is not known: the total is without it."""
    note: str = ""


class PriceBand(msgspec.Struct, frozen=True, kw_only=True):
    """Energy at one price."""

    price: float
    kwh: float
    """Measured, recovered and filled, of the building."""
    amount: float


class IdleNode(msgspec.Struct, frozen=True, kw_only=True):
    """Idle GPUs of a node in a month: those below 5 % utilisation."""

    node: str
    gpu_hours: float
    """Hours of GPUs whose utilisation was known."""
    idle_gpu_hours: float
    ratio: float
    kwh: float
    """The idle GPUs' own watts, at the wall."""
    cost: float | None = None
    """Of that energy, by the hour's price, with PUE; null without a tariff."""


class MonthBill(msgspec.Struct, frozen=True, kw_only=True):
    """A month in the site's time zone: up to its end, or up to now with a forecast."""

    month: str
    timezone: str = ""
    """With a note where it is only the machine's."""
    currency: str = ""
    pue: float = 1.0
    finished: bool = False
    hours: float = 0.0
    """Length of the month; a change of clocks makes it an hour longer or shorter."""
    hours_elapsed: float = 0.0
    hours_known: float = 0.0
    """Hours in which all that was billed then was measured, or recovered by a meter's own counter."""
    kwh_measured: float = 0.0
    """This and the following at the wall of the machines."""
    kwh_recovered: float = 0.0
    """Of hours without readings, by meters' own counters."""
    kwh_filled: float | None = None
    """Of other past hours without readings: the mean at that hour of the day, and the last known power of
    silent nodes on no circuit. Null: too little is known."""
    kwh_forecast: float | None = None
    """From now until the month's end."""
    peak_kw: float | None = None
    """Highest demand of an interval, of the building."""
    peak_at: str = ""
    """Local time at which that interval began."""
    demand_minutes: int = 15
    intervals_unknown: int = 0
    """Past intervals of which the demand is not known: the highest may have been among them."""
    power_factor: float | None = None
    """Of the month, from the meters that report it."""
    lines: list[BillLine] = []
    total: float | None = None
    """Sum of the known lines."""
    total_forecast: float | None = None
    """At the month's end, if no higher demand comes."""
    total_least: float | None = None
    """At the month's end if each day to come is as the quietest of the last seven; null where fewer than three were measured."""
    total_most: float | None = None
    """At the month's end if each is as the busiest."""
    bands: list[PriceBand] = []
    """Energy by price, dearest first; prices below 0 are earned."""
    idle: list[IdleNode] = []
    """Most idle energy first; 100 nodes at most."""
    unknown: list[str] = []
    """Circuits that are billed and of which nothing is known this month: they are in no number."""
    rules: list[str] = []
    """How gaps were filled, and what else holds for these numbers."""
    missing: list[str] = []
    """Aggregators of the cluster that did not answer."""
