"""The pictures of the README were drawn from the sources that they show: each carries their stamp."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import end
from docs.screens import PICTURES, SHOWN, stamp, stamp_of, stamped
from tests.kit.night import NIGHT

ROOT = Path(__file__).resolve().parents[1]
README = [ROOT / name for name in re.findall(r"!\[[^]]*\]\(([^)]+\.png)\)", (ROOT / "README.md").read_text())]


def test_the_readme_shows_a_terminal_and_a_web_page_each_with_its_stamp() -> None:
    assert [path.name.partition("-")[0] for path in README] == ["top", "web"]
    assert all(re.fullmatch("[0-9a-f]{64}", stamp_of(path.read_bytes())) for path in README)


@pytest.mark.nightly
@pytest.mark.skipif(NIGHT not in os.environ, reason="by night: a picture may be drawn after some changes")
@pytest.mark.parametrize("path", README, ids=lambda path: path.name)
def test_a_picture_shows_these_sources(path: Path) -> None:
    drawn = stamp_of(path.read_bytes())
    assert drawn == stamp(path.name), f"{path.name} is older than its sources: make screens, and look at it"


def test_another_source_is_another_stamp(tmp_path: Path) -> None:
    for folder in {folder for folders in SHOWN.values() for folder in folders}:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("a = 1\n")
    before = {kind: stamp(f"{kind}-lab.png", tmp_path) for kind in SHOWN}
    (tmp_path / "tui" / "a.py").write_text("a = 2\n")
    assert stamp("top-lab.png", tmp_path) != before["top"]
    assert stamp("web-lab.png", tmp_path) == before["web"]


def test_a_stamp_leaves_the_picture_as_it_is() -> None:
    picture = next(PICTURES.glob("site-*.png")).read_bytes()
    assert stamp_of(picture) == ""
    marked = stamped(picture, "0af")
    assert stamp_of(marked) == "0af"
    assert (marked[: len(picture) - 12], marked[-12:]) == (picture[:-12], picture[-12:])


def test_a_demo_that_does_not_end_is_killed_so_that_its_pictures_are_kept() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end(process, 0.1)
        assert process.returncode == -signal.SIGKILL
