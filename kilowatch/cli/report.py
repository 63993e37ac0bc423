"""`kilowatch report`: a cluster described for comparison with another."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from api.bill import MonthBill
from api.report import Report
from api.use import BY, UseReply
from kilowatch.cli.aggregator import NEAREST, address_argument, ca_option, home, web_address
from kilowatch.cli.power import read_site
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.output import echo, print_json
from kilowatch.text.bill import bill_html, bill_lines
from kilowatch.text.report import cheaper, report_lines
from kilowatch.text.use import use_csv, use_html, use_lines
from power.report.cluster_parts import parts_of
from power.report.report import describe, times_cheaper


@click.command()
@address_argument
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A configured cluster: TOML file with nodes, at the top or in a [power] section.",
)
@click.option("--http", metavar="HOST:PORT", help=f"The same as ADDRESS. [default: {NEAREST}]")
@click.option("--compare", metavar="FILE|HOST:PORT", help="Another cluster to compare with.")
@click.option(
    "--days",
    type=click.IntRange(1, 400),
    default=30,
    show_default=True,
    help="Of a running cluster: measured days, up to today.",
)
@click.option(
    "--month",
    metavar="YYYY-MM",
    help="The bill of a month of a running cluster, by the hour's price; `now` for the present one.",
)
@click.option("--by", type=click.Choice(BY), help="With --month: who used the GPUs in it, by user, account or job.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --month, also with --by: write one self-contained page to this file.",
)
@click.option("--csv", "as_csv", is_flag=True, help="With --by: as CSV, energy in joules; what is not known is empty.")
@ca_option
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it requires one.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, by name.")
def report(
    config: Path | None,
    http: str | None,
    compare: str | None,
    days: int,
    month: str | None,
    by: str | None,
    html: Path | None,
    as_csv: bool,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Describe a cluster: GPUs, memory, power, price, and comparisons. ADDRESS is the aggregator's
    of a running one."""
    if config is not None and http is not None:
        raise click.UsageError("Give --config or --http, and the other one to --compare.")
    if month is not None:
        if config is not None or compare is not None:
            raise click.UsageError("--month is of a running cluster: give its ADDRESS, without --config and --compare.")
        if by is not None:
            if as_csv and as_json:
                raise click.UsageError("Give --csv or --json.")
            _show_use(http or home(), month, by, read_token(token_file), html=html, as_csv=as_csv, as_json=as_json)
            return
        if as_csv:
            raise click.UsageError("--csv is of who used the GPUs: give --by user, account or job.")
        _show_bill(http or home(), month, read_token(token_file), html=html, as_json=as_json)
        return
    if by is not None:
        raise click.UsageError("--by is of a month: give --month 2026-10, or --month now.")
    if html is not None or as_csv:
        option = "--html" if html is not None else "--csv"
        raise click.UsageError(f"{option} is of a month: give --month 2026-10.")
    first = str(config) if config is not None else http or home()
    names = [first] if compare is None else [first, compare]
    if len(set(names)) < len(names):
        raise click.UsageError(f"--compare {compare}: that is the same cluster.")
    token = read_token(token_file)
    reports = {
        name: _configured(Path(name))
        if (name == first and config is not None) or _is_file(name)
        else _running(name, days, token)
        for name in names
    }
    times = times_cheaper(*reports.values()) if compare is not None else None
    if compare is not None and times is not None:
        reports[compare] = msgspec.structs.replace(reports[compare], times_cheaper=round(times, 2))
    if as_json:
        print_json(reports)
        return
    lines = report_lines(reports)
    if compare is not None and (word := cheaper(names, times)):
        lines.append(word)
    echo("\n".join(lines))


def _is_file(name: str) -> bool:
    """Return whether a name is a file: an existing one, or one that ends in .toml."""
    return Path(name).is_file() or name.endswith(".toml")


def _configured(path: Path) -> Report:
    site = read_site(path)
    return describe(parts_of(str(path), site), site.site)


def _running(address: str, days: int, token: str | None) -> Report:
    return ApiClient(web_address(address), token).get("/api/v1/report", Report, days=days)


def _show_bill(address: str, month: str, token: str | None, *, html: Path | None, as_json: bool) -> None:
    asked = {} if month == "now" else {"month": month}
    bill = ApiClient(web_address(address), token).get("/api/v1/bill", MonthBill, **asked)
    if html is not None:
        _write(html, bill_html(bill))
    if as_json:
        print_json(bill)
    elif html is None:
        echo("\n".join(bill_lines(bill)))


def _show_use(
    address: str, month: str, by: str, token: str | None, *, html: Path | None, as_csv: bool, as_json: bool
) -> None:
    asked = {"by": by} if month == "now" else {"by": by, "month": month}
    reply = ApiClient(web_address(address), token).get("/api/v1/use", UseReply, **asked)
    if html is not None:
        _write(html, use_html(reply))
    if as_json:
        print_json(reply)
    elif as_csv:
        echo(use_csv(reply), nl=False)
    elif html is None:
        echo("\n".join(use_lines(reply)))


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}.") from error
