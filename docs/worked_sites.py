"""Draws the worked sites of docs/sites.md: what `kilowatch plan` prints about each configuration of docs/sites; and
answers the questions of docs/questions.toml in docs/home.md.

python -m docs.worked_sites [--check]: writes the printed text beside each configuration, its picture, and the
pages; `--check` only compares the texts and the pages.
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
import tomllib
from pathlib import Path

import msgspec
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from docs.palette import small
from kilowatch.__main__ import main as kilowatch
from tui.frame.export import png

FOLDER = Path(__file__).parent / "sites"
PICTURES = Path(__file__).parent / "pictures"
PAGE = Path(__file__).parent / "sites.md"
SITES = {
    "home": "Two rigs at home, one of them on too small a circuit",
    "rack": "A rack in a laboratory with an A and a B feed from one panel",
    "hall": "A hall with two of everything (2N): utility, UPS, transformer, feed",
}
"""The sites, and what each is."""
HOME = Path(__file__).parent / "home.md"
QUESTIONS = Path(__file__).parent / "questions.toml"
MARKS = ("<!-- written by python -m docs.worked_sites -->", "<!-- end -->")


class OwnersQuestion(msgspec.Struct, frozen=True):
    """A question about one breaker."""

    ask: str
    type: str
    """The options of `kilowatch plan` that ask it."""


def questions() -> list[OwnersQuestion]:
    """Return the questions of owners."""
    found = tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))["question"]
    return msgspec.convert(found, list[OwnersQuestion])


def in_page(text: str) -> str:
    """Return the page of homes with the answers of now between its marks."""
    begin, end = MARKS
    rows = [begin, "| question | `kilowatch plan` | answer |", "| --- | --- | --- |"]
    for one in questions():
        said = CliRunner().invoke(kilowatch, ["plan", *shlex.split(one.type), "--json"]).stdout
        rows.append(f"| {one.ask} | `{one.type}` | {json.loads(said)['verdict']} |")
    head, _, rest = text.partition(begin)
    return "\n".join([head + rows[0], *rows[1:], end + rest.partition(end)[2]])


def printed(name: str) -> str:
    """Return what `kilowatch plan` prints about a site."""
    path = str(FOLDER / f"{name}.toml")
    return CliRunner().invoke(kilowatch, ["plan", "--config", path]).stdout


def command(name: str) -> str:
    """Return the command that prints it."""
    return f"kilowatch plan --config docs/sites/{name}.toml"


def picture(name: str) -> bytes:
    """Return the picture of a terminal with that text."""
    text = f"$ {command(name)}\n{printed(name)}"
    width = max(map(len, text.splitlines()))
    console = Console(record=True, width=width, file=io.StringIO(), color_system=None)
    console.print(Text(text.rstrip()))
    return small(png(console.export_svg(title=SITES[name])))


def page() -> str:
    """Return the page of all sites."""
    lines = ["# Worked sites", "", "Made by `python -m docs.worked_sites`; do not edit. [power.md](power.md) says what is modelled.", ""]  # fmt: skip
    for name, what in SITES.items():
        settings = (FOLDER / f"{name}.toml").read_text()
        lines += [f"## {what}", "", "```toml", settings.rstrip(), "```", ""]
        lines += [f"![{what}: `{command(name)}`](pictures/site-{name}.png)", ""]
    return "\n".join(lines)


def outdated() -> list[str]:
    """Return the files that no longer say what is computed."""
    found = [
        f"docs/sites/{name}.txt"
        for name in SITES
        if not (FOLDER / f"{name}.txt").exists() or (FOLDER / f"{name}.txt").read_text() != printed(name)
    ]
    if not PAGE.exists() or PAGE.read_text() != page():
        found.append("docs/sites.md")
    home = HOME.read_text(encoding="utf-8")
    if in_page(home) != home:
        found.append("docs/home.md")
    return found


def main(arguments: list[str]) -> int:
    """Write the texts, the pictures and the page, or compare them."""
    parser = argparse.ArgumentParser(prog="python -m docs.worked_sites", description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        found = outdated()
        for path in found:
            print(f"{path} is not as computed: python -m docs.worked_sites")  # noqa: T201
        return 1 if found else 0
    for name in SITES:
        (FOLDER / f"{name}.txt").write_text(printed(name))
        (PICTURES / f"site-{name}.png").write_bytes(picture(name))
    PAGE.write_text(page())
    HOME.write_text(in_page(HOME.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
