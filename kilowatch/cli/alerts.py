"""`alerts`, `ack`, `silence`, `notify`: incidents, acknowledgements, silences, channels."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

import click
import msgspec

from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import DurationParam, json_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json


def _login() -> str:
    """Return the login name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return "unknown"


who_option = click.option(
    "--who", default=_login, show_default="your login name", help="A name beside that of the token."
)


class _AlertsGroup(click.Group):
    """`kilowatch alerts` without a command lists the incidents, as it always has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` where the first argument is no command."""
        if not args or (args[0] not in self.commands and args[0] not in {"-h", "--help"}):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_AlertsGroup)
def alerts() -> None:
    """Open incidents, worst first, the evidence of one, and how good the alerts are.

    Without a command: `list`, with its options.
    """


@alerts.command("show")
@click.argument("key")
@address_argument
@json_option
@aggregator_options
def show(key: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Show the evidence of an incident: its lines, readings, earlier faults, remedy and commands.

    KEY is its key, the first characters of it, or the key of one of its alerts; `kilowatch alerts`
    shows them. The evidence of one that ended more than an hour ago is found by its whole key.
    """
    from alerts.message.evidence_text import evidence_lines  # noqa: PLC0415
    from api.evidence import EvidenceReply  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415

    api = open_api(config, http, token_file)
    reply = api.get(f"/api/v1/incidents/{part(key)}/evidence", EvidenceReply)
    if as_json:
        print_json(reply)
        return
    for line in evidence_lines(reply):
        echo(line)


@alerts.command("list")
@address_argument
@click.option("--all", "everything", is_flag=True, help="Each alert: pending, suppressed and resolved ones too.")
@click.option(
    "--history",
    type=DurationParam(),
    is_flag=False,
    flag_value=7 * 86_400.0,
    metavar="[DURATION]",
    help="Incidents of the last week, or of DURATION, resolved ones too.",
)
@click.option("--node", help="Only alerts of this node.")
@click.option("--severity", type=click.Choice(["page", "ticket", "info"]), help="Only alerts of this severity.")
@json_option
@aggregator_options
def list_alerts(
    everything: bool,
    history: float | None,
    node: str | None,
    severity: str | None,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Show open incidents, worst first. ADDRESS is the aggregator's.

    Exit code 0: the aggregator answered. 3: it can't be reached, or refuses. 64: a wrong option.
    """
    from api.alerts import AlertsReply, IncidentsReply, SilencesReply  # noqa: PLC0415
    from kilowatch.text import alerts as text  # noqa: PLC0415 - loads NumPy; keep --help quick

    api = open_api(config, http, token_file)
    asked = {"node": node, "severity": severity}
    if everything:
        found = api.get("/api/v1/alerts", AlertsReply, **asked)
        lines = text.alert_lines(found.alerts, found.at)
        reply: msgspec.Struct = found
    else:
        since = None if history is None else f"-{history:.0f}"
        ours = api.get("/api/v1/incidents", IncidentsReply, **asked, **{"from": since})
        lines = list(text.incident_lines(ours.incidents, ours.at))
        reply = ours
    if as_json:
        print_json(reply)
        return
    for line in lines:
        word = line.split(" ", 1)[0].lower()
        known = {severity.value: colour for severity, colour in text.COLOURS.items()}
        echo(line, fg=known.get(word))
    if not lines:
        echo("no open incident")
    silenced = api.get("/api/v1/silences", SilencesReply)
    for line in text.silenced_lines(silenced.silences, silenced.at):
        echo(line, fg="yellow")


@alerts.command("quality")
@address_argument
@click.option(
    "--since",
    type=DurationParam(),
    default=30 * 86_400.0,
    show_default="30d",
    metavar="DURATION",
    help="Of the last 30d, 12h.",
)
@click.option("--suggest", is_flag=True, help="Changes of rules that would have avoided what was marked as false.")
@json_option
@aggregator_options
def show_quality(
    since: float, suggest: bool, as_json: bool, config: Path | None, http: str | None, token_file: Path | None
) -> None:
    """Show by rule what was sent, and what people made of it.

    Pages and tickets, how fast they were acknowledged, how many resolved by themselves within five
    minutes, were silenced, flapped, or were marked as false (`kilowatch ack KEY --false`).
    """
    from api.quality import QualityReply, SuggestionsReply  # noqa: PLC0415
    from kilowatch.text import quality as text  # noqa: PLC0415

    api = open_api(config, http, token_file)
    asked = {"from": f"-{since:.0f}"}
    if suggest:
        found = api.get("/api/v1/alerts/quality/suggestions", SuggestionsReply, **asked)
        lines, reply = text.suggestion_lines(found.suggestions), found
    else:
        ours = api.get("/api/v1/alerts/quality", QualityReply, **asked)
        lines, reply = text.quality_lines(ours), ours  # type: ignore[assignment]  # either is shown
    if as_json:
        print_json(reply)
    else:
        echo("\n".join(lines))


@click.command()
@click.argument("key")
@address_argument
@click.option("--why", default="", help="Reason, for others.")
@who_option
@click.option("--for", "seconds", type=DurationParam(), help="End after this time. [default: when it is resolved]")
@click.option(
    "--false", "false", is_flag=True, help="Mark what was sent of it as false, with --why; also when it is over."
)
@click.option("--end", is_flag=True, help="Remove the acknowledgement; with --false, the mark.")
@json_option
@aggregator_options
def ack(
    key: str,
    why: str,
    who: str,
    seconds: float | None,
    false: bool,
    end: bool,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Acknowledge an incident: reminders stop until it grows worse.

    KEY is its key, the first characters of it, or the key of one of its alerts; `kilowatch alerts`
    shows them.
    """
    from api.alerts import AckRequest, EndRequest, IncidentReply  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415

    api = open_api(config, http, token_file)
    path = f"/api/v1/incidents/{part(key)}/ack"
    if false and not end and not why:
        raise click.UsageError("Why is it false? Write --why, for those who change the rule.")
    if end:
        done = EndRequest(who=who, why=why or "no longer needed", false=false)
        reply = api.delete(path, IncidentReply, done)
    else:
        given = AckRequest(who=who, why=why, duration=seconds, false=false)
        reply = api.post(path, given, IncidentReply)
    if as_json:
        print_json(reply)
        return
    note = reply.incident.acknowledged
    if false:
        mark = reply.incident.false
        word = "mark removed:" if mark is None else f"marked as false by {mark.who}:"
        _print(f"{word} {reply.incident.key}: {reply.incident.title}", reply.saved)
        return
    word = f"acknowledged by {note.who}:" if note else "acknowledgement removed:"
    _print(f"{word} {reply.incident.key}: {reply.incident.title}", reply.saved)


@click.command()
@click.argument("matchers", nargs=-1, metavar="[LABEL=VALUE]...")
@click.option("--for", "seconds", type=DurationParam(), help="How long: 30m, 2h, 1d.")
@click.option("--from", "starts", help="When it begins: 2026-12-01T08:00:00Z. [default: now]")
@click.option("--until", help="When it ends, instead of --for.")
@click.option("--why", default="", help="Reason, for others; required.")
@who_option
@click.option("--maintenance", is_flag=True, help="A planned window: alerts in it open no incident.")
@click.option("--list", "listed", is_flag=True, help="Show silences.")
@click.option("--end", "ended", metavar="ID", help="End a silence now.")
@json_option
@aggregator_options
def silence(
    matchers: tuple[str, ...],
    seconds: float | None,
    starts: str | None,
    until: str | None,
    why: str,
    who: str,
    maintenance: bool,
    listed: bool,
    ended: str | None,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Suppress notifications of alerts that match all of LABEL=VALUE, for a while.

    node=dgx-01, rule=~"gpu_.*", severity!=page; labels are rule, node, severity, subject, name, and
    those of alerts: gpu, uuid, serial, rack, circuits, job. With --maintenance they open no incident
    at all, also for two minutes after the window.
    """
    from api.alerts import EndRequest, SilenceReply, SilenceRequest, SilencesReply  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415
    from kilowatch.text import alerts as text  # noqa: PLC0415

    api = open_api(config, http, token_file)
    if listed:
        every = api.get("/api/v1/silences", SilencesReply)
        if as_json:
            print_json(every)
        else:
            echo("\n".join(text.silence_lines(every.silences, every.at)))
        return
    if ended is not None:
        done = EndRequest(who=who, why=why or "no longer needed")
        reply = api.delete(f"/api/v1/silences/{part(ended)}", SilenceReply, done)
    else:
        if not matchers:
            raise click.UsageError("Of which alerts? Write node=dgx-01, or --list, or --end ID.")
        if seconds is None and until is None:
            raise click.UsageError("For how long? Write --for 2h.")
        asked = SilenceRequest(
            matchers=matchers, who=who, why=why, starts=starts, ends=until, duration=seconds, maintenance=maintenance
        )
        reply = api.post("/api/v1/silences", asked, SilenceReply)
    if as_json:
        print_json(reply)
        return
    echo("\n".join(text.silence_lines([reply.silence], reply.at)))
    _print("", reply.saved)


@click.group()
def notify() -> None:
    """Notification channels: their state, and a test message."""


@notify.command("list")
@address_argument
@click.option("--deliveries", is_flag=True, help="Deliveries of the last day, newest first.")
@json_option
@aggregator_options
def list_channels(
    deliveries: bool, as_json: bool, config: Path | None, http: str | None, token_file: Path | None
) -> None:
    """Show channels with waiting and failed deliveries."""
    from api.alerts import ChannelsReply, DeliveriesReply  # noqa: PLC0415
    from kilowatch.text import alerts as text  # noqa: PLC0415

    api = open_api(config, http, token_file)
    if deliveries:
        sent = api.get("/api/v1/deliveries", DeliveriesReply, **{"from": "-1d", "limit": 100})
        lines, reply = text.delivery_lines(sent.deliveries, sent.at), sent
    else:
        found = api.get("/api/v1/channels", ChannelsReply)
        lines, reply = text.channel_lines(found.channels, found.at), found  # type: ignore[assignment]  # either is shown
    if as_json:
        print_json(reply)
    else:
        echo("\n".join(lines) or "nothing was sent")


@notify.command("test")
@click.argument("channel")
@address_argument
@json_option
@aggregator_options
def try_channel(channel: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Send a test message to CHANNEL now, through the running aggregator.

    Exit code 0: delivered. 1: not delivered; the reason is printed. 3: no aggregator answers.
    """
    from alerts.message.text import clean  # noqa: PLC0415
    from api.alerts import TestReply  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415

    api = open_api(config, http, token_file)
    reply = api.post(f"/api/v1/channels/{part(channel)}/test", {}, TestReply)
    if as_json:
        print_json(reply)
    elif reply.delivered:
        echo(f"{channel}: delivered after {reply.seconds:.2f} s")
    else:
        echo(f"{channel}: not delivered: {clean(reply.error)}", err=True)
    sys.exit(ExitCode.CLEAN if reply.delivered else ExitCode.TICKET)


def _print(line: str, saved: bool) -> None:
    from alerts.message.text import clean  # noqa: PLC0415

    if line:
        echo(clean(line))
    if not saved:
        echo("In force, but the journal can't be written now: a crash would lose it.", err=True)
