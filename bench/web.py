"""The web pages of 16 and of 10,000 GPUs in a real Chromium: first paint, interaction, bytes, memory, and what
a hundred viewers cost the one process that serves them.

python -m bench.web [--nodes 2,1250] [--viewers 100] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from aggregator.web.live_pages import EVENTS, EVERY_SECONDS
from bench.processes import children, cpu_seconds, memory
from bench.report import show
from tests.web.browser import BrowserPage, browsing

PAGES = {
    "overview": "/", "nodes": "/nodes", "nodes_by_power": "/nodes?sort=power", "node": "/nodes/node-0001",
    "gpu": "/gpus/GPU-00000001-0", "circuits": "/circuits", "alerts": "/alerts",
}  # fmt: skip
_WATCH = """(() => {
  window.shown = {keys: []};
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) if (each.name === "keydown") shown.keys.push(each.duration);
  }).observe({type: "event", durationThreshold: 16});
})()"""
_LOADED = """(() => {
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    answer: all[0].responseStart - all[0].requestStart,
    bytes: all.reduce((sum, each) => sum + each.transferSize, 0),
    elements: document.getElementsByTagName("*").length,
  };
})()"""
_UPDATED = """(async () => {
  await new Promise(done => document.addEventListener("kilowatch:placed", done, {once: true}));
  await new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)));
})()"""
"""Until what the next event changes is on the screen."""
_SORT = """(async () => {
  const placed = new Promise(done => document.addEventListener("kilowatch:placed", done, {once: true}));
  const began = performance.now();
  document.querySelector("thead a[href='nodes?sort=COLUMN']").click();
  await placed;
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
})()"""
"""From a click of a script on the head of a column, which nothing announced, to the picture of the sorted table."""
_PRESSED = """(() => {
  window.sorted = new Promise(done => {
    addEventListener("pointerdown", pressed => document.addEventListener("kilowatch:placed", () =>
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - pressed.timeStamp))), {once: true}), {once: true});
  });
  const box = document.querySelector("thead a[href='nodes?sort=COLUMN']").getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""
"""Watch for a press of the pointer; returns where the head of a column is."""
DWELL_SECONDS = 0.15
"""How long the pointer rests on the head before it is pressed: a hand needs more."""


@contextmanager
def _fleet(nodes: int) -> Iterator[tuple[str, int]]:
    """Run a fleet in a process of its own; yields its URL and its number."""
    command = [sys.executable, "-m", "bench.live_fleet", "--nodes", str(nodes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


async def _open(page: BrowserPage, url: str, cold: bool) -> dict[str, Any]:
    if cold:
        await page.call("Network.clearBrowserCache")
    await page.open(url)
    await page.until('performance.getEntriesByName("first-contentful-paint").length === 1')
    found: dict[str, Any] = await page.value(_LOADED)
    return found


async def _page(page: BrowserPage, url: str, times: int) -> dict[str, Any]:
    """Measure a page, loaded several times with an empty cache."""
    loads = [await _open(page, url, cold=True) for _ in range(times)]
    return {
        "first_paint_ms": round(statistics.median(one["paint"] for one in loads), 1),
        "first_paint_worst_ms": round(max(one["paint"] for one in loads), 1),
        "answer_ms": round(statistics.median(one["answer"] for one in loads), 1),
        "kilobytes": round(statistics.median(one["bytes"] for one in loads) / 1000, 1),
        "elements": loads[-1]["elements"],
    }


async def _interaction(page: BrowserPage, url: str, times: int) -> dict[str, Any]:
    """Measure keys typed into a filter, a column that is sorted by, and the live page's own renewal."""
    await _open(page, url + "/nodes", cold=False)
    await page.value(_WATCH)
    await page.value("document.querySelector('input[type=search]').focus()")
    for letter in "node-01":
        key = {"key": letter, "text": letter}
        await page.call("Input.dispatchKeyEvent", type="keyDown", **key)
        await page.call("Input.dispatchKeyEvent", type="keyUp", **key)
    # Shorter ones than 16 ms, a frame, are not told; then the longest is below it.
    keys = await page.value("new Promise(done => setTimeout(() => done(shown.keys), 1000))")
    sorts, unannounced, spent = [], [], 0.0
    for column in ("power", "hottest", "rack", "alerts", "age")[:times]:
        await _open(page, url + "/nodes", cold=False)
        await asyncio.sleep(0.5)  # what the load itself still costs
        sorts.append(await _pressed(page, column))
        await _open(page, url + "/nodes", cold=False)
        await asyncio.sleep(1.5)  # the server's copy of the sorted page is too old then
        before = sum(map(cpu_seconds, _renderers(page.process)))
        unannounced.append(await page.value(_SORT.replace("COLUMN", column)))
        spent += sum(map(cpu_seconds, _renderers(page.process))) - before
    updates = {name: await _update(page, url + PAGES[name], 2 * times) for name in ("circuits", "overview")}
    return {
        "key_worst_ms": max(keys, default=16.0),
        "sort_median_ms": round(statistics.median(sorts), 1),
        "sort_worst_ms": round(max(sorts), 1),
        "sort_unannounced_median_ms": round(statistics.median(unannounced), 1),
        "sort_unannounced_worst_ms": round(max(unannounced), 1),
        "sort_tab_cpu_ms": round(1e3 * spent / len(sorts), 1),
        "update_ms": updates,
    }


async def _update(page: BrowserPage, url: str, times: int) -> dict[str, float]:
    """Return the CPU time of the page's thread for an update, ms: all of it, without what moves meanwhile. After as
    many others: the first cost more."""
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    await page.call("Emulation.setEmulatedMedia", features=[still])
    await _open(page, url, cold=False)
    await page.call("Performance.enable", timeDomain="threadTicks")
    for _ in range(times):
        await page.value(_UPDATED)
    await page.call("HeapProfiler.collectGarbage")  # of the pages before
    spent = []
    for _ in range(times):
        before = await _work(page)
        await page.value(_UPDATED)
        spent.append(1e3 * (await _work(page) - before))
    return {"median": round(statistics.median(spent), 1), "worst": round(max(spent), 1)}


async def _work(page: BrowserPage) -> float:
    """Return the seconds that the page's thread has worked."""
    found = (await page.call("Performance.getMetrics"))["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


async def _pressed(page: BrowserPage, column: str) -> float:
    """Sort by a column as a hand does: point at its head, rest there, press. Returns ms from the press to the
    picture of the sorted table."""
    x, y = await page.value(_PRESSED.replace("COLUMN", column))
    await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    await asyncio.sleep(DWELL_SECONDS)
    button = {"x": x, "y": y, "button": "left", "clickCount": 1}
    await page.call("Input.dispatchMouseEvent", type="mousePressed", **button)
    await page.call("Input.dispatchMouseEvent", type="mouseReleased", **button)
    taken: float = await page.value("sorted")
    return taken


def _renderers(browser: int) -> list[int]:
    """Return the processes of a browser that show pages."""
    return [pid for pid in children(browser) if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _renderer(browser: int) -> float:
    """Return the memory (PSS, MiB) of the largest renderer of a browser."""
    return max(memory(pid)["pss_mib"] for pid in _renderers(browser))


async def _viewers(url: str, pid: int, viewers: int, seconds: float) -> dict[str, Any]:
    """Have viewers follow the overview as `static/pages.js` does."""
    sizes: list[int] = []
    following = asyncio.Barrier(viewers + 1)

    async def follow(session: aiohttp.ClientSession, number: int) -> None:
        await asyncio.sleep(EVERY_SECONDS * number / viewers)
        async with session.get(url + "/", headers={"Accept": EVENTS}) as answer:
            answer.raise_for_status()
            await answer.content.readchunk()
            await following.wait()
            while True:
                data, whole = await answer.content.readchunk()
                if whole:
                    sizes.append(len(data))

    alone, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.sleep(seconds / 2)
    before = (cpu_seconds(pid) - alone) / (time.perf_counter() - began)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        tasks = [asyncio.create_task(follow(session, number)) for number in range(viewers)]
        await following.wait()
        await asyncio.sleep(2 * EVERY_SECONDS)  # the page itself, which each was sent at first
        sizes.clear()
        used, began = cpu_seconds(pid), time.perf_counter()
        await asyncio.sleep(seconds)
        share = (cpu_seconds(pid) - used) / (time.perf_counter() - began)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    return {
        "viewers": viewers, "updates": len(sizes), "processes": 1 + len(children(pid)),
        "cpu_percent_without": round(100 * before, 1), "cpu_percent": round(100 * share, 1),
        "rss_mib": round(memory(pid)["rss_mib"], 1),
        "update_kilobytes": round(statistics.median(sizes) / 1000, 1), "update_worst_kilobytes": round(max(sizes) / 1000, 1),
    }  # fmt: skip


async def measure(nodes: int, viewers: int, seconds: float, times: int = 5) -> dict[str, Any]:
    """Return the figures of a fleet of nodes of eight GPUs; `times`: repetitions of each load."""
    with _fleet(nodes) as (url, pid), tempfile.TemporaryDirectory() as folder:
        async with browsing(Path(folder)) as page:
            await page.size("desktop")
            pages = {name: await _page(page, url + way, times) for name, way in PAGES.items()}
            interaction = await _interaction(page, url, times)
            renderer = _renderer(page.process)
            assert page.errors == [], page.errors
        crowd = await _viewers(url, pid, viewers, seconds)
    return {
        "pages": pages, "first_paint_slowest_ms": max(one["first_paint_ms"] for one in pages.values()),
        "interaction": interaction, "renderer_pss_mib": round(renderer, 1), "crowd": crowd,
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--nodes", default="2,1250", help="sizes, with commas between")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = {
        f"gpus_{8 * nodes}": asyncio.run(measure(nodes, options.viewers, options.seconds))
        for nodes in map(int, options.nodes.split(","))
    }
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
