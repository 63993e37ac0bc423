"""Run every measurement and rewrite the table of docs/benchmarks.md: `make bench`.

python -m bench [--long] [--only ingest,store]

The short form takes about fifteen minutes, the long form most of an hour. `--only` prints the figures of
the chosen benchmarks and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from bench import page

SHORT = {
    "frames": "bench.frames",
    "collector": "bench.collector --seconds 24",
    "node": "bench.collector --node --windows 1 --seconds 45",
    "check": "bench.check",
    "jobs": "bench.jobs --seconds 40",
    "job_turnover": "bench.job_turnover --minutes 1",
    "asker": "bench.asker",
    "job_year": "bench.job_year",
    "ingest": "bench.ingest --gpus 10000 --seconds 30 --common",
    "ingest_embedded": "bench.ingest --gpus 10000 --seconds 15 --broker embedded",
    "ingest_large": "bench.ingest --gpus 100000 --seconds 40",
    "overload": "bench.ingest --overload --probe-seconds 30 --seconds 60",
    "exposition": "bench.exposition",
    "store": "bench.store --history-gpus 16 --peers",
    "backfill": "bench.backfill --nodes 500 --backlog 300 --seconds 30",
    "circuits": "bench.circuits",
    "rules": "bench.rules",
    "rules_links": "bench.rules --links 18 --ticks 20",
    "rules_peers": "bench.rules --kinds outlier,recurs,drift --links 18 --ticks 40",
    "stragglers": "bench.stragglers",
    "paging": "bench.paging --gpus 10000 --seconds 60",
    "dashboard": "bench.dashboard --nodes 1250 --seconds 20",
    "web": "bench.web",
}
"""Arguments of `python -m` by name of the benchmark."""
LONG = SHORT | {
    "collector": "bench.collector --seconds 240",
    "node": "bench.collector --node --windows 3 --seconds 45",
    "jobs": "bench.jobs --seconds 240",
    "job_turnover": "bench.job_turnover",
    "ingest": "bench.ingest --gpus 10000 --seconds 600 --common",
    "ingest_embedded": "bench.ingest --gpus 10000 --seconds 600 --broker embedded",
    "ingest_large": "bench.ingest --gpus 100000 --seconds 600",
    "overload": "bench.ingest --overload",
    "store": "bench.store --history-gpus 64 --peers",
    "backfill": "bench.backfill --nodes 1250 --backlog 600 --seconds 120",
    "paging": "bench.paging --gpus 10000 --seconds 600",
    "dashboard": "bench.dashboard --nodes 1250 --seconds 300",
    "web": "bench.web --seconds 60",
}


def run(command: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own, so that none inherits another's memory. Lost and doubled
    frames are among its figures. Raises `RuntimeError` when it prints none."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--json"], check=False, capture_output=True, text=True
    )
    if not done.stdout.strip():
        raise RuntimeError(f"python -m {command}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str]) -> int:
    """Run the measurements, print them, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--long", action="store_true", help="as long as the goals ask for")
    parser.add_argument("--only", help="names with commas between; the page stays as it is")
    options = parser.parse_args(arguments)
    commands = LONG if options.long else SHORT
    if options.only:
        commands = {name: commands[name] for name in options.only.split(",")}
    began, found = time.monotonic(), {}
    for name, command in commands.items():
        print(f"python -m {command}", file=sys.stderr, flush=True)
        found[name] = run(command)
    rows = page.rows(commands, found)
    print(page.table(rows))
    if not options.only:
        page.write(rows, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
