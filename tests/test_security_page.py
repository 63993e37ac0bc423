"""Each claim of docs/security.md names a test that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_named_test_exists() -> None:
    missing = [
        f"{file}::{name}" for file, name in NAMED if not (ROOT / file).is_file() or name not in names_in(ROOT / file)
    ]
    assert not missing, "\n".join(missing)
    assert len(NAMED) > 40


REFERENCE = re.compile(r"\((?:`tests/[\w/]+\.py::\w+`(?:,? ?(?:is the same in short|for [\w ]+)?\.?\s*)?)+\)")
MOST_SENTENCES = 2
"""Sentences between two tests: more are more claims than the test behind them can try."""
EXEMPT = ("|", "Five kinds of peers", "The million of ", "**Files given to commands**")
"""Beginnings of paragraphs that claim nothing of their own: tables, what introduces one, and figures with their command."""
SENTENCE = re.compile(r"[.:] (?=[A-Z*`])")


def claims() -> Iterator[tuple[str, list[str]]]:
    """Yield each paragraph of the sections but what is `*Not defended*`, with what stands before each test and behind
    the last."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        for paragraph in re.split(r"\n\s*\n", body.strip()):
            text = " ".join(paragraph.split())
            for each in re.split(r"(?=\*Not defended\*)", text):
                if each and not each.startswith(("*Not defended*", *EXEMPT)):
                    parts = [part.strip(" .,;:") for part in REFERENCE.split(each)]
                    yield f"{title}: {each[:60]}", parts


def test_every_claim_is_followed_by_its_test() -> None:
    """What is said last in a paragraph is tried too: a sentence behind the last test has none."""
    found = list(claims())
    assert len(found) >= 20
    bare = [f"{where} ... {parts[-1][-80:]}" for where, parts in found if parts[-1]]
    assert not bare, "\n".join(bare)


def test_no_test_stands_for_many_sentences() -> None:
    crowded = [
        f"{where} ... {part}"
        for where, parts in claims()
        for part in parts
        if len(SENTENCE.split(part)) > MOST_SENTENCES
    ]
    assert not crowded, "\n".join(crowded)


def test_every_row_of_a_table_of_bounds_names_its_test() -> None:
    """The other table is the model, which the sections are about."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    heads = [at for at, line in enumerate(rows) if line.startswith("| --- ")]
    assert [rows[at - 1] for at in heads] == [
        "| peer | trusted with | not trusted with |",
        "| file | bound | more | tried by |",
    ]
    bounds = rows[heads[1] + 1 :]
    assert len(bounds) >= 9
    assert not [row for row in bounds if "::test_" not in row.split(" | ")[-1]]


def test_every_section_that_defends_names_a_test() -> None:
    """Sections but the model itself, which the sections after it are about."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    bare = [text.splitlines()[0] for text in sections if "::test_" not in text]
    assert not bare


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    """A table that says another number than the code is worse than none."""
    from alerts.diagnosis import burst
    from collector.commands import recorder
    from collector.recording import file
    from collector.smi import document
    from collector.smi import file as smi_file
    from kilowatch.replay import player
    from kilowatch.saved_logs import archive
    from telemetry.files import expansion

    assert expansion.MAX_SIZE == 1024**3
    assert (expansion.MAX_RATIO, expansion.FREE_BYTES >> 20) == (200, 64)
    assert (expansion.MAX_MEMBERS, expansion._XZ_MEMORY >> 20) == (65_536, 256)
    assert (document.MAX_DEPTH, document.MAX_GPUS_OF_A_LOG, document.MAX_VALUES) == (16, 256, 8192)
    assert (smi_file.MAX_BYTES >> 20, burst.MOST_BURSTS, archive.MAX_FILES) == (64, 50_000, 10_000)
    assert (file.MAX_RECORDING >> 30, file._MOST_BLOCK_BYTES >> 20) == (64, 8)
    assert (file._MOST_IN_BLOCK, recorder.MAX_SIZE >> 30) == (65_536, 16)
    assert (player.LONGEST_SILENCE, player.MOST_SILENCE, player.SETTLE_SECONDS) == (900, 3600, 30)
