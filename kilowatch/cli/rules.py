"""`rules` and `replay`: check, test and list rules, and evaluate them over a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import json_option, max_size_option, settings_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json

_file = click.Path(dir_okay=False, path_type=Path)


@click.group()
def rules() -> None:
    """Rules: check and test a file, or list those in force."""


@rules.command()
@click.argument("files", nargs=-1, required=True, type=_file)
def check(files: tuple[Path, ...]) -> None:
    """Check that rule FILES can be loaded with the shipped rules; exit code 64 when not."""
    from alerts.rules.rule import load, read  # noqa: PLC0415 - loads NumPy; keep --help quick

    load(files)
    for file in files:
        found = read(file)
        examples = sum(len(rule.example) for rule in found)
        echo(f"{file}: ok, {len(found)} rules with {examples} examples")
        for rule in found:
            if not rule.example:
                echo(f"  {rule.name} has no example: it is not tested", err=True)


@rules.command()
@click.argument("files", nargs=-1, type=_file)
@click.option("-v", "--verbose", is_flag=True, help="Name every rule.")
def test(files: tuple[Path, ...], verbose: bool) -> None:
    """Play the example timelines of rule FILES, or of the shipped rules.

    Exit code 0: every example holds. 1: one does not. 64: a file is wrong.
    """
    from alerts.engine.rule_tests import failures  # noqa: PLC0415
    from alerts.rules.rule import load, read  # noqa: PLC0415

    found = [rule for file in files for rule in read(file)] if files else list(load())
    wrong = played = 0
    for rule in found:
        bad = failures(rule)
        played += len(rule.example)
        wrong += len(bad)
        if verbose:
            echo(f"{'FAIL' if bad else 'ok  '} {rule.name}, {len(rule.example)} examples")
        for example, got in bad:
            echo(f"{rule.name}: an example does not hold", err=True)
            echo(f"  given {example.given}", err=True)
            echo(f"  then  {example.then}", err=True)
            echo(f"  but   {' '.join(got)}", err=True)
    echo(f"{len(found)} rules, {played} examples, {wrong} do not hold")
    if wrong:
        sys.exit(ExitCode.TICKET)


@rules.command()
@click.argument("files", nargs=-1, type=_file)
@click.option("--runbook", help="Where your runbook is; #anchor is added.")
def prometheus(files: tuple[Path, ...], runbook: str | None) -> None:
    """Print rule FILES, or the shipped rules, as rules for Prometheus.

    A comment at the top lists conditions that PromQL cannot express, and what differs.
    """
    from alerts.rules.rule import load, read  # noqa: PLC0415
    from kilowatch.prometheus import self_alerts as itself  # noqa: PLC0415
    from kilowatch.prometheus.rules import RUNBOOK_URL  # noqa: PLC0415
    from kilowatch.prometheus.text import rule_file  # noqa: PLC0415

    if files:
        load(files)  # beside the shipped ones, which may be named in them
    found = [rule for file in files for rule in read(file) if rule.enabled] if files else load()
    made_by = " ".join(["kilowatch rules prometheus", *map(str, files)])
    more = [] if files else [itself.group(runbook or RUNBOOK_URL)]
    echo(rule_file(found, runbook or RUNBOOK_URL, made_by, more), nl=False)


@rules.command("list")
@address_argument
@json_option
@aggregator_options
def list_rules(as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Show the rules of a running aggregator, with their alerts."""
    from api.alerts import RulesReply  # noqa: PLC0415
    from kilowatch.text import alerts as text  # noqa: PLC0415

    reply = open_api(config, http, token_file).get("/api/v1/rules", RulesReply)
    if as_json:
        print_json(reply)
    else:
        echo("\n".join(text.rule_lines(reply.rules)))


@click.command()
@click.argument("file", type=_file)
@click.option("--rules", "files", multiple=True, type=_file, help="Rule files in addition to the shipped rules.")
@click.option("--only", is_flag=True, help="Without the shipped rules.")
@click.option("--quality", "with_quality", is_flag=True, help="By rule too, as `kilowatch alerts quality`.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with all alerts.")
@max_size_option
@settings_option
def replay(
    file: Path,
    files: tuple[Path, ...],
    only: bool,
    with_quality: bool,
    as_json: bool,
    max_size: int | None,
    config: Path | None,
) -> None:
    """Evaluate a recording (`kilowatch record FILE`): which notifications it comes to, and when.

    Circuits too, where the settings have [power]. Exit code 0: no notification. 1: a ticket.
    2: a page. 3: FILE can't be read.
    """
    from alerts.rules.rule import load  # noqa: PLC0415
    from collector.recording.file import Skipped, read, read_header  # noqa: PLC0415
    from kilowatch.replay.outcome import replay as play  # noqa: PLC0415
    from kilowatch.text import alerts as text  # noqa: PLC0415
    from kilowatch.text.quality import quality_lines  # noqa: PLC0415

    loaded = settings.load(config).aggregator
    chosen = load(files or loaded.rules, shipped=not only)
    read_header(file)
    skipped = Skipped()
    outcome = play(file, read(file, max_size, skipped), chosen, loaded, skipped)
    if as_json:
        print_json(outcome)
    else:
        echo("\n".join(text.replay_lines(outcome)))
        if with_quality:
            echo("\n".join(["", *quality_lines(outcome.quality)]))
    if outcome.pages:
        sys.exit(ExitCode.PAGE)
    sys.exit(ExitCode.TICKET if outcome.tickets else ExitCode.CLEAN)
