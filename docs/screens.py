"""Draws the pictures of the README, of docs/screens.md and, by Chromium, of docs/web.md from seeded demos:
`make screens`. Look at them afterwards.

python -m docs.screens [--scenario two-dgx-h100] [--screen overview] [--web overview] [--seconds 150]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import subprocess
import sys
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from textual.pilot import Pilot

from bench.processes import end
from docs.palette import small
from kilowatch.stack.ports import free_port
from tests.web.browser import browsing
from tui.app import Top
from tui.frame.export import png
from tui.top import screenshot

PICTURES = Path(__file__).parent / "pictures"
PAGE = Path(__file__).parent / "screens.md"
SIZES = ((80, 24), (160, 50))
SCENARIOS: dict[str, tuple[str, ...]] = {
    "desktop-4x5090": ("kilowatch", "demo", "--scenario", "desktop-4x5090", "--seed", "1", "--no-ui"),
    "two-dgx-h100": (
        "kilowatch", "demo", "--scenario", "two-dgx-h100", "--seed", "1", "--no-ui",
        "--faults", "xid79@dgx-02/3+4s, thermal@dgx-01/1+2s",
    ),
    "fleet": ("bench.live_fleet", "--nodes", "1250"),
}  # fmt: skip
"""Module and arguments of what is shown; 10,000 GPUs come from a stage, as 1,250 collectors do not
fit one small machine."""
SCREENS: dict[str, tuple[str, tuple[str, ...]]] = {
    "overview": ("Overview: every GPU, alerts by cause, circuits by time to trip", ("1",)),
    "nodes": ("Nodes, and on a wide terminal the page of the one under the cursor", ("2", "down")),
    "gpus": ("GPUs, worst first, and the page of the one under the cursor", ("3", "s")),
    "gpu": ("One GPU: past, limits, clock limit reasons, errors, links", ("3", "s", "enter")),
    "node": ("One node: its GPUs beside each other", ("2", "enter")),
    "circuits": ("Circuits by time to trip, and what would relieve them", ("4", "s")),
    "circuit": ("One circuit: heat, load, where the trend goes", ("4", "s", "enter")),
    "alerts": ("Alerts by cause", ("5",)),
    "alert": ("One cause, what it means and what to do", ("5", "enter")),
    "pools": ("Pools and islands", ("6",)),
    "energy": ("Energy and cost", ("7",)),
}
"""What each is, and the keys that lead there."""
WEB: dict[str, tuple[str, str, str, str]] = {
    "overview": ("fleet", "desktop", "/", "The overview of 10,000 GPUs"),
    "lab": ("two-dgx-h100", "desktop", "/", "The overview of two DGX H100"),
    "incident": ("two-dgx-h100", "desktop", "", "An incident, where a page's link leads"),
    "circuit": ("fleet", "desktop", "/circuits/PDU-018A", "A circuit and its branch of the power chain"),
    "node": (
        "two-dgx-h100",
        "desktop",
        "/nodes/dgx-01?from=-15m",
        "A node: its GPUs in their places, one of them too hot",
    ),
    "gpu": (
        "two-dgx-h100",
        "desktop",
        "/gpus/GPU-34cef6bf-0b4e-129b-cede-5828b7bb472b?from=-15m",
        "A GPU beside the others of its node",
    ),
    "job": ("two-dgx-h100", "desktop", "/jobs/1000000", "A job: the GPU that holds it up, and the use of each"),
    "nodes": ("fleet", "desktop", "/nodes?sort=hottest", "1,250 nodes, sorted by a click"),
    "circuits": ("fleet", "phone", "/circuits", "Circuits on a phone"),
}
"""Web pages: scenario, size, path (empty: the worst incident), and what each is."""
DARK = ("overview", "circuit", "incident")
"""Pages that are drawn in dark colours too."""
SHOWN = {"top": ("tui", "present", "api"), "web": ("aggregator/web", "present", "api")}
"""Folders of the sources that make what a picture shows, by the first word of its name."""
_STAMP = b"kilowatch sources\0"
"""Key of the text in a picture, behind which its stamp stands."""
_WORST = "document.querySelector('table.incidents tbody a').getAttribute('href')"


@contextmanager
def running(scenario: str) -> Iterator[str]:
    """Run a scenario in a process of its own; yields its URL."""
    url = f"127.0.0.1:{free_port()}"
    module, *arguments = SCENARIOS[scenario]
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments, "--http", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://{url}"
    finally:
        end(process)  # on a loaded machine a demo takes its time, and the pictures are there


async def wait_for(url: str) -> None:
    """Wait until the aggregator answers."""
    async with asyncio.timeout(120):
        while True:
            try:
                await asyncio.to_thread(urllib.request.urlopen, f"{url}/readyz", timeout=2)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                return


async def quiet(pilot: Pilot[None], seconds: float) -> None:
    """Let the dashboard run."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await pilot.pause(0.1)


async def draw(url: str, size: tuple[int, int], seconds: float, screens: Sequence[str]) -> dict[str, str]:
    """Show the dashboard for some seconds on a terminal of that size; return the SVG of each."""
    await wait_for(url)
    app = Top(url)
    drawn: dict[str, str] = {}
    async with app.run_test(size=size) as pilot:
        await quiet(pilot, seconds)
        async with asyncio.timeout(120):
            while not app.feed.state.ready:
                await quiet(pilot, 0.5)
        for name in screens:
            await pilot.press(*SCREENS[name][1])
            await quiet(pilot, 5.0)
            drawn[name] = screenshot(app)
    return drawn


async def draw_web(url: str, seconds: float, names: Sequence[str]) -> dict[str, bytes]:
    """Show web pages in Chromium; return the PNG of each picture."""
    await wait_for(url)
    await asyncio.sleep(seconds)
    drawn: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the browser may still write
        async with browsing(Path(folder)) as tab:
            for name in names:
                _, size, path, _ = WEB[name]
                await tab.size(size)
                if not path:
                    await tab.open(f"{url}/alerts")
                    path = "/" + await tab.value(_WORST)
                await tab.open(url + path)
                for scheme in ("dark", "light") if name in DARK else ("light",):
                    feature = {"name": "prefers-color-scheme", "value": scheme}
                    await tab.call("Emulation.setEmulatedMedia", features=[feature])
                    shot = await tab.call("Page.captureScreenshot", format="png")
                    drawn[web_picture(name, scheme)] = base64.b64decode(shot["data"])
    return drawn


def stamp(name: str, root: Path = PICTURES.parents[1]) -> str:
    """Return the hash of the sources that a picture of this name shows, in a tree."""
    found = hashlib.sha256()
    folders = [root / folder for folder in SHOWN[name.partition("-")[0]]]
    for path in sorted(
        path
        for folder in folders
        for path in folder.rglob("*.*")
        if path.suffix in {".py", ".css", ".tcss", ".js", ".svg"}
    ):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def stamped(picture: bytes, text: str) -> bytes:
    """Return a PNG with its stamp, as a text before its end."""
    chunk = b"tEXt" + _STAMP + text.encode()
    length, check = len(chunk) - 4, zlib.crc32(chunk)
    return picture[:-12] + length.to_bytes(4) + chunk + check.to_bytes(4) + picture[-12:]


def stamp_of(picture: bytes) -> str:
    """Return the stamp of a PNG; "" where it has none."""
    _, key, rest = picture.rpartition(b"tEXt" + _STAMP)
    return rest[:-16].decode() if key else ""


def page(scenarios: Sequence[str]) -> str:
    """Write the page that shows them all."""
    lines = [
        "# Gallery",
        "",
        "Web pages, then the dashboard in a terminal. Made by `make screens` from seeded demos; do not edit.",
        "",
    ]
    for name, (_, _, _, what) in WEB.items():
        lines += [f"## {what}", ""]
        lines += [
            f"![{what}, {scheme}](pictures/{path.name})"
            for scheme in ("light", "dark")
            if (path := PICTURES / web_picture(name, scheme)).exists()
        ]
        lines.append("")
    for name, (what, _) in SCREENS.items():
        lines += [f"## {what}", ""]
        for scenario in scenarios:
            for size in SIZES:
                path = PICTURES / picture(scenario, name, size)
                if path.exists():
                    lines.append(f"![{what}, {scenario}, {size[0]}x{size[1]}](pictures/{path.name})")
        lines.append("")
    return "\n".join(lines)


def web_picture(name: str, scheme: str) -> str:
    """Name of a picture of a web page in light or dark colours."""
    return f"web-{name}{'-dark' if scheme == 'dark' else ''}.png"


def picture(scenario: str, screen: str, size: tuple[int, int]) -> str:
    """Name of a picture; those of the overview are the README's."""
    middle = "" if screen == "overview" else f"{screen}-"
    return f"top-{middle}{scenario}-{size[0]}x{size[1]}.png"


def main(arguments: list[str]) -> int:
    """Write a PNG for each scenario, size and screen, and the page."""
    parser = argparse.ArgumentParser(prog="python -m docs.screens", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--screen", choices=SCREENS, action="append")
    parser.add_argument("--web", choices=WEB, action="append", help="these web pages alone")
    parser.add_argument("--seconds", type=float, default=150.0, help="a hot GPU takes two minutes")
    options = parser.parse_args(arguments)
    PICTURES.mkdir(exist_ok=True)
    screens = options.screen or ([] if options.web else list(SCREENS))
    web = options.web or ([] if options.screen else list(WEB))
    for scenario in [options.scenario] if options.scenario else SCENARIOS:
        with running(scenario) as url:
            here = [name for name in web if WEB[name][0] == scenario]
            drawn = asyncio.run(draw_web(url, options.seconds, here)) if here else {}
            for name, shot in drawn.items():
                path = PICTURES / name
                path.write_bytes(stamped(small(shot), stamp(path.name)))
                print(f"wrote {path.relative_to(PICTURES.parents[1])}")  # noqa: T201
            for number, size in enumerate(SIZES if screens else ()):
                seconds = options.seconds if number == 0 else 4.0
                for name, svg in asyncio.run(draw(url, size, seconds, screens)).items():
                    path = PICTURES / picture(scenario, name, size)
                    path.write_bytes(stamped(small(png(svg)), stamp(path.name)))
                    print(f"wrote {path.relative_to(PICTURES.parents[1])}")  # noqa: T201
    PAGE.write_text(page(list(SCENARIOS)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
