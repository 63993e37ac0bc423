"""The ratchet: what this tree costs beside a stored commit. `make bench-short`, and a part of `make nightly`.

    python -m bench.short [--base COMMIT] [--write]
    python -m bench.short rules store-commit       some parts alone

Pure parts are counted in instructions (`bench.short.counted`). Whole processes run in both trees at the same time, side
by side, in CPU seconds and memory, so that whatever slows the machine slows both. It ends with 1 where a
part costs more than 1.05 times the instructions, or 1.1 times the CPU seconds or memory, that it did at
the commit, cannot be compared, or differs too much from round to round to tell; unless `marks.toml` has
a row with the decision that says why. Both trees are run by this tree's `bench` and `tests`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import page
from bench.report import flat
from bench.short import judge
from bench.short.counted import count, environment
from bench.short.judge import COUNTED, CPU, MEMORY, Measured
from bench.short.parts import PARTS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "short"
OURS = ("bench", "tests")
"""Packages of this tree that run both."""
BEGIN, END = "<!-- written by python -m bench.short --write -->", "<!-- end of the ratchet -->"
PATIENCE = 400
"""Seconds that a process of a round may take."""


class Figure(NamedTuple):
    """A figure of a whole process."""

    part: str
    unit: str
    limit: float
    name: str
    """Dotted name in what the bench prints."""


class Paired(NamedTuple):
    """A bench that is run in both trees at the same time."""

    command: str
    figures: tuple[Figure, ...]
    rounds: int
    most_rounds: int


def _ingest(gpus: int, rounds: int) -> Paired:
    return Paired(
        f"bench.ingest --gpus {gpus} --seconds 25",
        (
            Figure(f"ingest-{gpus}", "CPU s a million values", CPU, "aggregator_cpu_seconds_per_million_values"),
            Figure(f"ingest-{gpus}-memory", "MiB, peak", MEMORY, "processes.aggregator.peak_rss_mib"),
        ),
        rounds,
        rounds + 2,
    )


PAIRED = (
    _ingest(20_000, 3),
    _ingest(60_000, 3),
    Paired("bench.short.collector", (Figure("collector-memory", "MiB, PSS", MEMORY, "pss_mib"),), 2, 3),
    Paired(
        "bench.dashboard --nodes 250 --seconds 15",
        (
            Figure("dashboard-tick", "CPU ms a second", CPU, "cpu_ms_per_second"),
            Figure("dashboard-memory", "MB", MEMORY, "rss_megabytes"),
        ),
        2,
        4,
    ),
)
NAMES = (*PARTS, *(figure.part for paired in PAIRED for figure in paired.figures))
"""Lines of the table."""


def tree_of(commit: str, place: Path = FOLDER) -> Path:
    """Return a folder in `place` with a commit's files, and this tree's `bench` and `tests`. Raises `SystemExit`."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    if found.returncode:
        raise SystemExit(f"bench.short: {commit} is no commit here: git fetch origin {commit}")
    folder = place / found.stdout.strip()
    if not folder.exists():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as unfinished:
            new = Path(unfinished) / "tree"
            new.mkdir()
            archive = subprocess.run(["git", "archive", folder.name], check=True, capture_output=True, cwd=ROOT)
            subprocess.run(["tar", "-x"], check=True, input=archive.stdout, cwd=new)
            for name in OURS:
                shutil.rmtree(new / name)
                (new / name).symlink_to(ROOT / name)
            new.rename(folder)
    return folder


def counted(part: str, trees: Mapping[str, Path], place: Path) -> Measured:
    """Count a part's instructions in both trees at the same time: another process adds none."""
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(count, part, tree, place / f"{name}-{part}") for name, tree in trees.items()}
    found, problems = {}, []
    for name, one in running.items():
        try:
            found[name] = one.result()
        except RuntimeError as error:
            problems.append(f"{name}: {error}")
    unit = f"instructions {PARTS[part].unit}"
    if problems:
        return Measured(part, unit, COUNTED, problem="; ".join(problems))
    base, now = found["base"], found["now"]
    return Measured(part, unit, COUNTED, [base.mean], [now.mean], base.spread + now.spread)


def paired(bench: Paired, trees: Mapping[str, Path]) -> list[Measured]:
    """Run a bench in both trees side by side, until the rounds agree."""
    rounds: dict[str, list[Mapping[str, Any]]] = {name: [] for name in trees}
    for number in range(bench.most_rounds):
        order = list(trees) if number % 2 else list(trees)[::-1]
        running = {name: _start(bench.command, trees[name]) for name in order}
        problems = []
        for name, process in running.items():
            try:
                figures, problem = _finish(process)
            except BaseException:
                for each in running.values():
                    each.send_signal(signal.SIGINT)  # so that it ends its own processes
                raise
            rounds[name].append(figures)
            problem = problem or "; ".join(
                f"it prints no {one.name}" for one in bench.figures if one.name not in figures
            )
            problems += [f"{name}: {problem}"] if problem else []
        if problems:
            return [Measured(one.part, one.unit, one.limit, problem="; ".join(problems)) for one in bench.figures]
        found = [
            Measured(
                one.part,
                one.unit,
                one.limit,
                base=[figures[one.name] for figures in rounds["base"]],
                now=[figures[one.name] for figures in rounds["now"]],
                least=one.part.endswith("-memory"),
            )
            for one in bench.figures
        ]
        for one in found:
            print(f"  round {number + 1}, {one.part}: {one.now[-1] / one.base[-1]:.3f}", file=sys.stderr, flush=True)
        if number + 1 >= bench.rounds and all(one.uncertainty < one.limit - 1 for one in found):
            break
    return found


def _start(command: str, tree: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command.split(), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tree, env=environment(tree),
    )  # fmt: skip


def _finish(process: subprocess.Popen[str]) -> tuple[Mapping[str, Any], str]:
    """Return the figures that a process has printed, and what is wrong with it."""
    try:
        printed, complaints = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.communicate()
        return {}, f"no end within {PATIENCE} s"
    lines = printed.splitlines()
    if process.returncode or not lines:
        last = complaints.strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
        return {}, last[0]
    return flat(json.loads(lines[-1])), ""


def measure(trees: Mapping[str, Path], chosen: Sequence[str]) -> list[Measured]:
    """Measure the chosen parts, all where none is named."""
    found = []
    with tempfile.TemporaryDirectory(prefix="kilowatch-bench-") as place:
        for part in PARTS:
            if not chosen or part in chosen:
                found.append(counted(part, trees, Path(place)))
                _tell(found[-1])
    for bench in PAIRED:
        if not chosen or any(one.part in chosen for one in bench.figures):
            found += paired(bench, trees)
            for one in found[-len(bench.figures) :]:
                _tell(one)
    return found


def _tell(one: Measured) -> None:
    print(f"{one.part}: {one.problem or f'{one.ratio:.3f}'}", file=sys.stderr, flush=True)


def write(table: str, base: str, seconds: float) -> None:
    """Replace the table in docs/benchmarks.md."""
    before, rest = page.FILE.read_text().split(BEGIN)
    body = f"Against {base[:8]}, in {seconds / 60:.0f} minutes, on {page.machine()}\n\n{table}"
    page.FILE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{rest.split(END)[1]}")


def main(arguments: list[str]) -> int:
    """Measure, print, and return 1 where something is worse."""
    marks = judge.load()
    parser = argparse.ArgumentParser(
        prog="python -m bench.short", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--base", default=marks.commit, help="a commit. [that of marks.toml]")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(NAMES)} [all]")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(NAMES):
        parser.error(f"no part is called {', '.join(unknown)}: {', '.join(NAMES)}")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed, which counts instructions: sh deploy/packages.sh")
    began = time.monotonic()
    base = tree_of(options.base)
    rows = judge.judged(measure({"base": base, "now": ROOT}, options.parts), marks)
    table = judge.table(rows)
    bad = [row.measured.part for row in rows if row.verdict.bad]
    print(table)
    print(f"\nbench.short: {'FAILED: ' + ', '.join(bad) if bad else 'passed'}, against {base.name}")
    if options.write:
        write(table, base.name, time.monotonic() - began)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
