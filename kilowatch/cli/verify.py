"""`kilowatch verify`: are the sealed files as they were written?"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from aggregator.store.checksum import SIDECAR, FileState
from aggregator.store.checksum import verify as verify_file
from kilowatch import settings
from kilowatch.cli.arguments import json_option, settings_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from telemetry.errors import StoreError
from telemetry.text import counted

TEXTS = {
    FileState.DAMAGED: "its bytes have changed since it was written",
    FileState.GONE: "it is gone; its checksum is still here",
    FileState.UNPROVEN: "no checksum: a release before 2026.2 wrote it, or another program",
}


@click.command()
@settings_option
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the aggregator's data; else aggregator.data_dir.",
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def verify(config: Path | None, data: Path | None, files: tuple[Path, ...], as_json: bool) -> None:
    """Verify sealed files by the checksum that each carries; all of the store, or FILES.

    Reads only, and may run beside the aggregator. Exit code 1: a file is damaged or gone. 3: one
    has no checksum, so that nothing proves it.
    """
    paths = list(files)
    if not paths:
        folder = data or settings.load(config).aggregator.data_dir
        paths = sealed_in(folder)
    states: dict[Path, FileState] = {}
    for path in paths:
        try:
            states[path] = verify_file(path)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}. Run this as the aggregator's user.") from error
    counts = Counter(states.values())
    bad = counts[FileState.DAMAGED] + counts[FileState.GONE]
    if as_json:
        print_json({str(path): state.value for path, state in states.items()})
    else:
        for path, state in states.items():
            if state is not FileState.GOOD:
                echo(f"{state.value:8}  {path}: {TEXTS[state]}")
        echo(
            f"{counted(len(states), 'file')}: {counts[FileState.GOOD]:,} good, "
            f"{counts[FileState.DAMAGED]:,} damaged, {counts[FileState.GONE]:,} gone, "
            f"{counts[FileState.UNPROVEN]:,} without a checksum"
        )
        if bad:
            echo(
                "Queries leave these files out and say which windows are incomplete. Put them back "
                "from a copy and restart the aggregator; look at the disk (SMART, dmesg)."
            )
    if bad:
        sys.exit(ExitCode.TICKET)
    if counts[FileState.UNPROVEN]:
        sys.exit(ExitCode.UNJUDGED)


def sealed_in(folder: Path) -> list[Path]:
    """Return the sealed files below a data folder, also those of which only the sidecar is left."""
    found: set[Path] = set()
    for top in [folder / "sealed", *sorted(folder.glob("rollup_*"))]:
        found.update(top.glob("*/*.parquet"))
        found.update(path.with_name(path.name.removesuffix(SIDECAR)) for path in top.glob(f"*/*.parquet{SIDECAR}"))
    return sorted(found)
