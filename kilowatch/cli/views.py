"""`kilowatch top`: the dashboard on a running aggregator."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("url", default="http://127.0.0.1:9400")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it asks for one.",
)
def top(url: str, token_file: Path | None) -> None:
    """Show a running cluster live. URL is the aggregator's. [default: http://127.0.0.1:9400]"""
    from tui.top import run_top  # noqa: PLC0415 - Textual takes a while to load

    if "://" not in url:
        url = f"http://{url}"
    run_top(url, token_file.read_text().strip() if token_file else None)
