"""`diagnose` and `xid`: faults of GPUs in saved logs, and the meaning of an XID."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch.cli.arguments import json_option, print_json

if TYPE_CHECKING:
    from alerts.diagnosis.finding import Finding

_COLOURS = {"page": "red", "ticket": "yellow", "info": "cyan", "ignore": "bright_black"}


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, worst first.")
def diagnose(files: tuple[Path, ...], as_json: bool) -> None:
    """Find faults of GPUs in the saved logs of a node.

    FILES are kernel logs (dmesg, journal, /dev/kmsg, syslog), saved `nvidia-smi -q` or `-q -x`, or
    whole nvidia-bug-report.log files, plain or compressed with gzip, bzip2 or xz; `-` is standard input. All count as logs of
    one node, unless their lines name several.

    Exit code 0: nothing above info. 1: a ticket, or a file can't be read. 2: a page.
    """
    from kilowatch.saved_logs import SavedLogReader  # noqa: PLC0415 - keep --help quick

    # No reference cycles are created: searching millions of objects for some would double the time.
    gc.disable()
    try:
        reader = SavedLogReader()
        for file in files:
            reader.read(file)
        incidents = reader.incidents()
    finally:
        gc.enable()
    for note in reader.notes:
        click.echo(note, err=True)
    if as_json:
        print_json(incidents)
    else:
        click.echo("\n".join(_lines(incidents)) or "no fault of a GPU found")
    sys.exit({"page": 2, "ticket": 1}.get(incidents[0].severity if incidents else "", 0))


def _lines(incidents: list[Finding]) -> Iterator[str]:
    for incident in incidents:
        mark = click.style(f"{incident.severity.upper():6}", fg=_COLOURS[incident.severity])
        numbers = ", ".join(
            [f"XID {xid}" for xid in incident.xids] + [f"SXid {sxid}" for sxid in incident.sxids]
        )
        where = f" GPU {incident.gpu}" if incident.gpu else ""
        often = f" x{incident.count}" if incident.count > 1 else ""
        yield f"{mark} {incident.fault}{where}{often}" + (f" ({numbers})" if numbers else "")
        if incident.first:
            span = "" if incident.first == incident.last else f" to {incident.last}"
            yield f"       {incident.first}{span}"
        yield f"       {incident.action}"
        yield f"       > {' '.join(incident.line.split())[:160]}"


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
    click.echo(f"XID {number} {known.name or '(in no catalogue)'}")
    click.echo(f"  {known.meaning}")
    click.echo(f"  {known.remedy}")
    click.echo(f"  alone: {known.severity}   fault: {known.fault}   "
               f"NVIDIA's action: {known.nvidia_action or 'none'}")  # fmt: skip
