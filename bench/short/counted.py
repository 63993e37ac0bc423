"""Instructions of a part of the work, counted by valgrind.

    python -m bench.short.counted rules FOLDER      does the work, in three processes of its own

A virtual machine has no counters of its own, and its CPU seconds differ by a tenth from run to run. valgrind's `exp-bbv`
counts the instructions of each process. One process prepares; it then forks one that makes all stimuli and only
does the first steps' work, and two that do all of it. The differences are the work of the last steps alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

from bench.short.parts import PARTS, CountedWork

ALL, FIRST = True, False
ORDER = (FIRST, ALL, ALL)
_TOTAL = re.compile(rb"#   Total instructions: (\d+)")


class Count(NamedTuple):
    """Instructions of one step."""

    mean: float
    spread: float
    """Difference of the two processes over their mean."""


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which a tree's code runs the same way each time."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    fixed = {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1"}
    return kept | fixed


def count(part: str, tree: Path, folder: Path) -> Count:
    """Count a part's instructions with the code of a tree. Raises `RuntimeError` where its work is not done."""
    folder.mkdir(parents=True)
    work = folder / "work"
    work.mkdir()
    command = [*valgrind(folder), sys.executable, "-m", "bench.short.counted", part, str(work)]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=tree,
        env={**environment(tree), **PARTS[part].environment(folder)},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise RuntimeError(last[0])
    first, *every = (instructions(folder / f"{pid}.log") for pid in json.loads(done.stdout))
    found = [(one - first) / PARTS[part].steps for one in every]
    mean = sum(found) / len(found)
    return Count(mean, (max(found) - min(found)) / mean)


def valgrind(folder: Path) -> list[str]:
    """Return the words before a command whose instructions are to be counted, into `PID.log` of a folder."""
    return [
        "valgrind", "--tool=exp-bbv", "--instr-count-only=yes", "--vgdb=no",
        f"--bb-out-file={folder}/%p.bb", f"--log-file={folder}/%p.log",
    ]  # fmt: skip


def instructions(log: Path) -> int:
    """Return the instructions of all threads of a process."""
    return sum(map(int, _TOTAL.findall(log.read_bytes())))


def do(subject: CountedWork, warm: int, steps: int, *, whole: bool) -> None:
    """Do the work of the first steps, or of all."""
    for step in range(warm + steps):
        if step == warm:
            gc.collect()
            gc.freeze()  # what a collection of all costs then depends on the work alone
        given = subject.stimulus(step)
        if whole or step < warm:
            subject.work(given)


def main(arguments: list[str]) -> int:
    """Do a part's work, and print the ids of the processes that did it."""
    parser = argparse.ArgumentParser(prog="python -m bench.short.counted", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path, help="an empty one")
    parser.add_argument("--nodes", type=int, help="[as many as the ratchet counts]")
    options = parser.parse_args(arguments)
    part = PARTS[options.part]
    subject = part.prepare(options.folder, options.nodes or part.nodes, part.warm + part.steps)
    pids = []
    for whole in ORDER:
        pid = os.fork()
        if not pid:
            code = 0
            try:
                do(subject, part.warm, part.steps, whole=whole)
            except BaseException:  # noqa: BLE001 - this process must not go on as the other
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        if os.waitpid(pid, 0)[1]:
            return 1
        pids.append(pid)
    print(json.dumps(pids))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
