"""Time of `kilowatch check --quick` on six kinds of nodes.

    python -m bench.check [--runs 3] [--json]

The command as it is installed, each run a process of its own, on trees of /sys, /proc and /etc of a DGX H100, an HGX with
RoCE, a tray of an NVL72, a desktop, a storage node and a head node; GPUs are those of a compiled stand-in of libnvidia-ml.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.collector import NODE_FILES
from bench.report import show
from tests.collector import node_trees
from tests.collector.network_tree import Tree
from tests.fake_nvml import FakeDriver

KINDS: dict[str, Callable[[Path], Tree]] = {
    "dgx_h100": node_trees.dgx, "hgx_roce": node_trees.hgx, "gb200_tray": node_trees.gb200_tray,
    "desktop": node_trees.desktop, "storage": node_trees.storage, "head": node_trees.head,
}  # fmt: skip


class CheckRun(NamedTuple):
    """A run of the command."""

    seconds: float
    code: int
    reply: dict[str, Any]


def check_of(kind: str, folder: Path) -> Callable[[], CheckRun]:
    """Make a node of a kind in a folder, and return what checks it once."""
    tree = KINDS[kind](folder / "tree")
    files = {name: text for name, text in NODE_FILES.items() if not (tree.root / name).exists()}
    node_trees.put(tree.root, files)
    environment = dict(os.environ)
    if tree.gpus:
        environment |= FakeDriver(folder / "driver", gpus=len(tree.gpus)).environment
    settings = folder / "kilowatch.toml"
    settings.write_text(
        f'[collector]\nnode = "{kind}"\nhost_root = "{tree.root}"\nkernel_log = "none"\n'
        f'state_dir = "{folder / "state"}"\n'
    )
    command = [sys.executable, "-m", "kilowatch", "check", "--quick", "--json", "--config", str(settings)]

    def run() -> CheckRun:
        began = time.monotonic()
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        seconds = time.monotonic() - began
        if not done.stdout.strip():
            raise RuntimeError(f"kilowatch check: {done.stderr[-2000:]}")
        return CheckRun(seconds, done.returncode, json.loads(done.stdout))

    return run


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            run = check_of(kind, Path(folder))
            found[f"{kind}_seconds"] = median(run().seconds for _ in range(options.runs))
    found["slowest_seconds"] = max(found.values())
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
