"""The documentation site: what `mkdocs build` (strict) does not see, and what is quicker without it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kilowatch.__main__ import main
from tests.test_page_links import anchors

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MENU = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
START = ("index", "home", "lab", "deploy", "troubles")
NEEDS = ("home", "lab", "deploy", "packages", "troubles", "web", "dashboard", "alerts", "runbook", "power", "index")
"""Pages to which the README leads, in the order of a reader's needs; the last link is for who changes it."""
_COMMAND = re.compile(r"(?:^ {4}|`)(?:\S*/)?(kilowatch [a-z][^`\n#|>]*)", re.MULTILINE)


def test_every_page_is_in_the_menu_once() -> None:
    assert sorted(MENU) == sorted([*(page.name for page in DOCS.glob("*.md")), "decisions/README.md"])


def test_no_page_of_the_site_leads_out_of_it() -> None:
    """A file of the repository is named as code: the site does not have it."""
    pages = [*DOCS.glob("*.md"), *DOCS.glob("decisions/*.md")]
    out = [
        (page.name, link)
        for page in pages
        for link in re.findall(r"\]\((?![a-z]+:)([^()\s#]+)", page.read_text())
        if not (page.parent / link).resolve().is_relative_to(DOCS)
    ]
    assert out == []


def test_every_start_page_is_reached_from_the_first() -> None:
    first = (DOCS / "index.md").read_text()
    assert [name for name in START[1:] if f"]({name}.md)" not in first] == []
    assert all(anchors((DOCS / f"{name}.md").read_text()) for name in START)


def test_the_first_page_leads_to_every_page_of_the_menu() -> None:
    first = (DOCS / "index.md").read_text()
    assert [page for page in MENU if page != "index.md" and f"]({page})" not in first] == []


def test_the_readme_ends_with_twelve_links_in_the_order_of_a_readers_needs() -> None:
    more = (ROOT / "README.md").read_text().partition("\n## More\n")[2]
    pages = [f"docs/{name}.md" for name in NEEDS]
    assert re.findall(r"\]\(([^)]+)\)", more) == [*pages, "CONTRIBUTING.md"]


@pytest.mark.parametrize("name", START)
def test_the_commands_of_a_start_page_have_these_options(name: str) -> None:
    """As they are written: the command, its subcommand, and each of its options."""
    written = _COMMAND.findall((DOCS / f"{name}.md").read_text())
    assert written
    faults = [line for line in written if not _exists(shlex.split(line)[1:])]
    assert faults == []


def _exists(words: list[str]) -> bool:
    command: click.Command | None = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words.pop(0))
    if command is None:
        return False
    known = {option for each in command.params for option in each.opts} | {"--help"}
    return all(word.partition("=")[0] in known for word in words if word.startswith("--"))


def test_a_command_that_is_not_there_is_found() -> None:
    assert _exists(shlex.split("init --cluster lab --broker b n1"))
    assert not _exists(["inti"])
    assert not _exists(["init", "--clutser", "lab"])


def test_the_site_has_the_colours_of_the_web_pages_and_shows_both_faces_first() -> None:
    """A copy of the tokens would grow apart."""
    assert (DOCS / "style" / "tokens.css").samefile(ROOT / "aggregator/web/static/tokens.css")
    first = (DOCS / "index.md").read_text().partition("## ")[0]
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", first)
    readme = re.findall(r"\]\(docs/(pictures/[^)]+)\)", (ROOT / "README.md").read_text())
    assert pictures == readme[:2]
    colours = set(re.findall(r"#[0-9a-f]{3,8}\b", (DOCS / "style" / "site.css").read_text()))
    assert colours == set()
