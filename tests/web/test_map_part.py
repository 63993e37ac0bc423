"""The map of many GPUs: a fifth of its racks is drawn anew at a time."""

from __future__ import annotations

import re

import pytest

from aggregator.web.chart_time import STEP_NS
from aggregator.web.fleet_cells import rack_of
from aggregator.web.fleet_map import scale_of
from aggregator.web.keyed_parts import PagePart, changes, parts_of
from aggregator.web.live_pages import EVERY_SECONDS, LivePages
from aggregator.web.map_part import TURNS, turn_of
from bench.live_fleet import LiveFleet
from tests.aggregator.http_client import Door, door

RACK = re.compile(r'<a data-k="(?:[^"]*/)?(R\d+)\.".*?</a>', re.DOTALL)


async def pictures(client: Door) -> dict[str, str]:
    """Return each rack's picture as the first page has it now."""
    body = (await client.text("/?map=power"))[1]
    return {found[1]: found[0] for found in RACK.finditer(body)}


async def parts(client: Door) -> PagePart:
    """Return the parts of the first page as it is now, without its identity."""
    body = (await client.text("/?map=power"))[1]
    return parts_of(re.sub(r'data-live="\w*"', "", body))


def changed(now: dict[str, str], before: dict[str, str]) -> set[str]:
    assert now.keys() == before.keys()
    return {rack for rack in now if now[rack] != before[rack]}


async def fleet_without_alerts(monkeypatch: pytest.MonkeyPatch) -> LiveFleet:
    """Twenty racks at work, on pages that are made anew for everybody."""
    monkeypatch.setattr(LivePages, "SECONDS", 0.0)
    fleet = LiveFleet(80, still=True)
    for _ in range(5):
        await fleet.beat()
    monkeypatch.setattr(fleet, "alerts", lambda: ())
    return fleet


async def test_each_rack_is_drawn_anew_every_ten_seconds_and_no_update_has_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each in its turn: all of 10,000 GPUs in one update would hold up a browser."""
    fleet = await fleet_without_alerts(monkeypatch)
    async with door(fleet) as client:
        before, seen = await pictures(client), set()
        assert len(before) == 20
        for _ in range(TURNS):
            for _ in range(round(EVERY_SECONDS)):
                await fleet.beat()
            now = await pictures(client)
            anew = changed(now, before)
            assert len({turn_of(rack) for rack in anew}) <= 1
            seen |= anew
            before = now
        assert len(seen) > 10, "of racks at work each has a cell of another colour now"


async def test_of_a_rack_with_nothing_new_but_its_readings_the_picture_alone_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name, its link and its hover text would be parsed and compared for nothing."""
    fleet = await fleet_without_alerts(monkeypatch)
    async with door(fleet) as client:
        before = await parts(client)
        for _ in range(round(STEP_NS / 1e9)):
            await fleet.beat()
        sent = changes(await parts(client), before)
        racks = {key: html for key, html in sent.items() if re.search(r"/R\d+\.", key)}
        assert racks
        assert all(key.endswith("/cells") for key in racks), list(racks)[:3]
        assert all(html.startswith("<svg ") for html in racks.values())


async def test_an_alert_is_on_the_map_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await fleet_without_alerts(monkeypatch)
    async with door(fleet) as client:
        before = await pictures(client)
        alert = next(each for each in LiveFleet.alerts(fleet) if each.node and each.gpu)
        rack = rack_of(fleet.fleet.nodes[alert.node])
        monkeypatch.setattr(fleet, "alerts", lambda: (alert,))
        now = await pictures(client)
        assert changed(now, before) == {rack}
        assert f'class="rack {alert.severity.value}"' in now[rack]


def test_the_end_of_the_scale_of_power_stays_where_gpus_are_at_their_limit() -> None:
    """Also without any that is known."""
    assert {scale_of("power", watts) for watts in (695.0, 700.0, 704.2)} == {(0.0, 750.0)}
    assert scale_of("power", 0.0)[1] > 0
    assert scale_of("use", 0.4) == (0.0, 1.0)
