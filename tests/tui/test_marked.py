"""Several incidents in one go: marks follow their rows, one form, one answer, and what was refused."""

from __future__ import annotations

from textual.pilot import Pilot

from tests.tui.cluster import until
from tests.tui.test_app import press_until, staged
from tui.app import Top


def marked(text: str) -> list[str]:
    """Rows with a mark."""
    return [line for line in text.splitlines() if line.startswith("* ")]


def toasts(app: Top) -> list[str]:
    """What was said in passing, oldest first."""
    return [str(each.message) for each in app._notifications]


async def line_text(pilot: Pilot[None], app: Top, word: str) -> str:
    """Wait for a toast with a word in it."""
    await until(pilot, lambda _: any(word in each for each in toasts(app)))
    return next(each for each in toasts(app) if word in each)


async def test_marks_stay_on_their_rows_whatever_is_sorted_and_comes_anew() -> None:
    async with staged((100, 30)) as (pilot, app, stage):
        await press_until(pilot, "5", holds=lambda text: "fallen off" in text)
        text = await press_until(pilot, "space", "space", holds=lambda t: len(marked(t)) == 2)
        before = {line[15:60] for line in marked(text)}
        assert "2 marked" in text.splitlines()[-1]
        keys = app.view.marked  # type: ignore[attr-defined]
        for _ in range(3):
            await pilot.press("s")
            await stage.beat()
            text = await until(pilot, lambda t: len(marked(t)) == 2)
            assert {line[15:60] for line in marked(text)} == before
        await press_until(pilot, "r", holds=lambda t: len(marked(t)) == 2)
        assert app.view.marked == keys  # type: ignore[attr-defined]
        await press_until(pilot, "escape", holds=lambda t: not marked(t))
        assert app.view.NAME == "alerts", "the first escape takes the marks, nothing else"


async def test_all_marked_are_acknowledged_at_once() -> None:
    async with staged((120, 40), write=True, who="ops") as (pilot, app, stage):
        await press_until(pilot, "5", holds=lambda text: "fallen off" in text)
        await press_until(pilot, "A", holds=lambda _: True)
        assert await line_text(pilot, app, "nothing is marked: space marks a row")
        await press_until(pilot, *["space"] * 3, holds=lambda text: len(marked(text)) == 3)
        await press_until(pilot, "A", holds=lambda text: "3 marked: " in text)
        await pilot.press(*"shift", "enter")
        assert await line_text(pilot, app, "3 acknowledged") == "3 acknowledged"
        taken = [one for one in stage.pipeline.manager.incidents() if one.acknowledged]
        assert [one.acknowledged.why for one in taken if one.acknowledged] == ["shift"] * 3
        await press_until(pilot, "A", holds=lambda _: True)
        assert await line_text(pilot, app, "all that is marked is acknowledged already")


async def test_what_is_refused_is_counted_with_the_reason() -> None:
    """Two of three end while the form is open: the incident manager refuses these."""
    async with staged((120, 40), write=True, who="ops") as (pilot, app, stage):
        await press_until(pilot, "5", holds=lambda text: "fallen off" in text)
        await press_until(pilot, *["space"] * 3, holds=lambda text: len(marked(text)) == 3)
        await press_until(pilot, "A", holds=lambda text: "3 marked: " in text)
        gone = [app.view.marked]  # type: ignore[attr-defined]
        for key in sorted(gone[0])[:2]:
            for record in stage.pipeline.manager.index.incidents.values():
                if record.key == key:
                    stage.pipeline.manager._scheduler.finish(record)
        await pilot.press("enter")
        words = await line_text(pilot, app, "refused")
        assert words.startswith("1 acknowledged; ")
        assert "is over" in words


async def test_the_marked_are_silenced_each_thing_once() -> None:
    async with staged((120, 40), write=True, who="ops") as (pilot, app, stage):
        await press_until(pilot, "5", holds=lambda text: "fallen off" in text)
        await press_until(pilot, *["space"] * 3, holds=lambda text: len(marked(text)) == 3)
        await press_until(pilot, "S", holds=lambda text: "Silence what is marked" in text)
        await press_until(pilot, "enter", holds=lambda text: "why: missing" in text)
        await pilot.press(*"CHG-7", "enter")
        words = await line_text(pilot, app, "silenced for 2h")
        silences = stage.pipeline.manager.silences()
        assert words == f"{len(silences)} silenced for 2h"
        assert {silence.why for silence in silences} == {"CHG-7"}
        assert all(s.ends - s.starts == 7200 * 10**9 for s in silences)
        targets = [tuple(map(str, silence.matchers)) for silence in silences]
        assert len(set(targets)) == len(targets)


async def test_marking_is_for_all_and_taking_needs_write() -> None:
    async with staged((100, 30)) as (pilot, app, stage):
        await press_until(pilot, "5", "space", holds=lambda text: len(marked(text)) == 1)
        await pilot.press("A")
        assert await line_text(pilot, app, "read-only")
        assert not any(one.acknowledged for one in stage.pipeline.manager.incidents())
