"""The pages of 4, 16 and 10,000 GPUs with the faults of the demos, at each size, light and dark, as they follow the cluster:
one of each in the gate, all of them in `make nightly`."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.brokers import free_port
from tests.kit import night
from tests.kit.waiting import until
from tests.web import npm_packages
from tests.web.browser import SIZES, BrowserPage, browsing, needed
from tests.web.test_in_browser import AXE, LOOK

pytestmark = [needed, pytest.mark.systems, pytest.mark.nightly, pytest.mark.timeout(1200)]
DEMOS = {
    "4": ("desktop-4x5090", "thermal@desktop/1+1s:1h, straggler@desktop/2+2s:1h, hung@desktop/3+3s:1h"),
    "16": (
        "two-dgx-h100",
        "straggler@dgx-01/5+1s:1h, ecc_storm@dgx-02/2+1s:1h, remap_pending@dgx-02/2+2s, "
        "thermal@dgx-01/1+2s:1h, power_brake@dgx-02+3s:1h, xid79@dgx-01/3+3s:1h",
    ),
}
"""By GPUs: scenario of the demo, and its faults, at once and for as long as a test takes."""
ALL = list(product((*DEMOS, "10,000"), SIZES, ("light", "dark")))
LATER = {"4": "thermal@desktop/1+15s:1h", "16": "xid79@dgx-01/3+15s:1h"}
"""By GPUs: the only fault of a demo, after its page is open."""
SHORT = [("4", "phone", "light"), ("16", "wide", "dark"), ("10,000", "desktop", "light")]
MOST_SHIFT = 0.02
UPDATED = """new Promise(done => document.addEventListener("kilowatch:placed", () =>
  requestAnimationFrame(() => setTimeout(done, 300)), {once: true}))"""
"""Until the next update is on the screen."""
MOVING = ("/", "circuits", "incidents")
"""Pages that are looked at for longer: people leave them open."""
WATCH = """(() => {
  window.shift = 0;
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) window.shift += each.value;
  }).observe({type: "layout-shift", buffered: true});
})()"""
REACH = """(() => {
  const faults = [];
  const reached = "a[href], button, input, select, summary, [tabindex='0']";
  for (const each of document.querySelectorAll("[title]:not(time), svg title")) {
    const its = each.matches("title") ? each.parentElement : each;
    if (!its.closest(reached)) faults.push(`no key leads to its words: ${its.outerHTML.slice(0, 100)}`);
  }
  for (const each of document.querySelectorAll("button, input, select, .top nav a, .tabs a, .more a, a.rack, .figures a")) {
    const box = each.getBoundingClientRect();
    if (each.checkVisibility() && each.type !== "hidden" && box.width && (box.width < 29.5 || box.height < 29.5))
      faults.push(`${Math.round(box.width)}x${Math.round(box.height)} px: ${each.outerHTML.slice(0, 100)}`);
  }
  return faults;
})()"""
"""Hover texts that no key leads to, and targets below 30 px. The whole time of a `time` is its text already, but for the day;
links inside texts, tables and drawings are as high as their line."""


def asked(url: str) -> Any:
    """Return an answer of the API."""
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def incidents(url: str) -> list[dict[str, Any]]:
    """Return what is open; nothing before it serves."""
    try:
        found: list[dict[str, Any]] = asked(f"{url}/api/v1/incidents")["incidents"]
    except OSError:
        return []
    return found


def computed(url: str) -> bool:
    """Return whether the circuits are: a page of before has no place for them yet."""
    try:
        return bool(asked(f"{url}/api/v1/circuits")["circuits"])
    except OSError:
        return False


@contextmanager
def serving(gpus: str, faults: str = "") -> Iterator[str]:
    """Run a cluster in a process of its own; yields its URL. `faults`: other ones than those of its demo."""
    listen = f"127.0.0.1:{free_port()}"
    command = ["bench.live_fleet", "--nodes", "1250", "--http", listen]
    if gpus in DEMOS:
        scenario, its = DEMOS[gpus]
        command = ["kilowatch", "demo", "--no-ui", "--scenario", scenario, "--faults", faults or its, "--http", listen]
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL) as process:
        try:
            yield f"http://{listen}"
        finally:
            process.terminate()


def paths(url: str) -> list[str]:
    """Return the pages of a cluster: all of the menu, and one of each kind below them."""
    node = asked(f"{url}/api/v1/nodes")["nodes"][0]["node"]
    with urllib.request.urlopen(f"{url}/nodes/{node}") as answer:
        gpu = re.findall(r'href="(gpus/[^"?]+)', answer.read().decode())[0]
    circuit = asked(f"{url}/api/v1/circuits")["circuits"][0]["id"]
    incident = incidents(url)[0]["key"]
    menu = ("/circuits", "/nodes", "/jobs", "/energy", "/alerts", "/ports", "/fitness", "/drift", "/runbook", "/find?q=n")  # fmt: skip
    return [
        "/", *menu, "/?map=power", "/alerts?view=alerts", f"/nodes/{node}", f"/{gpu}", f"/circuits/{quote(circuit, safe='')}?lose=1",
        f"/incidents/{quote(incident, safe='')}", "/runbook/gpu_lost",
    ]  # fmt: skip


async def look(page: BrowserPage, url: str, seconds: float, rules: str) -> list[str]:
    """Return what is wrong with a page, after it was followed for some seconds."""
    await page.open(url)
    await page.value(WATCH)
    await asyncio.sleep(seconds)
    found: list[str] = [*await page.value(LOOK), *await page.value(REACH)]
    if (shift := await page.value("window.shift")) > MOST_SHIFT:
        found.append(f"it moves by {shift:.3f}")
    if rules:
        await page.do(rules)
        found += await page.value(AXE)
    return found


@pytest.mark.parametrize(("gpus", "size", "scheme"), night.size(SHORT, ALL))
async def test_the_pages_are_sound_and_stand_still(tmp_path: Path, gpus: str, size: str, scheme: str) -> None:
    """No console error, no other host, no layout shift; contrast, targets, hover texts by keyboard, and the rules of axe; the
    overview is on one screen of 1440x900."""
    rules = ""
    if npm_packages.needed.args[0] is False:
        file = await asyncio.to_thread(npm_packages.node_modules) / "axe-core/axe.min.js"
        rules = await asyncio.to_thread(file.read_text)
    with serving(gpus) as url:
        await until(lambda: asyncio.to_thread(incidents, url))
        async with browsing(tmp_path / "profile") as page:
            await page.size(size)
            feature = {"name": "prefers-color-scheme", "value": scheme}
            await page.call("Emulation.setEmulatedMedia", features=[feature])
            faults = {}
            for path in await asyncio.to_thread(paths, url):
                moving = path == "/" or path.startswith(tuple(f"/{one}/" for one in MOVING[1:]))
                seconds = night.size(4.0, 60.0) if moving else night.size(0.5, 5.0)
                found = await look(page, url + path, seconds, rules)
                height = await page.value("document.documentElement.scrollHeight")
                if path == "/" and size == "desktop" and height > SIZES["desktop"][1]:
                    found.append(f"it is {height} px high")
                if found:
                    faults[path] = found
            assert faults == {}
            own = urlsplit(url).netloc
            assert all(urlsplit(each).netloc == own for each in page.requests)
            assert page.errors == []


@pytest.mark.parametrize(("gpus", "size"), night.size([("16", "desktop")], list(product(DEMOS, SIZES))))
async def test_the_overview_stands_still_when_the_first_incident_opens(tmp_path: Path, gpus: str, size: str) -> None:
    """Each part has its place before it has anything to say."""
    with serving(gpus, LATER[gpus]) as url:
        await until(lambda: asyncio.to_thread(computed, url))
        async with browsing(tmp_path / "profile") as page:
            await page.size(size)
            await page.open(url + "/")
            await page.until("document.querySelector('#chain') !== null")
            await page.value(WATCH.replace("buffered: true", "buffered: false"))
            await page.until("document.querySelector('ul.incidents') !== null")
            await page.value(UPDATED)
            assert await page.value("window.shift") < MOST_SHIFT
            assert page.errors == []
