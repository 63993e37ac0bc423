"""docs/exit-codes.md holds for every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode, worst_code

PAGE = (Path(__file__).parents[2] / "docs/exit-codes.md").read_text()
CODES = {int(code): name for code, name in re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)}
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
MEANINGS = {
    name: {ExitCode(code): text for code, text in enumerate(row[1:]) if text}
    for row in ROWS
    for name in re.findall(r"`([^`]+)`", row[0])
}
XID_79 = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"
XID_63 = "[12.5] NVRM: Xid (PCI:0000:18:00): 63, Row Remapper: New row marked for remapping.\n"


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name)


def test_the_table_has_every_command_and_every_code() -> None:
    """A new command needs a row in docs/exit-codes.md."""
    assert {" ".join(words) for words in leaves(main)} == set(MEANINGS)
    assert {code.name.lower(): code.value for code in ExitCode} == {name: code for code, name in CODES.items()}


def test_a_reader_that_ends_is_no_ticket() -> None:
    """As in `kilowatch diagnose | head`: click's own code would be 1."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kilowatch", "xid", "79"], stdout=write, stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (ExitCode.PIPE, b"")


@pytest.mark.parametrize("words", list(leaves(main)), ids=" ".join)
def test_a_mistyped_option_is_64_for_every_command(words: tuple[str, ...]) -> None:
    """And never click's own 2, which is a page."""
    result = CliRunner().invoke(main, [*words, "--no-such-option"])
    assert result.exit_code == ExitCode.USAGE, result.output
    helped = CliRunner().invoke(main, [*words, "--help"])
    assert helped.exit_code == ExitCode.CLEAN


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status", "127.0.0.1:1"], 3),
        (["alerts", "--http", "127.0.0.1:1"], 3),
        (["ack", "abc", "--http", "127.0.0.1:1"], 3),
        (["silence", "node=a", "--for", "1h", "--why", "x", "--http", "127.0.0.1:1"], 3),
        (["notify", "list", "--http", "127.0.0.1:1"], 3),
        (["notify", "test", "a", "--http", "127.0.0.1:1"], 3),
        (["rules", "list", "--http", "127.0.0.1:1"], 3),
        (["forget", "a", "--http", "127.0.0.1:1"], 3),
        (["circuits", "--http", "127.0.0.1:1"], 3),
        (["rules", "check"], 64),
        (["rules", "test", "{wrong}"], 1),
        (["rules", "check", "{rubbish}"], 64),
        (["config", "check", "--config", "{rubbish}"], 64),
        (["replay", "{rubbish}"], 3),
        (["verify", "{rubbish}"], 3),
        (["verify", "{damaged}"], 1),
        (["diagnose", "{page}"], 2),
        (["diagnose", "{ticket}"], 1),
        (["diagnose", "{rubbish}"], 3),
        (["diagnose", "{nothing}"], 3),
        (["diagnose", "{page}", "{rubbish}"], 2),
        (["diagnose", "{ticket}", "{rubbish}"], 1),
        (["xid", "79"], 0),
        (["xid", "977"], 3),
        (["nope"], 64),
        (["--version"], 0),
        ([], 64),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_end_as_the_table_says(tmp_path: Path, arguments: list[str], code: int) -> None:
    files = {name: tmp_path / name for name in ("page", "ticket", "rubbish", "nothing", "damaged")}
    files["wrong"] = tmp_path / "wrong.toml"
    files["page"].write_text(XID_79)
    files["ticket"].write_text(XID_63)
    files["rubbish"].write_text("hello\n")
    files["damaged"].write_text("hello\n")
    (tmp_path / "damaged.sha256").write_text("0" * 64 + "  damaged\n")
    files["wrong"].write_text(
        '[[rule]]\nname = "hot"\nwhen = { type = "above", metric = "gpu_temperature_celsius", level = 70 }\n'
        'severity = "page"\nsummary = "{where} is hot"\ndescription = "Cool it."\ncauses = "Heat."\n'
        'steps = ["Cool it."]\nrunbook = "hot"\nremediation = "facility"\n'
        '[[rule.example]]\nevery = 60\ngiven = "75 75"\nthen = "- -"\n'
    )
    result = CliRunner().invoke(main, [each.format(**files) for each in arguments])
    assert result.exit_code == code, result.output
    words = " ".join(arguments)
    known = next((name for name in MEANINGS if words.startswith(name)), None)
    if known is not None and code in {0, 1, 2, 3}:
        assert ExitCode(code) in MEANINGS[known], f"docs/exit-codes.md: no {code} of {known}"


def test_a_fault_of_a_command_itself_is_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own exit code of a traceback is 1."""

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("alerts.xid.catalogue.meaning_of", fails)
    result = CliRunner().invoke(main, ["xid", "79"])
    assert result.exit_code == ExitCode.UNJUDGED
    assert "a fault of ours" in result.stderr

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alerts.xid.catalogue.meaning_of", stopped)
    assert CliRunner().invoke(main, ["xid", "79"]).exit_code == ExitCode.INTERRUPTED


def test_what_a_command_meets_outside_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can't be read, a disk that is full: no traceback of the program that met it."""

    def fails(*_: object) -> None:
        Path("/dev/full").write_text("x")

    monkeypatch.setattr("alerts.xid.catalogue.meaning_of", fails)
    result = CliRunner().invoke(main, ["xid", "79"])
    assert result.exit_code == ExitCode.UNJUDGED
    assert re.fullmatch(r"Error: OSError: .*No space left on device \(.*\)\n", result.stderr)


def test_the_worst_that_is_known_counts() -> None:
    clean, ticket, page, unjudged = list(ExitCode)[:4]
    assert worst_code() is clean
    assert worst_code(clean, unjudged) is unjudged
    assert worst_code(unjudged, ticket) is ticket
    assert worst_code(ticket, page, unjudged) is page
