"""`diagnose` and `xid`: faults of GPUs in saved logs, and the meaning of an XID."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch.cli.arguments import json_option, max_size_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from telemetry.text import counted
from telemetry.text.printable import one_line

if TYPE_CHECKING:
    from alerts.diagnosis.finding import Finding, FindingGpu
    from kilowatch.saved_logs.reader import FileAnswer

_COLOURS = {"page": "red", "ticket": "yellow", "info": "cyan", "ignore": "bright_black"}


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, worst first, with the evidence.")
@click.option("--evidence", is_flag=True, help="With the whole evidence card of each finding.")
@max_size_option
def diagnose(files: tuple[Path, ...], as_json: bool, evidence: bool, max_size: int | None) -> None:
    """Find faults of GPUs in saved logs of nodes.

    FILES are kernel logs (dmesg, journal, /dev/kmsg, syslog), output of nvidia-smi, `dcgmi diag -j` or
    `dcgmi health`, fabricmanager.log, whole nvidia-bug-report.log files, folders or archives (tar,
    zip) of them, plain or compressed with gzip, bzip2 or xz; `-` is standard input. All count as logs
    of one node, unless they name several. docs/diagnose.md lists what each format can prove.

    Exit code 0: no fault in what the files show. 1: a ticket. 2: a page. 3: a file, or a part of one,
    could not be judged.
    """
    from kilowatch.saved_logs.reader import SavedLogReader  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.finding import short_lines, whole_lines  # noqa: PLC0415

    # No reference cycles are created: searching millions of objects for some would double the time.
    gc.disable()
    try:
        reader = SavedLogReader(max_size)
        for file in files:
            reader.read(file)
        reply = reader.reply()
    finally:
        gc.enable()
    if as_json:
        print_json(reply)
    else:
        for finding in reply.findings:
            _show(finding)
            for line in (whole_lines if evidence else short_lines)(finding):
                echo(f"       {line}")
    alike: Counter[str] = Counter()
    for report in reply.files:
        for problem in report.problems:
            alike[problem] += 1
            if alike[problem] <= _SHOWN_FILES:
                echo(f"{report.file}: could not judge: {problem}", err=as_json)
        beside = {name: answer for name, answer in report.subsystems.items() if name != "GPU driver"}
        if not as_json and set(beside.values()) - {"clean"}:
            _show_subsystems(report)
        if not as_json and report.shows:
            _show_proof(report)
    for problem, count in alike.items():
        if count > _SHOWN_FILES:
            more = counted(count - _SHOWN_FILES, "more file")
            echo(f"{more}: could not judge: {problem}", err=as_json)
    sys.exit(_CODES[reply.answer])


_CODES = {
    "clean": ExitCode.CLEAN,
    "ticket": ExitCode.TICKET,
    "page": ExitCode.PAGE,
    "could not judge": ExitCode.UNJUDGED,
}


def _show(finding: Finding) -> None:
    numbers = ", ".join(
        [f"XID {xid}" for xid in finding.xids]
        + [f"SXid {sxid}" for sxid in finding.sxids]
        + [f"{code.unit} {code.action}" for code in finding.sub_codes[:4]]
        + ([f"link {', '.join(map(str, finding.links[:18]))}"] if finding.links else [])
    )
    where = f" {one_line(finding.node)}" if finding.node else ""
    where += ",".join(f" GPU {_named(gpu)}" for gpu in finding.gpus[:16])
    often = f" x{finding.count}" if finding.count > 1 else ""
    where += f" {one_line(finding.unit)}" if finding.unit else ""
    head = f" {finding.fault}{where}{often}" + (f" ({numbers})" if numbers else "")
    echo(head, mark=f"{finding.severity.upper():6}", fg=_COLOURS[finding.severity])
    if finding.first:
        span = "" if finding.first == finding.last else f" to {finding.last}"
        echo(f"       {one_line(finding.first + span)}")
    echo(f"       {finding.action}")
    for line in (finding.lines or [finding.line])[:_SHOWN_LINES]:
        echo(f"       > {one_line(line)[:160]}")
    if finding.rule:
        echo(f"       rule {finding.rule}, in docs/runbook.md")


_SHOWN_LINES = 4
_SHOWN_FILES = 4
"""Files with the same problem that are named; a folder may have thousands."""


def _named(gpu: FindingGpu) -> str:
    """Return the name of a GPU by all that is known of it: `3 0000:18:00.0 GPU-... serial 165...`."""
    parts = [
        "" if gpu.index is None else str(gpu.index),
        gpu.pci or "",
        gpu.uuid or "",
        f"serial {gpu.serial}" if gpu.serial else "",
        gpu.slot or "",
    ]
    return one_line(" ".join(part for part in parts if part)) or "(unnamed)"


def _show_subsystems(file: FileAnswer) -> None:
    """Print what a kernel log says of each part of the node: `storage: fault; network: clean`."""
    by_answer: dict[str, list[str]] = {}
    for name, answer in file.subsystems.items():
        by_answer.setdefault(answer, []).append(name)
    texts = [
        f"{answer}: {', '.join(by_answer[answer])}" for answer in ("fault", "can't say", "clean") if answer in by_answer
    ]
    echo(f"{file.file}: {'; '.join(texts)}.")


def _show_proof(file: FileAnswer) -> None:
    """Print what a file proves to be well, and what it does not show."""
    lacks = f" It does not show: {'; '.join(file.lacks)}." if file.lacks else ""
    what = "the rest of what it shows" if file.answer in {"page", "ticket"} else "what it shows"
    echo(f"{file.file}: no fault found in {what}: {'; '.join(file.shows)}.{lacks}")


@click.command()
@click.argument("number", type=click.IntRange(0, 999999))
@json_option
def xid(number: int, as_json: bool) -> None:
    """Explain XID NUMBER and its remedy; for 144 to 150 a single line is not conclusive.

    Exit code 0: it is in the catalogue. 3: it is not.
    """
    from alerts.xid.catalogue import meaning_of  # noqa: PLC0415

    known = meaning_of(number)
    if as_json:
        print_json(known)
        sys.exit(ExitCode.CLEAN if known.name else ExitCode.UNJUDGED)
    echo(f"XID {number} {known.name or '(in no catalogue)'}")
    echo(f"  {known.meaning}")
    echo(f"  {known.remedy}")
    echo(f"  alone: {known.severity}   fault: {known.fault}   NVIDIA's action: {known.nvidia_action or 'none'}")
    sys.exit(ExitCode.CLEAN if known.name else ExitCode.UNJUDGED)
