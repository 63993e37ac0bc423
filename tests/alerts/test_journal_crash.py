"""kill -9 at 100 random points of alerts' lives: nothing is missed, nothing is notified twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

KILLS = 100


def told(folder: Path) -> tuple[set[tuple[str, str]], Counter[str], list[str]]:
    """Return what was notified (action and incident), how often each notice was sent, and those that
    were sent again though the journal had them as delivered."""
    what: set[tuple[str, str]] = set()
    sends: Counter[str] = Counter()
    done: set[str] = set()
    wrong = []
    for line in (folder / "sent").read_text().splitlines():
        word, number, *rest = line.split()
        if word == "done":
            done.add(number)
            continue
        if number in done:
            wrong.append(number)
        sends[number] += 1
        what.add((rest[0], rest[1]))
    return what, sends, wrong


def test_a_hundred_kills_change_nothing_of_what_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.alerts.crash_victim", str(tmp_path), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= KILLS
    expected, sends, wrong = told(tmp_path / "whole")
    assert wrong == []
    assert set(sends.values()) == {1}
    assert sum(action == "trigger" for action, _ in expected) > 20
    assert {key for action, key in expected if action == "trigger"} == {
        key for action, key in expected if action == "resolve"
    }
    rounds = sorted(tmp_path.glob("killed-*"))
    twice = 0
    for folder in rounds:
        what, sends, wrong = told(folder)
        assert what == expected
        assert wrong == []
        twice += sum(sends.values()) - len(sends)
    assert twice <= KILLS // 4, f"{twice} sent twice: so many kills can't have hit that gap"
