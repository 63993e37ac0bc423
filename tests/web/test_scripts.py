"""The scripts of the pages: small, and their types hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aggregator.web.frame import SCRIPTS, THEME, static_files
from tests.web import npm_packages

CONFIG = npm_packages.LOCKED / "tsconfig.json"
COMMENT = re.compile(r"\s*/\*\*.*?\*/|(?:^|\s+)//[^\n]*", re.DOTALL)


def test_the_scripts_of_a_page_are_small() -> None:
    """Without their comments: types and reasons are for who reads them, and no reason to write less."""
    bodies = [static_files()[name][0].decode() for name in (*SCRIPTS, THEME)]
    assert sum(len(COMMENT.sub("", body)) for body in bodies) <= 18_000, "readable as they are"


def checked(config: Path) -> tuple[int, str]:
    """Return how the type checker ends over the scripts that a configuration names, and what it prints."""
    command: list[str | Path] = [npm_packages.node_modules() / ".bin" / "tsc", "--pretty", "false", "-p", config]
    found = subprocess.run(command, cwd=config.parent, capture_output=True, text=True, timeout=300, check=False)
    return found.returncode, found.stdout + found.stderr


@npm_packages.needed
@pytest.mark.systems
def test_the_types_of_the_scripts_hold() -> None:
    assert checked(CONFIG) == (0, "")


@npm_packages.needed
@pytest.mark.systems
def test_a_wrong_type_in_a_script_is_found(tmp_path: Path) -> None:
    """Each in a script of its own: a number that is a word, an element that may not be there, data that no chart has."""
    shutil.copy(npm_packages.LOCKED / "markup.d.ts", tmp_path)
    wrong = {
        "number.js": '/** @param {number} seconds */\nconst words = (seconds) => seconds.toFixed(1);\nwords("10");\n',
        "null.js": 'document.querySelector("main").focus();\n',
        "chart.js": 'Math.abs(document.querySelector("figure.chart svg[data-points]")?.dataset.stop);\n',
    }
    for name, script in wrong.items():
        (tmp_path / name).write_text(script)
    config = {"extends": str(CONFIG), "include": ["."]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    status, words = checked(tmp_path / "tsconfig.json")
    assert status != 0
    found = re.findall(r"^([a-z]+\.js)\(\d+,\d+\): error (TS\d+)", words, re.MULTILINE)
    assert found == [("chart.js", "TS2345"), ("null.js", "TS2531"), ("number.js", "TS2345")]
