"""Each claim of docs/security.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def names_in(path: Path) -> set[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_every_named_test_exists() -> None:
    missing = [
        f"{file}::{name}"
        for file, name in NAMED
        if not (ROOT / file).is_file() or name not in names_in(ROOT / file)
    ]
    assert not missing, "\n".join(missing)
    assert len(NAMED) > 40


def test_every_section_that_defends_names_a_test() -> None:
    """Sections but the model itself, which the sections after it are about."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    bare = [text.splitlines()[0] for text in sections if "::test_" not in text]
    assert not bare


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    """A table that says another number than the code is worse than none."""
    from collector.recording import file, recorder
    from collector.smi import document
    from kilowatch.replay import player
    from telemetry import expansion

    assert expansion.MAX_SIZE == 1024**3
    assert (expansion.MAX_RATIO, expansion.FREE_BYTES >> 20) == (200, 64)
    assert (expansion.MAX_MEMBERS, expansion._XZ_MEMORY >> 20) == (65_536, 256)
    assert (document.MAX_DEPTH, document.MAX_GPUS_OF_A_LOG, document.MAX_VALUES) == (16, 256, 8192)
    assert (file.MAX_RECORDING >> 30, file._MOST_BLOCK_BYTES >> 20) == (64, 8)
    assert (file._MOST_IN_BLOCK, recorder.MAX_SIZE >> 30) == (65_536, 16)
    assert (player.LONGEST_SILENCE, player.MOST_SILENCE, player.SETTLE_SECONDS) == (900, 3600, 30)
