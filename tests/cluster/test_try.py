"""The page of the cluster as a stranger types it: one command, one kill, and what is then seen."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster.__main__ import FOLDER, MEMBERS, NODES
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
SECONDS = 200.0


def test_who_kills_a_member_by_the_page_sees_what_the_page_says(tmp_path: Path) -> None:
    """The commands are those of docs/cluster.md, but for the folder and the ports."""
    text = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    kill, again = (re.search(rf"^    ({word} .*agg-b.*)$", text, re.MULTILINE) for word in ("kill", "touch"))
    assert kill is not None
    assert again is not None
    assert str(FOLDER) in kill[1] or FOLDER.parent != Path("/tmp")
    assert "\n    make cluster\n" in text
    assert "-m deploy.cluster" in (ROOT / "Makefile").read_text("utf-8")

    def typed(command: str) -> None:
        subprocess.run(["sh", "-c", command.replace("/tmp/kilowatch-cluster", str(tmp_path / "c"))], check=True)

    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cluster", "--free-ports", "--folder", tmp_path / "c"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("files")):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate(timeout=60)
        found = re.findall(r"^(agg-\w) +http://(127.0.0.1:\d+)/$", "".join(lines), re.MULTILINE)
        at = dict(found)
        assert tuple(at) == MEMBERS

        def nodes(member: str = "agg-a") -> Any:
            with urllib.request.urlopen(f"http://{at[member]}/api/v1/nodes", timeout=15) as answer:
                return json.load(answer)

        def nodes_of_jobs(member: str) -> set[str]:
            with urllib.request.urlopen(f"http://{at[member]}/api/v1/jobs", timeout=15) as answer:
                return {node for row in json.load(answer)["jobs"] for node in row["nodes"]}

        def states(member: str = "agg-a") -> list[str]:
            return [each["state"] for each in nodes(member)["nodes"]]

        said: set[str] = set()

        def is_said_everywhere() -> bool:
            """Look at all places at once: its groups are soon taken over."""
            with urllib.request.urlopen(f"http://{at['agg-a']}/", timeout=15) as page:
                said.update({"page"} if "no answer: agg-b" in page.read().decode() else ())
                said.update({"header"} if "agg-b" in (page.headers["Kilowatch-Missing"] or "") else ())
            missing = nodes()["missing"]
            said.update({"API"} if any(re.fullmatch(r"agg-b: \d+ groups", each) for each in missing) else ())
            return said == {"page", "header", "API"}

        typed(kill[1])
        wait_until(is_said_everywhere, "agg-b is missing", SECONDS)
        assert len(states()) == len(NODES)
        wait_until(lambda: not nodes()["missing"] and set(states()) == {"online"}, "the others have its nodes", SECONDS)
        typed(again[1])
        wait_until(lambda: "agg-b" in _serving(at), "it is back", SECONDS)
        wait_until(lambda: len(states("agg-b")) == len(NODES), "it shows all", SECONDS)
        wait_until(lambda: nodes_of_jobs("agg-b") == set(NODES), "and the jobs of all", SECONDS)
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)
    assert process.returncode == 0, output


def _serving(at: dict[str, str]) -> list[str]:
    """Return the members that answer."""
    found = []
    for name, address in at.items():
        try:
            with urllib.request.urlopen(f"http://{address}/healthz", timeout=5):
                found.append(name)
        except OSError:
            continue
    return found
