"""Draws the pictures of the README from a seeded demo: `make screens`. Look at them afterwards.

python -m docs.screens [--scenario two-dgx-h100] [--seconds 12]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import resvg_py

from kilowatch.network import free_port
from tui.app import Top
from tui.top import screenshot

FONTS = Path("/usr/share/fonts/truetype/dejavu")
"""Debian's fonts-dejavu-core; `deploy/packages.sh` installs it."""
PICTURES = Path(__file__).parent / "pictures"
SIZES = ((80, 24), (160, 50))
SCENARIOS: dict[str, tuple[str, ...]] = {
    "desktop-4x5090": (),
    "two-dgx-h100": ("--faults", "xid79@dgx-02/3+4s, thermal@dgx-01/1+2s"),
    "fleet": ("--nodes", "40"),
}


@contextmanager
def running_demo(scenario: str, arguments: tuple[str, ...]) -> Iterator[str]:
    """Run a demo in a process of its own; yields its URL."""
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "kilowatch", "demo", "--scenario", scenario, "--seed", "1",
            "--no-ui", "--http", f"127.0.0.1:{port}", *arguments,
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


async def draw(url: str, size: tuple[int, int], seconds: float) -> str:
    """Show the dashboard for some seconds on a terminal of that size; return its SVG."""
    app = Top(url)
    async with app.run_test(size=size):
        await asyncio.sleep(seconds)
        return screenshot(app)


def png(svg: str) -> bytes:
    """Draw an SVG. Textual's names a web font that no picture loads; ours is on the disk."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "DejaVu Sans Mono")
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, font_dirs=[str(FONTS)]))


def main(arguments: list[str]) -> int:
    """Write one PNG for each scenario and size."""
    parser = argparse.ArgumentParser(prog="python -m docs.screens", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args(arguments)
    PICTURES.mkdir(exist_ok=True)
    for scenario in [options.scenario] if options.scenario else SCENARIOS:
        with running_demo(scenario, SCENARIOS[scenario]) as url:
            for number, size in enumerate(SIZES):
                svg = asyncio.run(draw(url, size, options.seconds if number == 0 else 3.0))
                path = PICTURES / f"top-{scenario}-{size[0]}x{size[1]}.png"
                path.write_bytes(png(svg))
                print(f"wrote {path.relative_to(PICTURES.parents[1])}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
