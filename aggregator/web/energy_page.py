"""The page of energy and cost: the bill of a month, what is measured of it, and what idles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.web.bars import part_bar
from aggregator.web.headline_part import figure_tile, headline_part, tiles
from aggregator.web.markup import fact, facts, link, path, section, table, text
from api.bill import MonthBill
from api.report import Upkeep
from api.use import UseReply
from present.bill import charge_table, hours_row, idle_table, price_table, summary_rows, total_rows
from present.fleet.bill_headline import bill_figures, bill_headline, user_lines

MOST_NODES = 100


def energy_body(
    bill: MonthBill, months: Sequence[str], today: Upkeep | None = None, days: str = "", users: str = ""
) -> str:
    """Return the page's content. `months`: those of which something is stored, oldest first; `today`: the energy of the
    present day; `days` and `users` are HTML."""
    chosen = "".join(
        f'<li><a href="{path("energy", month=name)}"{" aria-current=page" if name == bill.month else ""}>{text(name)}</a></li>'
        for name in months[-12:]
    )
    nav = f'<nav aria-label="Months"><ul class="tabs">{chosen}</ul></nav>' if chosen else ""
    rules = "".join(f"<li>{text(rule)}</li>" for rule in bill.rules)
    unknown = ", ".join(link(name, "circuits", name) for name in bill.unknown)
    missing = f"<p class=problems>Not in these numbers, for nothing is known of them: {unknown}.</p>" if unknown else ""
    left = (
        section("Each day", days, "days")
        + section("Who used it", users, "users")
        + section("Idle GPUs", _idle(bill), "idle")
    )
    right = (
        section("The bill", _charges(bill) + missing, "charges")
        + section("Energy by price", _bands(bill), "bands")
        + section("How much is known", facts(_facts(bill)), "known")
        + section("How these numbers are made", f"<ul>{rules}</ul>" if rules else "", "rules")
    )
    return (
        f"{nav}{headline_part(bill_headline(bill))}{tiles(*map(figure_tile, bill_figures(bill, today)))}"
        f'<div class="stack w14">{left}</div><div class="stack w10">{right}</div>'
    )


def users_table(reply: UseReply) -> str:
    """Return who used the GPUs of a month, with what no job held; nothing where nothing was counted."""
    lines = list(user_lines(reply))
    most = max((one.joules or 0.0 for one in lines), default=0.0)
    rows = [
        (
            link(one.name, "jobs", user=one.name, **{"from": "-30d"}) if one.person else f'<span class="dim">{text(one.name)}</span>',
            f'<div class="barred"><span>{text(one.energy)}</span>{part_bar(None if one.joules is None or not most else one.joules / most)}</div>',
            text(one.hours), text(one.use), text(one.cost), text(one.idle),
        )
        for one in lines
    ]  # fmt: skip
    heads = ("user", "energy at the wall", "GPU hours", "use", "cost", "of it idle")
    caption = f"{reply.month}; ~ is known in part"
    return table(caption, heads, rows, (2, 3, 4, 5), "users")


def _facts(bill: MonthBill) -> Iterator[tuple[str, str]]:
    yield "month", f"{text(bill.month)}, {'finished' if bill.finished else 'up to now'}"
    yield "time zone", text(bill.timezone)
    for row in (hours_row(bill), *summary_rows(bill), *total_rows(bill)):
        yield row.label, fact(row)


def _charges(bill: MonthBill) -> str:
    head, rows = charge_table(bill)
    cells = [tuple(map(text, row)) for row in rows]
    total, *_ = total_rows(bill)
    cells.append(("<strong>total</strong>", "", "", f"<strong>{text(total.value)}</strong>", text(total.note)))
    return table(f"Charges of {bill.month}", head, cells, (1, 2, 3)) if rows else ""


def _bands(bill: MonthBill) -> str:
    head, rows = price_table(bill)
    return table("Dearest first", head, [tuple(map(text, row)) for row in rows], (0, 1, 2)) if len(rows) > 1 else ""


def _idle(bill: MonthBill) -> str:
    head, rows = idle_table(bill)
    cells = [(link(node, "nodes", node), *map(text, rest)) for node, *rest in rows[:MOST_NODES]]
    return table("GPUs below 5% utilisation, most idle energy first", head, cells, (1, 2, 3, 4))
