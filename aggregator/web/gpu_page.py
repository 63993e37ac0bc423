"""The page of a GPU: what is wrong first, its figures, its past beside the others of its node, what held its clocks, its
health, and who uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aggregator.web.device_tables import reading_cell, readings_table
from aggregator.web.headline_part import figure_tile, headline_part, tiles
from aggregator.web.markup import fact, facts, link, moment, section, table, text, toned
from api.device import GpuPageReply, GpuReply, InstanceReply
from present.device.figures import gpu_figures
from present.device.gpu import event_row, identity_rows, performance_row, state_row
from present.device.health import health_rows
from present.device.reading import metric_text
from present.fleet.headline import Headline
from telemetry.devices import Event
from telemetry.text import ABSENT, counted

_SHOWN_OF_INSTANCE = (
    "instance_memory_used_bytes", "instance_memory_total_bytes", "instance_sm_active_ratio",
    "instance_tensor_active_ratio", "instance_dram_active_ratio", "instance_processes",
)  # fmt: skip


class GpuParts(NamedTuple):
    """Parts of the page that are made elsewhere, HTML."""

    alerts: str
    holders: str
    """Jobs and processes that hold it, with their heading."""
    past: str
    """Chart of its temperature, with the choice of the time."""
    multiples: str
    """Charts of its other readings beside those of its peers."""
    held: str
    """Reasons that held its clocks."""


def gpu_body(page: GpuPageReply, title: Headline, peers: Sequence[GpuReply], parts: GpuParts) -> str:
    """Return the page's content. `peers`: the other GPUs of its node."""
    home = page.node.node
    left = (
        section("Past", parts.past, "past")
        + section("The same time", parts.multiples, "multiples")
        + parts.holders
        + _instances(page.instances)
    )
    right = (
        section("Alerts", parts.alerts, "alerts")
        + section("What held its clocks", parts.held, "held")
        + section("Health", facts((row.label, fact(row)) for row in health_rows(page) if row.value), "health")
        + section("About it", _about(page), "about")
        + section("Events", _events(page.events, page.at), "events")
    )
    return (
        f'<p class="about">{text(page.gpu.name)} of {link(home, "nodes", home)}</p>{headline_part(title)}'
        f"{tiles(*map(figure_tile, gpu_figures(page.readings.get, peers)))}"
        f'<div class="stack w15">{left}</div><div class="stack w9">{right}</div>'
        f"{section('Readings', readings_table(page.readings, page.gaps), 'readings')}"
    )


def _about(page: GpuPageReply) -> str:
    state = state_row(page.gpu, page.readings, page.gaps)
    now = state if state.value else performance_row(page.readings.get)
    rows = (row for row in (*identity_rows(page.gpu), now) if row.value not in {"", ABSENT})
    node = page.node.node
    return facts([("node", link(node, "nodes", node)), *((row.label, fact(row)) for row in rows)])


def _instances(instances: Sequence[InstanceReply]) -> str:
    """Return the MIG instances of a GPU with their readings; nothing without any."""
    if not instances:
        return ""
    heads = ("instance", *map(metric_text, _SHOWN_OF_INSTANCE))
    rows = [
        (text(each.instance.name), *(reading_cell(each.readings, each.gaps, name) for name in _SHOWN_OF_INSTANCE))
        for each in instances
    ]
    body = table(counted(len(rows), "instance"), heads, rows, range(1, len(heads)))
    return section("MIG instances", body, "instances")


def _events(events: Sequence[Event], now: int) -> str:
    found = [(one.at, event_row(one)) for one in events]
    rows = [(moment(at, now), toned(text(row.label), row.tone), text(row.value)) for at, row in found]
    return table(counted(len(rows), "event"), ("when", "kind", "what"), rows)
