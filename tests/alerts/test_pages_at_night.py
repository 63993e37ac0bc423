"""Thirty pages, read by somebody who was asleep: docs/pages_at_night.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages_at_night import pages_at_night
from tests.alerts.test_rules import IMPERATIVES

DOCS = Path(__file__).parents[2] / "docs" / "pages_at_night.md"
PAGES = dict(
    re.findall(r"^## ([^\n]+)\n\n```text\n(.*?)\n```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
LONGEST = 240
"""Characters of a command that a person still reads."""


def test_the_pages_are_those_that_are_sent() -> None:
    assert pages_at_night() == DOCS.read_text(encoding="utf-8")


def test_there_are_thirty_of_every_kind() -> None:
    assert len(PAGES) == 30
    whole = "\n".join(PAGES.values())
    for kind in (
        "\nCircuit: ",
        "\nUPS: ",
        "\nSupply: ",
        "\nBudget: ",
        "\nNode: ",
        "\nGPU: ",
        "\nLink: ",
        "\nPart: ",
        "\nShared: ",
        "[PAGE] 8 GPUs of dgx-07 ",
        "more alike on 3 nodes)",
    ):
        assert kind in whole, kind


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_is_read_by_somebody_who_was_asleep(page: str) -> None:
    title, act, owner, meaning, *rest = page.splitlines()
    assert re.fullmatch(r"\[PAGE\] .+, since \d\d:\d\d UTC", title)
    assert re.fullmatch(r".+[.?]", act), "a sentence"
    assert act.split()[0].rstrip(",") in IMPERATIVES, "and no field"
    assert owner.startswith("Owner: ")
    assert meaning.startswith("Meaning: ")
    assert "unknown" not in page
    assert not re.search(r"^(Value|Limit): (yes|no)?$", page, re.MULTILINE)
    commands = [line for line in rest if ": kilowatch " in line]
    assert commands
    assert all(len(line) <= LONGEST for line in commands)
