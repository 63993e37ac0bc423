"""docs/diagnose.md: its files give the answers that it shows, and its table names each format."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs/diagnose.md").read_text()
FILES = {
    name: re.sub(r"^    ", "", block, flags=re.MULTILINE)
    for name, block in re.findall(r"^`([\w.]+)`, [^\n]*:\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
}
RUNS = re.findall(r"    \$ kilowatch (.+)\n((?:    (?!\$).*\n)+)    \$ echo \$\?\n    (\d+)\n", PAGE)


@pytest.mark.parametrize(("command", "shown", "code"), RUNS, ids=[run[0] for run in RUNS])
def test_an_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, shown: str, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(main, shlex.split(command))
    assert result.exit_code == int(code)
    expected = [line.removeprefix("    ") for line in shown.rstrip("\n").split("\n")]
    printed = result.stdout.rstrip("\n").split("\n")
    assert len(printed) == len(expected), result.stdout
    for line, wanted in zip(printed, expected, strict=True):
        if wanted.endswith("..."):
            assert line.startswith(wanted.removesuffix("...").rstrip())
        else:
            assert line == wanted


def test_the_page_has_examples_of_all_answers() -> None:
    assert sorted(FILES) == ["boot.txt", "dmesg.txt", "nvlink.txt"]
    assert {code for _, _, code in RUNS} == {"0", "2", "3"}
