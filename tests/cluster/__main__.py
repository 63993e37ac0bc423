"""The long form of the failure matrix: random faults of a whole cluster; rewrites docs/cluster-faults.md.

Each fault is said on standard error as it begins. With the same seed the same faults come in the same order.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shlex
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.campaign import FAULTS, CampaignResult, run
from tests.cluster.hall import hall_in

PAGE = Path(__file__).parents[2] / "docs" / "cluster-faults.md"
HEAD = """# Faults of a cluster

Three nats-servers and three members on loopback, real collectors, and a generator whose nodes have rings of their
own, {gpus:,} GPUs in all. Random faults follow each other, a third of them while another one lasts. Some of them come as a breaker over all
members begins to carry 129 %. What must hold after all of them, or the run fails:

- each frame that a node published, (node, session, number), is answered by every member, once: nothing is lost, and
  nothing stored or answered twice;
- each breaker was paged; once, or twice under one key where the page was in flight as its sender died, and then it says so.

`make cluster-faults` writes this page. `pytest -m systems tests/cluster/test_rows.py` makes each fault once, in an
order, and looks at more of what must hold: who owns what, under which epoch, and who pages under which key."""


def main() -> int:
    """Run, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="how many [200]")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds of a fault at most [20]")
    parser.add_argument("--gpus", type=int, default=10_000, help="GPUs that are simulated, about [10000]")
    parser.add_argument(
        "--breakers", type=int, default=40, help="how many are overloaded, each once; three nodes each [40]"
    )
    parser.add_argument("--seed", type=int, default=19, help="[19]")
    parser.add_argument("--no-page", action="store_true", help="leave docs/cluster-faults.md as it is")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="kilowatch-faults-") as folder,
        hall_in(Path(folder), feeds=options.breakers, gpus=options.gpus) as hall,
    ):
        gpus = sum(hall.rack.gpus.values()) + 8 * len(hall.loop.nodes)
        say(f"{gpus} GPUs")
        result = run(hall, options.faults, random.Random(options.seed), say, options.longest)
    text = page(result, gpus, f"python -m tests.cluster {shlex.join(sys.argv[1:])}".strip())
    print(text)
    if not options.no_page:
        PAGE.write_text(text, "utf-8")
    return 0


def page(result: CampaignResult, gpus: int, command: str) -> str:
    """Return the page about a run."""
    faults = sum(tally.times for tally in result.tallies.values())
    rows = []
    for what, row in {fault.what: fault.row for fault in FAULTS}.items():
        tally = result.tallies.get(what)
        if tally is None:
            rows.append(f"| {row} | {what} | 0 | | | |")
            continue
        slowest = f"{tally.slowest:.1f}" if tally.overloads else ""
        rows.append(
            f"| {row} | {what} | {tally.times} | {tally.seconds / tally.times:.1f} | {tally.overloads} | {slowest} |"
        )
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return "\n".join(
        [
            HEAD.format(gpus=gpus), "",
            f"Last run: {time.strftime('%Y-%m-%d')}, {machine}; {faults} faults in {result.seconds / 60:.0f} minutes.", "",
            f"Command: `{command}`", "",
            f"**{result.frames:,} frames of {result.nodes} nodes: each answered once by each of three members. "
            f"{result.pages} breakers overloaded, {result.pages} paged, {result.again} of them twice, in flight as "
            "their sender died.**", "",
            "Seconds until a page count from the first frame with the overload, and go on while the fault lasts.", "",
            "| row | fault | times | seconds, mean | breakers overloaded | slowest page, s |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows, "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
