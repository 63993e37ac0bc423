"""The whole dashboard, driven by keys, on the aggregator's real rules, circuits and HTTP API."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.binding import Binding
from textual.pilot import Pilot

from aggregator.access.tokens import AccessScope
from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from bench.live_fleet import LiveFleet
from telemetry.gap import GAP, Gap
from tests.aggregator.fake_view import give_jobs
from tests.aggregator.http_client import add_token
from tests.kit.waiting import within
from tests.tui.cluster import Cluster, served, text_of, until
from tui.app import Top
from tui.keys import KEYS
from tui.kit.text import CROSS
from tui.screens import VIEWS
from tui.screens.overview import Overview
from tui.top import screenshot

LOST_NODE = "node-0001"
"""Of a stage of eight nodes: its GPU 0 has XID 79."""


@asynccontextmanager
async def staged(
    size: tuple[int, int] = (80, 24), nodes: int = 8, **options: object
) -> AsyncIterator[tuple[Pilot[None], Top, LiveFleet]]:
    """A dashboard on a fleet with faults, once it shows them."""
    options = {"every": 0.2, **options}
    stage = LiveFleet(nodes, still=True)
    for _ in range(9):
        await stage.beat()
    give_jobs(stage, ("node-0000", "8800", "ada", (0, 1)), ("node-0001", "8801", "bob", (0,)))
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.json"
        secret = add_token(tokens, "ops", AccessScope.ADMIN) if options.get("write") else None
        config = HttpConfig(listen="127.0.0.1:0", tokens_file=tokens)
        async with listening(stage, config) as (host, port):
            app = Top(f"http://{host}:{port}", secret, **options)  # type: ignore[arg-type]
            async with app.run_test(size=size) as pilot:
                await until(pilot, lambda text: "CRIT" in text and "site-a" in text)
                yield pilot, app, stage


@asynccontextmanager
async def shown(
    cluster: Cluster, size: tuple[int, int] = (80, 24), token: Path | None = None
) -> AsyncIterator[tuple[Pilot[None], Top]]:
    """A dashboard on a fleet whose readings the test sets."""
    await cluster.beat()
    async with served(cluster, token) as url:
        app = Top(url, every=0.2)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda text: "● LIVE lab" in text and "Alerts by" in text)
            yield pilot, app


async def press_until(pilot: Pilot[None], *keys: str, holds: Callable[[str], bool]) -> str:
    """Press keys, then wait until the screen says something."""
    await pilot.press(*keys)
    return await until(pilot, holds)


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (61, 17), (300, 100)])
async def test_the_overview_shows_the_fleet_and_nothing_is_too_wide(size: tuple[int, int]) -> None:
    async with staged(size) as (pilot, _, _stage):
        text = await until(pilot, lambda text: "has fallen off the bus" in text or size[0] < 80)
        lines = text.splitlines()
        assert len(lines) == size[1]
        assert all(cell_len(line) <= size[0] for line in lines)
        assert "● LIVE site-a" in lines[0]
        assert "SIM" in lines[0]
        assert "PDU-002A" in lines[1] or size[0] >= 120 or "PDU-002A" in text
        assert CROSS in text
        assert lines[-1].lstrip().startswith("q Quit")


async def test_a_large_screen_is_filled_by_eight_nodes() -> None:
    """A card for each GPU, one line of cards a node; a map of eight lines left most of it blank."""
    names = [f"node-000{node} gpu{gpu} " for node in range(8) for gpu in range(8)]
    async with staged((300, 100)) as (pilot, _, _stage):

        def filled(text: str) -> bool:
            lines = [[line[:150], line[150:]] for line in text.splitlines()]
            return all(name in text for name in names) and all(
                sum(bool(part.strip(" │╭╮╰╯─")) for part in half) > 50 for half in zip(*lines, strict=True)
            )

        await until(pilot, filled)


async def test_every_key_of_every_view_leaves_the_screen_whole() -> None:
    bound = {binding.action for binding in Top.BINDINGS if isinstance(binding, Binding)}
    assert all(f"do('{key.action}')" in bound for key in KEYS)
    async with staged((100, 30)) as (pilot, app, _):
        for view in "1234567":
            await pilot.press(view)
            for key in app.view.legal():
                if key.action in {"quit", "interrupt", "reconnect"} or (key.everywhere and view != "1"):
                    continue
                app.action_do(key.action)
                await pilot.pause()
                assert all(cell_len(line) <= 100 for line in text_of(app).splitlines()), key
                while len(app.screen_stack) > 1:
                    await pilot.press("escape")
                if app.query_one("#filter").display:
                    await pilot.press("escape")
                app.go(app.view.NAME if key.everywhere else list(VIEWS)[int(view) - 1])
        assert app.is_running


async def test_keys_alone_lead_to_the_lost_gpu_and_the_reason() -> None:
    async with staged() as (pilot, _, _stage):
        await press_until(pilot, "5", holds=lambda text: "Alerts" in text.splitlines()[0] and "fallen off" in text)
        await press_until(pilot, "slash", *"fallen", "enter", holds=lambda text: "/fallen" in text and "1 of 3" in text)
        await press_until(pilot, "enter", holds=lambda text: "drain" in text.lower())
        text = await press_until(pilot, "enter", holds=lambda text: "/gpu0" in text and "serial" in text)
        assert "nothing can be read" in text
        await press_until(pilot, "escape", "escape", "escape", "escape", holds=lambda text: "/fallen" not in text)


async def test_acknowledging_and_silencing_need_write_and_then_hold() -> None:
    async with staged((120, 40)) as (pilot, app, stage):
        await press_until(pilot, "5", "a", holds=lambda _: not stage.pipeline.manager.incidents()[0].acknowledged)
        assert len(app.screen_stack) == 1
    async with staged((120, 40), write=True, who="ops") as (pilot, app, stage):
        await press_until(pilot, "5", holds=lambda text: "fallen off" in text)
        await press_until(pilot, "a", holds=lambda text: "Acknowledge" in text)
        await press_until(pilot, *"on it", "enter", holds=lambda text: "✓ ops" in text)
        taken = [one for one in stage.pipeline.manager.incidents() if one.acknowledged]
        assert [(one.acknowledged.who, one.acknowledged.why) for one in taken if one.acknowledged] == [("ops", "on it")]
        await press_until(pilot, "slash", *f"fallen {LOST_NODE}", "enter", holds=lambda text: "1 of 1" in text)
        await press_until(pilot, "S", holds=lambda text: f"node={LOST_NODE}" in text and "will hide" in text)
        await press_until(pilot, "enter", holds=lambda text: "why: missing" in text)
        await press_until(pilot, *"CHG-1", "enter", holds=lambda text: f"node={LOST_NODE}  until" in text)
        silence = stage.pipeline.manager.silences()[0]
        assert (silence.who, silence.why, str(silence.matchers[0].value)) == ("ops", "CHG-1", LOST_NODE)
        assert silence.ends - silence.starts == 7200 * 10**9
        text = await until(pilot, lambda text: "silenced 2 h" in text)
        assert "1 silence, 1 of 1" in text.splitlines()[-1]


async def test_the_circuit_that_trips_first_is_shown_with_its_relief() -> None:
    async with staged() as (pilot, app, _):
        text = await press_until(pilot, "4", "s", holds=lambda text: "▼what next" in text)
        rows = [line for line in text.splitlines() if "PDU-" in line or "RPP-" in line]
        assert "PDU-002A" in rows[1]
        assert "TRIP" in rows[1]
        text = await press_until(pilot, "enter", holds=lambda text: "relief" in text and "heat" in text)
        assert "continuous" in text
        await press_until(
            pilot, "escape", "w", holds=lambda text: "what if PDU-002A is lost:" in text and "asking" not in text
        )
        assert "PDU-002B" in text_of(app)


async def test_pages_of_a_node_and_a_gpu_show_all_about_them() -> None:
    async with staged((160, 50)) as (pilot, app, stage):
        await press_until(pilot, "2", "down", "down", holds=lambda text: "DGX H100" in text)
        text = await press_until(pilot, "enter", holds=lambda text: "Wall power W" in text and "power/limit" in text)
        assert "job-8800" in text
        text = await press_until(pilot, "down", "enter", holds=lambda text: "Temperature °C" in text and "gpu1" in text)
        assert "no clock limit" in text or "clock limit " in text
        await press_until(pilot, "right_square_bracket", holds=lambda text: "/gpu2" in text)
        await press_until(pilot, "plus", holds=lambda text: "Power W  60 min" in text)
        assert app.feed.wants.nodes == ()
        assert stage.memory is not None


async def test_a_filter_dims_the_map_and_hides_rows_and_says_what_is_wrong_with_it() -> None:
    async with staged() as (pilot, app, _):
        await pilot.press("3", "slash", *"node=node-0002 & gpu<3")
        await until(pilot, lambda text: "of 3" in text or text.count("node-0002") >= 3)
        text = await press_until(pilot, "enter", holds=lambda text: "1 of 3" in text)
        assert "node-0005" not in text
        text = await press_until(pilot, "slash", *" & powr>3", holds=lambda text: "^" in text)
        assert "Did you mean 'power'" in text or "power" in text.splitlines()[-2]
        assert app.context.filter.text == "node=node-0002 & gpu<3"  # not what was half typed
        assert text.count("node-0002") >= 3
        await press_until(pilot, "escape", holds=lambda text: "of 64" in text)
        await pilot.press("1", "slash", *"zzz")
        assert app.query_one(Overview)._dimmed(app.context.shown) is not None


async def test_a_filter_says_where_it_does_not_hold() -> None:
    async with staged((100, 24)) as (pilot, _, _stage):
        keys = ("3", "slash", *"power>600", "enter")
        text = await press_until(pilot, *keys, holds=lambda text: "/power>600  GPUs" in text)
        assert "not here" not in text
        text = await press_until(pilot, "4", holds=lambda text: "/power>600 not here" in text)
        assert "of 6" in text.splitlines()[-1]
        await press_until(pilot, "2", holds=lambda text: "/power>600  Nodes" in text)


async def test_rows_are_sorted_and_the_cursor_stays_on_its_gpu() -> None:
    async with shown(Cluster(nodes=2, gpus=8)) as (pilot, app):
        await press_until(pilot, "3", "j", "down", "k", "j", holds=lambda text: "3 of 16" in text)
        await press_until(pilot, "s", "s", holds=lambda text: "▼W/limit" in text and "5 of 16" in text)
        chosen = app.view.chosen()
        assert chosen is not None
        assert chosen[1].endswith("-2")
        await press_until(pilot, "r", holds=lambda text: "370/700" in text.splitlines()[3])
        await press_until(pilot, "end", "pageup", "home", holds=lambda text: "1 of 16" in text)


async def test_pause_freezes_the_screen_and_not_the_data() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    async with shown(cluster) as (pilot, app):
        await press_until(pilot, "p", holds=lambda text: "PAUSED 00:0" in text)
        cluster.wrong["GPU-dgx-00-0"] = {"gpu_power_watts": 77.0}
        await cluster.beat()
        async with within():
            while app.feed.state.gpus.value("gpu_power_watts", 0) != 77.0:
                await pilot.pause(0.05)
        assert "650/700" in text_of(app)
        await press_until(pilot, "p", holds=lambda text: " 77/700" in text and "PAUSED" not in text)


async def test_gpus_of_when_another_view_was_open_are_no_longer_true() -> None:
    async with shown(Cluster(nodes=1, gpus=2)) as (_, app):
        assert not app.view.faded
        app.feed.state = replace(app.feed.state, at=app.feed.state.at + 9 * 10**9)
        assert app.view.faded
        app.go("alerts")
        app.feed.state = replace(app.feed.state, at=app.feed.state.gpus_at + 9 * 10**9)
        assert not app.view.faded, "it shows no GPU"


async def test_the_time_bar_shows_what_was_on_every_view_and_comes_back() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    async with shown(cluster) as (pilot, app):
        for watts in (111.0, 222.0, 333.0):
            cluster.wrong["GPU-dgx-00-0"] = {"gpu_power_watts": watts}
            await cluster.beat()
            await until(pilot, lambda text, watts=watts: f"{watts:.0f}/700" in text)  # type: ignore[misc]
        assert len(app.context.time.recent) == 4
        text = await press_until(
            pilot,
            "t",
            "left_square_bracket",
            "left_square_bracket",
            holds=lambda text: "REPLAY" in text and "111/700" in text,
        )
        assert "◀" in text
        await press_until(pilot, "3", holds=lambda text: "111/700" in text and "GPUs" in text)
        await press_until(pilot, "left_curly_bracket", holds=lambda text: "650/700" in text)
        await press_until(pilot, "L", holds=lambda text: "333/700" in text and "● LIVE" in text)


async def test_the_palette_goes_anywhere_by_a_few_letters() -> None:
    async with staged() as (pilot, app, _):
        await press_until(pilot, "colon", *"node-0005", holds=lambda text: "▶ node" in text)
        await press_until(pilot, "enter", holds=lambda text: "node-0005  online" in text)
        await press_until(
            pilot, "colon", *"theme light", "enter", holds=lambda _: app.context.tones.theme.name == "light"
        )
        assert app.current_theme.name == "kilowatch-light"
        await press_until(pilot, "colon", *"nothing at all", holds=lambda text: "no match" in text)


async def test_help_lists_the_keys_of_the_view_and_goes_away() -> None:
    async with staged() as (pilot, _, _stage):
        text = await press_until(pilot, "5", "question_mark", holds=lambda text: "Help: Alerts" in text)
        assert "read-only" in text
        assert " more lines ─╯" in text
        text = await press_until(pilot, *["pagedown"] * 3, holds=lambda text: "↑ more" in text)
        assert "marks before a name" in text
        await press_until(pilot, "escape", holds=lambda text: "Help:" not in text)


async def test_tables_and_pictures_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with staged((100, 30)) as (pilot, app, _):
        await press_until(pilot, "3", holds=lambda text: "of 64" in text)
        for word in ("csv", "json", "svg", "text of"):
            await press_until(pilot, "E", holds=lambda text: "PNG of the screen" in text)
            await press_until(pilot, *word, "enter", holds=lambda _: len(app.screen_stack) == 1)
        await until(pilot, lambda _: len(list(tmp_path.iterdir())) == 4)
        rows = json.loads(next(tmp_path.glob("*.json")).read_text())
        assert len(rows) == 64
        assert len(next(tmp_path.glob("*.csv")).read_text().splitlines()) == 65
        assert next(tmp_path.glob("*.svg")).read_text().startswith("<svg")


async def test_a_mouse_chooses_and_opens() -> None:
    async with staged() as (pilot, app, _):
        await pilot.click("#map", offset=(30, 2))
        assert app.view.chosen() is not None
        await pilot.click("#map", offset=(30, 2), times=2)
        await until(pilot, lambda text: "/gpu" in text and "serial" in text)


async def test_a_silent_node_is_stale_and_its_values_are_dashes() -> None:
    cluster = Cluster(nodes=2, gpus=1)
    async with shown(cluster) as (pilot, _):
        await pilot.press("3")
        cluster.muted.add("dgx-01")
        for _ in range(5):
            await cluster.beat()
        text = await until(pilot, lambda text: "▒ STALE   dgx-01" in text)
        stale = next(line for line in text.splitlines() if "dgx-01" in line)
        assert "650" not in stale
        assert "—" in stale


async def test_a_hung_gpu_is_down_and_no_zero() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    cluster.silence("GPU-dgx-00-1", Gap.TIMED_OUT)
    async with shown(cluster) as (pilot, _):
        text = await press_until(pilot, "3", holds=lambda text: "HUNG" in text)
        row = next(line for line in text.splitlines() if "HUNG" in line)
        assert row.split() == [CROSS, "HUNG", "dgx-00", "1", *["—"] * 6]


async def test_the_aggregator_goes_and_comes_back() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    await cluster.beat()
    async with listening(cluster, HttpConfig(listen="127.0.0.1:0")) as (host, port):
        app = Top(f"http://{host}:{port}", every=0.2)
        running = app.run_test(size=(100, 24))
        pilot = await running.__aenter__()
        await until(pilot, lambda text: "650/700" in text)
    try:
        text = await until(pilot, lambda text: "DISCONNECTED" in text)
        assert "last data" in text
        assert "650/700" in text
        assert app.view.faded
        async with listening(cluster, HttpConfig(listen=f"{host}:{port}")):
            await press_until(pilot, "R", holds=lambda text: "● LIVE" in text and "DISCONNECTED" not in text)
    finally:
        await running.__aexit__(None, None, None)


async def test_nobody_there_says_what_to_start() -> None:
    async with Top("http://127.0.0.1:1").run_test(size=(80, 24)) as pilot:
        text = await until(pilot, lambda text: "no answer from" in text)
        assert "http://127.0.0.1:1" in text
        assert "kilowatch aggregate" in text


async def test_no_node_yet_says_what_to_start_and_gives_way_to_the_first_node() -> None:
    cluster = Cluster(nodes=0)
    async with served(cluster) as url, Top(url, every=0.2).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda text: "no node yet" in text and "kilowatch collect" in text)
        cluster.place("dgx-00", 1)
        await cluster.beat()
        await until(pilot, lambda text: "650/700" in text)


async def test_a_wrong_token_is_reported_with_its_option(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-enough-secret-of-many-letters")
    token.chmod(0o600)
    async with served(Cluster(1, 1), token) as url, Top(url).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda text: "--token-file" in text)


async def test_names_of_strangers_do_the_terminal_no_harm() -> None:
    cluster = Cluster(nodes=0)
    evil = "n\x1b[2J\u202e" + "x" * 300 + "\n\u0000end"
    cluster.place(evil, 2, "GPU\x1b]0;title\x07 " + "y" * 300)
    cluster.raise_alert("gpu_lost", f"GPU-{evil}-0", f"{evil} has fallen", node=evil)
    for size in ((80, 24), (160, 50)):
        async with shown_evil(cluster, size) as (pilot, app):
            for keys in (("1",), ("2", "enter"), ("3", "enter"), ("5",)):
                await pilot.press(*keys)
                await pilot.pause(0.3)
                text = text_of(app)
                assert not {c for c in text if not c.isprintable()} - {"\n"}
                assert all(cell_len(line) <= size[0] for line in text.splitlines())


@asynccontextmanager
async def shown_evil(cluster: Cluster, size: tuple[int, int]) -> AsyncIterator[tuple[Pilot[None], Top]]:
    """A dashboard on a fleet whose names are an attack."""
    await cluster.beat()
    async with served(cluster) as url:
        app = Top(url, every=0.2)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda text: "● LIVE" in text and "GPU" in text)
            yield pilot, app


async def test_gpus_of_two_makers_stand_in_the_same_lists_and_filters() -> None:
    """What AMD does not have is a dash there, as any reading that is not supported."""
    cluster = Cluster(nodes=1, gpus=2)
    cluster.place("mi-00", 2, "AMD Instinct MI300X")
    cluster.wrong["GPU-mi-00-1"] = {
        "gpu_power_watts": 612.0,
        "gpu_power_limit_watts": 750.0,
        "gpu_sm_clock_hertz": GAP[Gap.NOT_SUPPORTED],
    }
    async with shown(cluster, (160, 50)) as (pilot, app):
        assert "4/4" in text_of(app)
        app.go("gpus")
        text = await until(pilot, lambda text: "612/750" in text)
        (line,) = [line for line in text.splitlines() if "612/750" in line]
        assert "1755" not in line
        assert "dgx-00" in text
        app.go("gpus", "model~=^AMD")
        text = await until(pilot, lambda text: "dgx-00" not in text and "612/750" in text)
        assert "mi-00" in text
        app.open("gpu", "GPU-mi-00-1")
        await until(pilot, lambda text: "AMD Instinct MI300X" in text and "612" in text)


async def test_a_tiny_terminal_says_the_essentials_and_a_resize_brings_the_rest() -> None:
    async with staged((40, 10)) as (pilot, _, _stage):
        await until(pilot, lambda text: "LIVE" in text.splitlines()[0] and "too small" in text)
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda text: "Power chain" in text)
        await pilot.resize_terminal(30, 5)
        await until(pilot, lambda text: "64 GPUs" in text)


async def test_a_terminal_without_unicode_gets_ascii() -> None:
    async with staged((160, 50), ascii_only=True) as (pilot, app, _):
        for view in "12345":
            await pilot.press(view)
            await pilot.pause(0.2)
            assert text_of(app).isascii()


@pytest.mark.parametrize("theme", ["dark", "light", "contrast", "mono", "sixteen"])
async def test_every_theme_draws_a_picture(theme: str) -> None:
    async with staged((80, 24), theme=theme) as (_, app, _stage):
        picture = screenshot(app)
        assert picture.startswith("<svg")
        assert len(picture) < 200_000


async def test_pools_show_islands_and_the_matrix_of_a_node() -> None:
    async with staged() as (pilot, _, _stage):
        text = await press_until(pilot, "6", holds=lambda text: "8 islands" in text)
        assert "H100 80GB HBM3  8 a node" in text
        text = await press_until(pilot, "M", holds=lambda text: "matrix of node-" in text and "gpu7" in text)
        assert "SW?" in text or "SW" in text
        await press_until(pilot, "escape", holds=lambda text: "8 islands" in text)


async def test_energy_shows_consumption_and_cost() -> None:
    async with staged((100, 40)) as (pilot, _, _stage):
        text = await press_until(pilot, "7", holds=lambda text: "Energy and cost" in text and "today" in text)
        assert "Draw by rack" in text
        assert "Draw by node" in text
        assert "none configured" in text


async def test_gpus_are_compared_on_one_scale() -> None:
    async with staged((120, 40)) as (pilot, app, _):
        await press_until(pilot, "3", "s", "c", "down", "c", holds=lambda _: len(app.context.tray) == 2)
        text = await press_until(pilot, "C", holds=lambda text: "temperature" in text and "/gpu1" in text)
        assert "utilisation" in text
        await press_until(pilot, "escape", holds=lambda text: "GPUS" in text)
        assert app.view.NAME == "gpus"
