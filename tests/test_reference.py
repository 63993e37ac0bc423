"""Reference pages that are made from types: they say what the program takes."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from alerts.notifiers import KINDS
from docs.reference import commands_page, sections, settings_page
from kilowatch import settings
from power.meters.config import TYPES
from telemetry.text.field_texts import field_texts
from telemetry.text.settings import fields_of, structs_in
from tests.test_page_links import anchors

PAGE = settings_page()
_ROW = re.compile(r"^\| `(?P<key>\w+)` \|.*\| `(?P<default>[^|`]+)` \|", re.MULTILINE)


def test_every_setting_has_its_sentence_in_the_source() -> None:
    """Its own, or that of the section that it is."""
    types = {kind for _, kind in sections()} | {*TYPES.values(), *KINDS.values()}
    assert len(types) > 40
    without = [
        f"{kind.__name__}.{field.name}"
        for kind in types
        for field in msgspec.structs.fields(kind)
        if field.name not in field_texts(kind) and not list(structs_in(fields_of(kind)[field.encode_name]))
    ]
    assert sorted(without) == []


def test_every_section_is_a_heading_and_every_link_leads_to_one() -> None:
    targets = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert len(targets) > 25
    assert targets <= anchors(PAGE)


def _defaults() -> list[tuple[str, str, str]]:
    """Return section, key and default as the page shows them; tables of names can't be written so."""
    found = []
    for part in PAGE.split("\n## ")[1:]:
        title = part.splitlines()[0].strip("`[]")
        if "NAME" in title or part.startswith("`[["):
            continue
        section = title if part.startswith("`") else ""
        found += [(section, row["key"], row["default"]) for row in _ROW.finditer(part)]
    return found


@pytest.mark.parametrize(("section", "key", "default"), _defaults())
def test_a_default_written_into_the_file_changes_nothing(tmp_path: Path, section: str, key: str, default: str) -> None:
    if section == "alerts.heartbeat":  # it has to name where it pings
        default += '\nurl = "http://127.0.0.1:1/ping"'
    file = tmp_path / "kilowatch.toml"
    file.write_text(f"[{section}]\n{key} = {default}\n" if section else f"{key} = {default}\n")
    written = settings.shown(settings.load(file, {}))
    section_of = written
    for name in section.split(".") if section else ():
        section_of = section_of[name]
    if section.startswith("power"):  # the electrical part is decoded by itself
        assert section_of[key] is not None
    elif section != "alerts.heartbeat":
        assert written == settings.shown(settings.load(None, {}))
    assert section_of[key] is not None


def test_commands_are_there_with_their_options_and_no_hidden_one() -> None:
    page = commands_page()
    assert {"kilowatch-run", "kilowatch-nodes-retire", "kilowatch-report"} <= anchors(page)
    assert "| `--no-ui` |" in page
    assert "\b" not in page
