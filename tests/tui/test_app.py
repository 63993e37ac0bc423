"""The whole dashboard, driven by keys, on the aggregator's real HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aggregator.http.app import listening
from aggregator.http.config import HttpConfig
from alerts.alert import Severity, State
from telemetry.gap import Gap
from tests.tui.cluster import Cluster, served, text_of, until
from tui.app import Top
from tui.text import CROSS
from tui.top import screenshot


@asynccontextmanager
async def shown(
    cluster: Cluster, size: tuple[int, int] = (80, 24), token: Path | None = None
) -> AsyncIterator[tuple[Pilot[None], str]]:
    """A dashboard that has its first data, and its screen as text."""
    await cluster.beat()
    async with served(cluster, token) as url:
        app = Top(url, every=0.2)
        async with app.run_test(size=size) as pilot:
            yield pilot, await until(pilot, lambda text: "reporting" in text and "dgx" in text)


def gpu_rows(text: str) -> list[str]:
    """The rows of the GPU table."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.lstrip("▼").startswith("GPUS"))
    rows: list[str] = []
    for line in lines[start + 1 :]:
        if not line.startswith(("· ", "▲ CRIT", "! WARN", CROSS, "▒")):
            break
        rows.append(line)
    return rows


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (61, 17)])
async def test_the_screen_shows_the_cluster_and_nothing_is_too_wide(size: tuple[int, int]) -> None:
    cluster = Cluster(nodes=2, gpus=4)
    cluster.lose("GPU-dgx-01-2")
    async with shown(cluster, size) as (pilot, _):
        text = await until(pilot, lambda text: "fallen off" in text and "LOST" in text)
        lines = text.splitlines()
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
        assert "● LIVE lab" in lines[0]
        assert "nodes 2/2" in lines[0]
        assert "GPUs 7/8" in lines[0]
        assert "hottest 63 °C" in lines[1] or size[0] < 80
        assert ("SIMULATED" in lines[0]) == (size[0] >= 80)
        lost = next(row for row in gpu_rows(text) if "LOST" in row)
        assert lost.split()[:4] == [CROSS, "LOST", "dgx-01", "2"] or "…" in lost
        assert lines[-1].lstrip().startswith("q Quit")


async def test_the_screen_as_it_stands() -> None:
    cluster = Cluster(nodes=2, gpus=2)
    cluster.silence("GPU-dgx-01-1", Gap.TIMED_OUT)
    cluster.raise_alert("gpu_hung", "GPU-dgx-01-1", "dgx-01 GPU 1 hangs", node="dgx-01")
    cluster.raise_alert(
        "remap_pending", "GPU-dgx-00-1", "dgx-00 GPU 1 remaps", Severity.TICKET, State.PENDING
    )
    async with shown(cluster) as (pilot, _):
        text = await until(pilot, lambda text: "hangs" in text and "HUNG" in text)
        rows = [line.rstrip() for line in text.splitlines()]
        assert rows[2:9] == [
            "NODES   node         GPUs GPU power     wall  °C  util         worst alert",
            "· ok    dgx-00        2/2    1.3 kW   6.2 kW  61   93% ██████▌",
            "▲ CRIT  dgx-01        1/2     650 W   6.2 kW  60   98% ██████▉ gpu_hung",
            "GPUS    node       #   W/limit         °C  util            GiB   MHz held by",
            "· ok    dgx-00     0   650/700 █████▋  60   98% ████▉    76/80  1755 power cap",
            "· ok    dgx-00     1   610/700 █████▎  61   88% ████▍    72/80  1755",
            "· ok    dgx-01     0   650/700 █████▋  60   98% ████▉    76/80  1755 power cap",
        ]
        assert rows[9].split() == [CROSS, "HUNG", "dgx-01", "1", *["—"] * 6]
        assert rows[-3].startswith("▲ PAGE    1.0 s  dgx-01 GPU 1 hangs")
        assert rows[-2].startswith("~ pending 1.0 s  dgx-00 GPU 1 remaps")
        assert rows[-1].endswith("GPU 1 of 4")


async def test_a_silent_node_is_stale_and_its_values_are_dashes() -> None:
    cluster = Cluster(nodes=2, gpus=1)
    async with shown(cluster) as (pilot, _):
        cluster.muted.add("dgx-01")
        for _ in range(5):
            await cluster.beat()
        text = await until(pilot, lambda text: "nodes 1/2" in text and "silent" in text)
        stale = gpu_rows(text)[1]
        assert stale.startswith("▒ STALE dgx-01")
        assert "610" not in stale
        assert "650" not in stale


async def test_enter_shows_one_node_and_escape_shows_all_again() -> None:
    async with shown(Cluster(nodes=3, gpus=2)) as (pilot, before):
        assert len(gpu_rows(before)) == 6
        await pilot.press("shift+tab", "down", "enter")
        text = await until(pilot, lambda text: len(gpu_rows(text)) == 2)
        assert all("dgx-01" in row for row in gpu_rows(text))
        assert "node dgx-01" in text.splitlines()[-1]
        await pilot.press("escape")
        await until(pilot, lambda text: len(gpu_rows(text)) == 6)
        assert pilot.app.is_running


async def test_enter_on_a_gpu_shows_its_node() -> None:
    async with shown(Cluster(nodes=2, gpus=2)) as (pilot, _):
        await pilot.press("G", "enter")
        text = await until(pilot, lambda text: len(gpu_rows(text)) == 2)
        assert "node dgx-01" in text.splitlines()[-1]


async def test_the_cursor_moves_and_stays_on_its_gpu_when_the_order_changes() -> None:
    async with shown(Cluster(nodes=2, gpus=8)) as (pilot, _):
        await pilot.press("j", "down", "k", "j")
        assert "GPU 3 of 16" in text_of(pilot.app).splitlines()[-1]  # type: ignore[arg-type]
        await pilot.press("s", "s")  # by power: both nodes' GPU 2 stand at 5 and 6
        text = await until(pilot, lambda text: "▼W/limit" in text)
        assert "GPU 5 of 16" in text.splitlines()[-1]
        powers = [int(row.split()[4].split("/")[0]) for row in gpu_rows(text)]
        assert powers == sorted(powers, reverse=True)
        await pilot.press("end")
        text = await until(pilot, lambda text: "GPU 16 of 16" in text)
        assert "370/700" in gpu_rows(text)[-1]
        await pilot.press("pageup", "pageup", "home")
        await until(pilot, lambda text: "GPU 1 of 16" in text)


async def test_every_sort_of_both_tables_comes_round() -> None:
    async with shown(Cluster(nodes=2, gpus=1)) as (pilot, _):
        for _ in range(6):
            await pilot.press("s")
        await until(pilot, lambda text: "▼" not in text)
        await pilot.press("tab")
        for _ in range(4):
            await pilot.press("s")
            await until(pilot, lambda text: "▼" in text)
        await pilot.press("s")
        await until(pilot, lambda text: "▼" not in text)


async def test_a_filter_is_applied_while_it_is_typed_and_escape_takes_it_back() -> None:
    async with shown(Cluster(nodes=3, gpus=2)) as (pilot, _):
        await pilot.press("slash", *"DGX-02-1")
        await until(pilot, lambda text: len(gpu_rows(text)) == 1)
        await pilot.press("enter")
        text = await until(pilot, lambda text: "filter 'DGX-02-1'" in text)
        assert "dgx-02" in gpu_rows(text)[0]
        await pilot.press("slash", *"zzz")
        await until(pilot, lambda text: "none of 6 matches" in text)
        await pilot.press("escape")
        await until(pilot, lambda text: len(gpu_rows(text)) == 6)


async def test_pause_freezes_the_screen_and_not_the_data() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    async with shown(cluster) as (pilot, _):
        await pilot.press("p")
        await until(pilot, lambda text: "PAUSED 00:0" in text)
        app = pilot.app
        assert isinstance(app, Top)
        cluster.wrong["GPU-dgx-00-0"] = {"gpu_power_watts": 77.0}
        await cluster.beat()
        async with asyncio.timeout(30):
            while app.feed.board.gpus.value("gpu_power_watts", 0) != 77.0:
                await pilot.pause(0.05)
        assert "650/700" in text_of(app)
        await pilot.press("p")
        await until(pilot, lambda text: " 77/700" in text and "PAUSED" not in text)


async def test_help_lists_the_keys_and_goes_away() -> None:
    async with shown(Cluster(nodes=1, gpus=1)) as (pilot, _):
        await pilot.press("question_mark")
        text = await until(pilot, lambda text: "pause the screen" in text)
        assert "a page" in text
        await pilot.press("escape")
        await until(pilot, lambda text: "pause the screen" not in text)


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
        async with listening(cluster, HttpConfig(listen=f"{host}:{port}")):
            await until(pilot, lambda text: "● LIVE" in text and "DISCONNECTED" not in text)
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


async def test_a_wrong_token_says_how_to_give_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    async with (
        served(Cluster(nodes=1), path) as url,
        Top(url, "wrong").run_test(size=(80, 24)) as pilot,
    ):
        await until(pilot, lambda text: "--token-file" in text and "the token is wrong" in text)


async def test_a_tiny_terminal_and_a_resize_under_way() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    cluster.lose("GPU-dgx-00-1")
    async with shown(cluster) as (pilot, _):
        for size in ((40, 10), (12, 2), (1, 1)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await pilot.resize_terminal(50, 12)
        text = await until(pilot, lambda text: "60x16" in text)
        assert "▲1" in text
        await pilot.resize_terminal(160, 50)
        await until(pilot, lambda text: "650/700" in text and "uuid" in text)


async def test_hostile_names_do_no_harm() -> None:
    cluster = Cluster(nodes=0)
    cluster.cluster = "lab\x1b]0;owned\x07"
    cluster.place("dgx-" + "n" * 100, 1, "NVIDIA \x1b[2J\r\n" + "X" * 300 + "\u202e")
    cluster.raise_alert("r", "GPU", "\x1b[31mred\x1b[0m " + "y" * 500 + "[bold]not markup[/bold]")
    async with shown(cluster, (160, 50)) as (pilot, _):
        text = await until(pilot, lambda text: "?[31mred" in text)
        assert all(len(line) <= 160 for line in text.splitlines())
        assert text.replace("\n", "").isprintable()


async def test_two_hundred_alerts_at_once_leave_room_for_the_tables() -> None:
    cluster = Cluster(nodes=1, gpus=4)
    for number in range(200):
        cluster.raise_alert(f"rule_{number}", None, f"thing {number}")
    async with shown(cluster) as (pilot, _):
        text = await until(pilot, lambda text: "and 198 more" in text)
        assert "▲200" in text
        assert len(gpu_rows(text)) == 4


async def test_only_the_rows_on_the_screen_are_drawn() -> None:
    async with shown(Cluster(nodes=60, gpus=8)) as (pilot, before):
        assert "GPUs 480/480" in before
        table = pilot.app.query_one("#gpus")
        lines = [table.render_line(y) for y in range(table.size.height)]
        assert len(lines) < 24
        await pilot.press("end")
        text = await until(pilot, lambda text: "GPU 480 of 480" in text)
        assert "dgx-59" in gpu_rows(text)[-1]


async def test_the_mouse_chooses_and_scrolls() -> None:
    async with shown(Cluster(nodes=2, gpus=8)) as (pilot, _):
        await pilot.click("#gpus", offset=(10, 3))
        await until(pilot, lambda text: "GPU 3 of 16" in text)
        await pilot.click("#nodes", offset=(10, 2))
        await until(pilot, lambda text: "node 2 of 2" in text)


async def test_a_picture_can_be_taken() -> None:
    async with shown(Cluster(nodes=1, gpus=1)) as (pilot, _):
        app = pilot.app
        assert isinstance(app, Top)
        svg = screenshot(app)
        assert svg.startswith("<svg")
        assert "kilowatch" in svg


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_a_key_ends_it(key: str) -> None:
    async with shown(Cluster(nodes=1, gpus=1)) as (pilot, _):
        await pilot.press(key)
        await pilot.pause()
        assert not pilot.app.is_running
