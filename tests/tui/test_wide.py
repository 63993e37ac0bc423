"""Wide terminals: the detail beside every list from 120 columns on, a third column from 200 on."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from api.fleet import StoredEvent
from telemetry.devices import Event
from tests.tui.cluster import text_of, until
from tests.tui.test_app import staged
from tui.screens.forms import Dialog
from tui.screens.lists import ListView

DETAIL = {"2": "Wall power W", "3": "Temperature °C", "4": "of what trips it", "5": "what happened", "6": "islands"}
"""By key of a list: words of the detail of its row."""


@pytest.mark.parametrize("view", DETAIL)
async def test_the_detail_of_the_row_stands_beside_every_list(view: str) -> None:
    async with staged((120, 40)) as (pilot, app, _):
        await pilot.press(view)
        text = await until(pilot, lambda text: DETAIL[view] in text)
        assert isinstance(app.view, ListView)
        assert not app.view.third.display
        assert all(cell_len(line) <= 120 for line in text.splitlines())
        await pilot.resize_terminal(119, 40)
        below = 2 if view == "6" else 0  # the islands of a pool stand below it then
        text = await until(pilot, lambda text: text.count(DETAIL[view]) <= below)
        assert app.view.side.display == (view == "6")


@pytest.mark.parametrize("view", DETAIL)
async def test_a_very_wide_terminal_has_a_third_column_with_what_happened(view: str) -> None:
    async with staged((200, 50)) as (pilot, _, stage):
        xid = next(event for event in stage.happened if event.kind == "xid")
        old = Event(id="1", node="node-0003", at=stage.wall() - 10**9, kind="driver_reload")
        stage.memory.kept += [StoredEvent(xid, xid.at), StoredEvent(old, old.at)]
        await pilot.press(view)
        words = ("XID 79: GPU has fallen", "driver reload", DETAIL[view])
        text = await until(pilot, lambda text: all(word in text for word in words))
        lines = text.splitlines()
        column = 200 - 52 + 2  # its frame, and a blank
        assert [line for line in lines if line[column:].startswith("Events")]
        assert any("/gpu0" in line[column:] for line in lines)
        beside = [line for line in lines if line[column:].startswith("Alerts by cause")]
        assert bool(beside) == (view != "5"), "the alerts stand beside every list but their own"
        assert all(cell_len(line) <= 200 for line in lines)


async def test_the_third_column_shows_nothing_that_had_not_happened_yet() -> None:
    async with staged((200, 50)) as (pilot, app, stage):
        late = Event(id="1", node="node-0003", at=stage.wall() + 60 * 10**9, kind="xid", message="XID 31")
        stage.memory.kept.append(StoredEvent(late, late.at))
        await pilot.press("2")
        await until(pilot, lambda text: "none in the last day" in text or "XID 31" in text)
        assert "XID 31" not in text_of(app)


async def test_a_tall_overview_has_events_below_its_alerts_and_a_legend_of_the_cursor() -> None:
    async with staged((160, 70)) as (pilot, app, stage):
        xid = next(event for event in stage.happened if event.kind == "xid")
        stage.memory.kept.append(StoredEvent(xid, xid.at))
        text = await until(pilot, lambda text: "XID 79: GPU has fallen" in text)
        lines = text.splitlines()
        alerts = next(n for n, line in enumerate(lines) if "Alerts by cause" in line)
        events = next(n for n, line in enumerate(lines) if line.startswith("│ Events"))
        assert alerts < events
        await pilot.press("home")
        await pilot.pause()
        row = app.context.shown.gpus.order[0]
        name = app.context.shown.gpus.who.node[row]
        await until(pilot, lambda text: any(f"{name}/gpu" in line and "╰" in line for line in text.splitlines()))


async def test_a_dialog_stands_at_the_bottom_and_the_rows_stay_visible_through_it() -> None:
    async with staged((120, 40)) as (pilot, app, _):
        await pilot.press("2")
        await until(pilot, lambda text: "node-0003" in text)
        await pilot.press("colon")
        await until(pilot, lambda _: isinstance(app.screen, Dialog))
        await until(pilot, lambda _: app.screen.query("Vertical").first().region.bottom == 40)
        await until(pilot, lambda text: "Go to or do" in text and "node-0003" in text)
