"""`diagnose` and `xid`: what a saved log or a number says about the health of GPUs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from alerts.diagnosis.finding import Finding

_COLOURS = {"page": "red", "ticket": "yellow", "info": "cyan", "ignore": "bright_black"}


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, worst first.")
def diagnose(files: tuple[Path, ...], as_json: bool) -> None:
    """Say what is wrong with the GPUs of a node, from what was saved of it.

    FILES are kernel logs (dmesg, journal, /dev/kmsg, syslog), saved `nvidia-smi -q` or `-q -x`, or
    whole nvidia-bug-report.log files, as they are or packed with gzip, bzip2 or xz; `-` is standard input. All are taken as of
    one node, unless their lines name several.

    Exit code 0: nothing above info. 1: a ticket, or a file can't be read. 2: a page.
    """
    from kilowatch.saved_logs.reader import SavedLogReader  # noqa: PLC0415 - keep --help quick

    # Values without circles: looking for some among millions would be half of the work.
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
        click.echo(msgspec.json.format(msgspec.json.encode(incidents)).decode())
    else:
        click.echo(
            "\n".join(_lines(incidents)) or "nothing is wrong with a GPU, as far as this says"
        )
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
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def xid(number: int, as_json: bool) -> None:
    """Say what XID NUMBER means and what to do; a single line of it decides nothing for 144-150."""
    from alerts.xid.catalogue import meaning_of  # noqa: PLC0415

    known = meaning_of(number)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(known)).decode())
        return
    click.echo(f"XID {number} {known.name or '(in no catalogue)'}")
    click.echo(f"  {known.meaning}")
    click.echo(f"  {known.remedy}")
    click.echo(f"  alone: {known.severity}   fault: {known.fault}   "
               f"NVIDIA's action: {known.nvidia_action or 'none'}")  # fmt: skip
