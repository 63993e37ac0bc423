"""docs/peers.md is true about kilowatch: each row leads to what shows it, and its commands and options are there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from kilowatch.__main__ import main
from kilowatch.recovery.config import StepKind
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table

PAGE = (Path(__file__).resolve().parents[1] / "docs/peers.md").read_text()
ABOUT_US = {"what kilowatch has of it", "shown by", "what"}
"""Heads of columns that say something of kilowatch."""
_COMMAND = re.compile(r"`kilowatch ([^`]+)`")


def rows() -> list[tuple[str, str]]:
    """Return each row's first cell, and its cells about kilowatch."""
    found = []
    heads: list[str] = []
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heads:
            heads = cells
        elif not set(line) <= set("|- "):
            ours = " ".join(cell for head, cell in zip(heads, cells, strict=True) if head in ABOUT_US)
            if ABOUT_US & set(heads):
                found.append((cells[0], ours))
    return found


def test_the_page_says_since_when_it_is_true_and_has_all_its_tables() -> None:
    assert re.search(r"Of kilowatch: as of \d+ \w+ 20\d\d", PAGE)
    assert len(rows()) == 11 + 6 + 5


@pytest.mark.parametrize(("first", "ours"), rows(), ids=lambda cell: cell[:30])
def test_each_row_about_kilowatch_leads_to_the_page_or_command_that_shows_it(first: str, ours: str) -> None:
    """Whether a page and its heading are there is held for all links in `test_page_links`."""
    assert re.search(r"\]\([\w/-]+\.md(#[\w-]+)?\)", ours) or _COMMAND.search(ours), first


@pytest.mark.parametrize("words", sorted(set(_COMMAND.findall(PAGE))))
def test_each_command_and_option_that_the_page_names_is_there(words: str) -> None:
    command: click.Command = main
    for word in words.split():
        if word.startswith("-"):
            assert word in {name for each in command.params for name in each.opts}, words
            continue
        assert isinstance(command, click.Group), words
        found = command.get_command(click.Context(command), word)
        assert found is not None, words
        command = found


def test_what_the_page_says_of_recovery_mig_and_makers_is_what_there_is() -> None:
    """The page once said that kilowatch never cordons or drains, and that MIG instances are an advantage of others."""
    assert {"drain", "reset", "reboot", "uncordon"} <= {each.value for each in StepKind}
    assert "It never cordons" not in PAGE
    assert any(metric.table is Table.INSTANCE for metric in BY_NAME.values())
    assert "readings of each MIG instance" not in PAGE
