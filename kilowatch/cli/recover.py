"""`kilowatch recover`: the steps from what is wrong to work again, printed, or carried out by hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch import settings
from kilowatch.cli.aggregator import address_argument, aggregator_options, note_sent, open_api
from kilowatch.cli.alerts import who_option
from kilowatch.cli.arguments import json_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from kilowatch.recovery.config import StepKind
from telemetry.text import counted
from telemetry.wire.topics import is_name

if TYPE_CHECKING:
    from kilowatch.clients.api import ApiClient
    from kilowatch.recovery.plan import Place, Plan
    from kilowatch.recovery.run import StepResult


@click.command()
@click.argument("place", metavar="NODE|GPU")
@address_argument
@click.option("--rule", metavar="RULE", help="Plan for this rule's remedy, whether it fires there or not.")
@click.option("--write", is_flag=True, help="Carry the steps out with the hooks of [recover.hooks].")
@click.option(
    "--from",
    "first",
    type=click.Choice([each.value for each in StepKind]),
    metavar="STEP",
    help="Begin with this step, after one that failed or that a person has ended.",
)
@click.option("--yes", is_flag=True, help="Also take along GPUs that have no fault, without a question.")
@who_option
@json_option
@aggregator_options
def recover(
    place: str,
    rule: str | None,
    write: bool,
    first: str | None,
    yes: bool,
    who: str,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Print the steps that bring a node or GPU back to work; with --write, carry them out.

    NODE|GPU is a node, a GPU by its index (dgx-01/3), or a GPU's UUID. The steps follow from the
    alerts that are open there: drain, stop what holds the GPU, reset or what its rule asks for, check,
    uncordon. Without --write nothing is run.

    Exit code 0: printed, or all done. 1: a step failed, or waits for a person. 3: it can't be known.
    64: wrong use, a missing hook, or no confirmation.
    """
    from kilowatch.clients.api import ApiError  # noqa: PLC0415 - loads HTTP; keep --help quick
    from kilowatch.recovery.run import check_hooks  # noqa: PLC0415

    loaded = settings.load(config)
    node, index = _parsed(place)
    api: ApiClient | None = open_api(config, http, token_file)
    assert api is not None  # noqa: S101 - for the type checker
    try:
        plan = _plan(api, place, node, index, rule, begun=first is not None)
        _send_waiting(api)
    except ApiError as error:
        if error.status is not None or rule is None:
            _unknown(str(error))
        echo(f"{error} What else is wrong there is not known.", err=True)
        api, plan = None, _plan_alone(node, index, rule, loaded.aggregator.rules)
    if plan is None:
        echo(f"{place}: no alert is open there. --rule RULE prints the steps of a rule.")
        return
    start = StepKind(first) if first else None
    if start is not None and start not in {step.kind for step in plan.steps}:
        steps = ", ".join(step.kind for step in plan.steps)
        raise click.UsageError(f"--from {first}: this recovery has the steps {steps}.")
    if write:
        check_hooks(plan, loaded.recover, start, settings.where(config))
    _show(plan, loaded, as_json=as_json and not write)
    if write:
        _confirm(plan, start, yes=yes)
        sys.exit(_run(plan, loaded, api, start, who, rule, as_json=as_json))


def _send_waiting(api: ApiClient) -> None:
    """Send what was recorded here while the aggregator was away."""
    from kilowatch.recovery.record import send_waiting  # noqa: PLC0415

    sent, left = send_waiting(api)
    note_sent(sent)
    if left:
        echo(f"{counted(left, 'recorded step')} could not be sent to the aggregator yet.", err=True)


def _parsed(place: str) -> tuple[str, int | None]:
    """Return the node or UUID, and the index of a GPU. Raises `UsageError`."""
    name, slash, index = place.partition("/")
    if not is_name(name) or (slash and not (index.isascii() and index.isdigit() and len(index) < 6)):
        raise click.UsageError(f"{place[:80]!r} is no node and no GPU. Write dgx-01, dgx-01/3, or a UUID.")
    return name, int(index) if slash else None


def _unknown(why: str) -> None:
    echo(f"Error: {why}", err=True)
    sys.exit(ExitCode.UNJUDGED)


def _plan(api: ApiClient, asked: str, node: str, index: int | None, rule: str | None, *, begun: bool) -> Plan | None:
    """Return the recovery by what the aggregator knows. `begun`: whether it goes on with one: a remedy may
    have ended the alerts, and the record has the rules. Raises `ApiError`."""
    from api.alerts import AlertsReply, RulesReply  # noqa: PLC0415
    from api.fleet import EventsReply  # noqa: PLC0415
    from kilowatch.recovery.plan import plan_of, plan_of_rule  # noqa: PLC0415
    from telemetry.errors import did_you_mean  # noqa: PLC0415

    place = _place(api, asked, node, index)
    if rule is not None:
        rows = {row.name: row for row in api.get("/api/v1/rules", RulesReply).rules}
        row = rows.get(rule)
        if row is None or row.remediation is None:
            raise click.UsageError(
                f"--rule: no rule {rule[:80]!r} is in force there. {did_you_mean(rule, rows)}".rstrip()
            )
        return plan_of_rule(place, rule, row.remediation)
    alerts = api.get("/api/v1/alerts", AlertsReply, node=place.node, state="firing").alerts
    if not alerts:
        return _recorded_plan(api, place) if begun else None
    began = min(one.since for one in alerts) / 1e9 - 60.0
    events = api.get("/api/v1/events", EventsReply, node=place.node, kind="xid", **{"from": f"{began:.3f}"}).events
    plan = plan_of(place, alerts, [each.event for each in events])
    return _recorded_plan(api, place) if plan is None and begun else plan


def _recorded_plan(api: ApiClient, place: Place) -> Plan | None:
    """Return the recovery of a place whose last step was recorded within a week; None without one.
    Raises `ApiError`."""
    from api.alerts import RulesReply  # noqa: PLC0415
    from api.fleet import EventsReply  # noqa: PLC0415
    from kilowatch.recovery.plan import REMEDIATIONS, plan_of_rule  # noqa: PLC0415

    asked = {"node": place.node, "kind": "recovery", "from": "-7d", "limit": 100}
    gpu = None if place.gpu is None else place.gpu.uuid
    found = api.get("/api/v1/events", EventsReply, **asked).events
    names = next((each.event.data.get("rules") for each in found if each.event.gpu == gpu), None)
    remediations = {
        row.name: row.remediation
        for row in api.get("/api/v1/rules", RulesReply).rules
        if isinstance(names, list) and row.name in names and row.remediation in REMEDIATIONS
    }
    if not remediations:
        return None
    rule, remediation = max(remediations.items(), key=lambda each: REMEDIATIONS.index(each[1]))
    return plan_of_rule(place, rule, remediation)


def _place(api: ApiClient, asked: str, node: str, index: int | None) -> Place:
    """Return the node and GPU that are meant. Raises `ApiError`."""
    from api.device import GpuPageReply, NodePageReply  # noqa: PLC0415
    from kilowatch.clients.api import ApiError, part  # noqa: PLC0415
    from kilowatch.recovery.plan import Place  # noqa: PLC0415

    uuid = None
    try:
        page = api.get(f"/api/v1/nodes/{part(node)}", NodePageReply)
    except ApiError as error:
        if error.status != 404 or index is not None:
            raise
        try:
            found = api.get(f"/api/v1/gpus/{part(node)}", GpuPageReply)
        except ApiError as second:
            raise (error if second.status == 404 else second) from error
        uuid = found.gpu.uuid
        page = api.get(f"/api/v1/nodes/{part(found.node.node)}", NodePageReply)
    if not is_name(page.node.node):
        raise ApiError("the aggregator names a node that no node can be named", 200)
    if index is None and uuid is None:
        return Place(page.node.node, None, page)
    gpus = [each.gpu for each in page.gpus if uuid in {None, each.gpu.uuid}]
    gpus = [gpu for gpu in gpus if index in {None, gpu.index}]
    gpus.sort(key=lambda gpu: not gpu.present)  # one that is lost may have the index of another
    if not gpus:
        raise ApiError(f"{asked}: {page.node.node} has {len(page.gpus)} GPUs, and none of this index", 404)
    if len(gpus) > 1:
        few = " or ".join(gpu.uuid for gpu in gpus)
        raise ApiError(f"{asked}: two GPUs have had this index, {few}. Name the UUID.", 404)
    return Place(page.node.node, gpus[0], page)


def _plan_alone(node: str, index: int | None, rule: str | None, files: object) -> Plan:
    """Return the recovery of a rule without an aggregator. Raises `UsageError`."""
    from alerts.rules.rule import load  # noqa: PLC0415
    from kilowatch.recovery.plan import Place, plan_of_rule  # noqa: PLC0415
    from telemetry.devices import Gpu  # noqa: PLC0415
    from telemetry.errors import did_you_mean  # noqa: PLC0415

    assert isinstance(files, tuple)  # noqa: S101 - of the settings
    rules = {each.name: each for each in load(files)}
    found = rules.get(rule or "")
    if found is None:
        raise click.UsageError(f"--rule: there is no rule {rule!r}. {did_you_mean(rule or '', rules)}".rstrip())
    if index is None and node.startswith("GPU-"):
        raise click.UsageError("Which node has this GPU only the aggregator knows. Write NODE/INDEX.")
    gpu = None if index is None else Gpu(uuid="", index=index, name="")
    return plan_of_rule(Place(node, gpu), found.name, found.remediation)


def _show(plan: Plan, loaded: settings.Settings, *, as_json: bool) -> None:
    from kilowatch.text.recover import plan_lines  # noqa: PLC0415

    if as_json:
        print_json(_as_json(plan, loaded))
        return
    for line in plan_lines(plan, loaded.recover):
        echo(line)


def _as_json(plan: Plan, loaded: settings.Settings) -> dict[str, object]:
    """Return a plan as JSON values."""
    return {
        "node": plan.place.node,
        "gpu": plan.place.gpu.uuid if plan.place.gpu else None,
        "remediation": plan.remediation.value,
        "reasons": plan.reasons,
        "rules": plan.rules,
        "notes": plan.notes,
        "gpus": [gpu.uuid for gpu in plan.gpus],
        "steps": [
            {
                "step": step.kind.value,
                "text": step.text,
                "commands": step.commands,
                "hook": loaded.recover.argv(step.kind),
                "healthy_gpus": step.healthy if step.healthy_known else None,
            }
            for step in plan.steps
        ],
    }


def _confirm(plan: Plan, first: StepKind | None, *, yes: bool) -> None:
    """Ask before GPUs without a fault are taken along. Raises `UsageError` where nobody can answer."""
    from kilowatch.text.recover import consequences  # noqa: PLC0415

    asking = [step for step in plan.after(first) if step.asks]
    if not asking or yes:
        return
    words = " ".join(line for step in asking for line in consequences(step))
    if not sys.stdin.isatty():
        raise click.UsageError(f"{words}. Nothing was run; --yes does it all the same.")
    if not click.confirm("Go on?", default=False):
        raise click.UsageError("Not confirmed: nothing was run.")


def _run(
    plan: Plan,
    loaded: settings.Settings,
    api: ApiClient | None,
    first: StepKind | None,
    who: str,
    rule: str | None,
    *,
    as_json: bool,
) -> int:
    """Carry out a plan, and return the exit code."""
    from api.recovery import RecoveryOutcome  # noqa: PLC0415
    from kilowatch.recovery.record import RecoveryRecord  # noqa: PLC0415
    from kilowatch.recovery.run import run_plan  # noqa: PLC0415
    from kilowatch.text.recover import resume_line  # noqa: PLC0415

    results: list[StepResult] = []

    def report(result: StepResult) -> None:
        results.append(result)
        if not as_json:
            _show_result(result)

    record = RecoveryRecord(plan.place.node)
    try:
        outcome = run_plan(plan, loaded.recover, api, record, first=first, who=who, report=report)
    finally:
        record.close()
    unsent = [each.unsent for each in results if each.unsent]
    if unsent:
        echo(f"The aggregator has no record of {len(unsent)} steps ({unsent[-1]}); {record.path} has all.", err=True)
    if as_json:
        print_json([
            {"step": each.step.kind.value, "outcome": each.outcome.value, "exit_code": each.exit_code,
             "output": each.output, "recorded": not each.unsent}
            for each in results
        ])  # fmt: skip
    elif outcome is not RecoveryOutcome.DONE:
        echo(resume_line(plan, results[-1].step.kind, rule))
    codes = {
        RecoveryOutcome.DONE: ExitCode.CLEAN,
        RecoveryOutcome.UNKNOWN: ExitCode.UNJUDGED,
        RecoveryOutcome.INTERRUPTED: ExitCode.INTERRUPTED,
    }
    return codes.get(outcome, ExitCode.TICKET)


def _show_result(result: StepResult) -> None:
    from kilowatch.text.recover import COLOURS, outcome_line  # noqa: PLC0415

    colour = COLOURS.get(result.outcome, "yellow")
    echo("", mark=outcome_line(result.step, result.outcome, result.exit_code), fg=colour)
    for line in result.output.splitlines():
        echo(f"     {line}")
