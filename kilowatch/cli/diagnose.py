"""`diagnose` and `xid`: faults of GPUs in saved logs, and the meaning of an XID."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch.cli.arguments import json_option, max_size_option
from kilowatch.cli.output import echo, print_json
from telemetry.printable import one_line

if TYPE_CHECKING:
    from alerts.diagnosis.finding import Finding

_COLOURS = {"page": "red", "ticket": "yellow", "info": "cyan", "ignore": "bright_black"}


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, worst first.")
@max_size_option
def diagnose(files: tuple[Path, ...], as_json: bool, max_size: int | None) -> None:
    """Find faults of GPUs in the saved logs of a node.

    FILES are kernel logs (dmesg, journal, /dev/kmsg, syslog), saved `nvidia-smi -q` or `-q -x`, or
    whole nvidia-bug-report.log files, plain or compressed with gzip, bzip2 or xz; `-` is standard input. All count as logs of
    one node, unless their lines name several.

    Exit code 0: nothing above info. 1: a ticket, or a file can't be read to its end. 2: a page.
    """
    from kilowatch.saved_logs import SavedLogReader  # noqa: PLC0415 - keep --help quick

    # No reference cycles are created: searching millions of objects for some would double the time.
    gc.disable()
    try:
        reader = SavedLogReader(max_size)
        for file in files:
            reader.read(file)
        incidents = reader.incidents()
    finally:
        gc.enable()
    for note in (*reader.notes, *reader.faults):
        echo(note, err=True)
    if as_json:
        print_json(incidents)
    else:
        for incident in incidents:
            _show(incident)
        if not incidents:
            part = " in the part that could be read" if reader.faults else ""
            echo(f"no fault of a GPU found{part}")
    code = {"page": 2, "ticket": 1}.get(incidents[0].severity if incidents else "", 0)
    sys.exit(code or (1 if reader.faults else 0))


def _show(incident: Finding) -> None:
    numbers = ", ".join(
        [f"XID {xid}" for xid in incident.xids] + [f"SXid {sxid}" for sxid in incident.sxids]
    )
    where = f" GPU {one_line(incident.gpu)}" if incident.gpu else ""
    often = f" x{incident.count}" if incident.count > 1 else ""
    head = f" {incident.fault}{where}{often}" + (f" ({numbers})" if numbers else "")
    echo(head, mark=f"{incident.severity.upper():6}", fg=_COLOURS[incident.severity])
    if incident.first:
        span = "" if incident.first == incident.last else f" to {incident.last}"
        echo(f"       {one_line(incident.first + span)}")
    echo(f"       {incident.action}")
    echo(f"       > {one_line(incident.line)[:160]}")


@click.command()
@click.argument("number", type=click.IntRange(0, 999999))
@json_option
def xid(number: int, as_json: bool) -> None:
    """Explain XID NUMBER and its remedy; for 144 to 150 a single line is not conclusive."""
    from alerts.xid.catalogue import meaning_of  # noqa: PLC0415

    known = meaning_of(number)
    if as_json:
        print_json(known)
        return
    echo(f"XID {number} {known.name or '(in no catalogue)'}")
    echo(f"  {known.meaning}")
    echo(f"  {known.remedy}")
    echo(f"  alone: {known.severity}   fault: {known.fault}   "
               f"NVIDIA's action: {known.nvidia_action or 'none'}")  # fmt: skip
