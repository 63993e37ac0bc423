"""A name that was changed is read for one release beside the new one, and no longer."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from alerts.rules.rule import Rule, read
from telemetry.text.former_names import FORMER_NAMES, ChangedName, NameKind
from tests.alerts.test_rules import GOOD_RULE
from tui.tables.fields import CIRCUIT_KEYS, GPU_KEYS
from tui.tables.filter import FilterError, parse

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def parts(version: str) -> tuple[int, ...]:
    """Return a version as numbers: 2026.11 is later than 2026.2."""
    return tuple(int(part) for part in version.split("."))


def outlived(rows: tuple[ChangedName, ...], version: str) -> list[str]:
    """Return the former names that a version no longer reads."""
    return [each.former for each in rows if parts(each.release) < parts(version)]


def test_a_former_name_goes_with_the_release_that_changed_it() -> None:
    """A failure at a new number of `pyproject.toml` says: strike these rows, and what reads them is refused."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert outlived(FORMER_NAMES, version[1]) == []


def test_a_name_that_has_outlived_its_release_is_found() -> None:
    rows = (
        ChangedName(NameKind.RULE_KEY, "old", "new", "2026.2"),
        ChangedName(NameKind.RULE_KEY, "older", "new", "2025.12"),
    )
    assert outlived(rows, "2026.1") == ["older"]
    assert outlived(rows, "2026.2") == ["older"]
    assert outlived(rows, "2026.11") == ["old", "older"]


def rule_key(each: ChangedName, folder: Path, log: pytest.LogCaptureFixture) -> None:
    """A file of rules with the former name is the same rules, and the log names place, former name and name."""
    new, old = folder / "new.toml", folder / "old.toml"
    new.write_text(GOOD_RULE)
    assert f"\n{each.name} = " in GOOD_RULE
    old.write_text(GOOD_RULE.replace(f"\n{each.name} = ", f"\n{each.former} = "))
    assert read(new)
    assert log.text == ""
    assert read(old) == read(new)
    assert f"`{each.former}` is `{each.name}` now" in log.text
    assert str(old) in log.text
    assert each.former not in {field.name for field in msgspec.structs.fields(Rule)}


def filter_key(each: ChangedName, folder: Path, log: pytest.LogCaptureFixture) -> None:
    """A filter with the former name is read where one with the name is; no hint offers it."""
    del folder, log
    tables = [keys for keys in (GPU_KEYS, CIRCUIT_KEYS) if each.name in keys]
    assert tables
    column = {each.name: lambda: ["a", "b"]}
    for keys in tables:
        assert each.former not in keys
        assert parse(f"{each.former}=b", keys).mask(column, 2).tolist() == [False, True]
    with pytest.raises(FilterError):
        parse(f"{each.former}=b", ("node",))


PROOFS = {NameKind.RULE_KEY: rule_key, NameKind.FILTER_KEY: filter_key}


@pytest.mark.parametrize("each", FORMER_NAMES, ids=lambda each: each.former)
def test_a_former_name_is_still_read(each: ChangedName, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PROOFS[each.kind](each, tmp_path, caplog)


@pytest.mark.parametrize("each", FORMER_NAMES, ids=lambda each: each.former)
def test_the_page_names_it_below_its_release(each: ChangedName) -> None:
    """`| 2026.11 | key of a rule | owner | remediation |`."""
    row = rf"^\| {re.escape(each.release)} \| {each.kind} \| `{each.former}` \| `{each.name}` \|$"
    assert re.search(row, PAGE, re.MULTILINE)


def test_the_page_names_no_other() -> None:
    assert len(re.findall(r"^\| \d+\.\d+ \|", PAGE, re.MULTILINE)) == len(FORMER_NAMES)
