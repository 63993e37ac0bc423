"""The run of a recovery: one step after the other, recorded, until the first that does not end well."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from api.alerts import AlertsReply, Remediation, RulesReply
from api.device import NodePageReply
from api.fleet import EventsReply
from api.recovery import RecoveryOutcome, RecoveryStepRequest
from kilowatch.clients.api import ApiClient, ApiError, part
from kilowatch.recovery.config import RecoverConfig, StepKind, check_program
from kilowatch.recovery.hooks import HookResult, environment_of, run_hook
from kilowatch.recovery.plan import BY_PEOPLE, REMEDIES, Plan, PlanStep
from kilowatch.recovery.proof import ProofFinding, ProofState, proof_of
from kilowatch.recovery.record import RecoveryRecord, fresh_id
from telemetry.errors import ConfigError

POLL_SECONDS = 5.0
"""Between two looks at a node that comes back."""


@dataclass(slots=True)
class StepResult:
    """A step that was carried out."""

    step: PlanStep
    outcome: RecoveryOutcome
    exit_code: int | None = None
    output: str = ""
    command: tuple[str, ...] = ()
    unsent: str = ""
    """Why the aggregator has no record of it; "" where it has."""
    findings: Sequence[ProofFinding] = field(default=())


def check_hooks(plan: Plan, config: RecoverConfig, first: StepKind | None, where: str) -> None:
    """Raise `ConfigError` unless each step that a program must carry out has one that can be run: a run
    that stops in the middle for lack of one leaves a drained node behind."""
    missing = []
    for step in plan.after(first):
        argv = config.argv(step.kind)
        if argv is not None:
            check_program(f"{where}: recover.hooks.{step.kind}", argv)
        elif step.kind not in BY_PEOPLE and step.kind is not StepKind.CHECK:
            missing.append(step.kind.value)
    if missing:
        lines = "; ".join(f'{name} = ["/path/of/program"]' for name in missing)
        raise ConfigError(
            f"{where}: recover.hooks",
            f"there is no hook for {', '.join(missing)}: nothing was run",
            f"Write under [recover.hooks]: {lines}. docs/recover.md has some.",
        )


def run_plan(
    plan: Plan,
    config: RecoverConfig,
    api: ApiClient | None,
    record: RecoveryRecord,
    *,
    first: StepKind | None,
    who: str,
    report: Callable[[StepResult], None],
    poll_seconds: float = POLL_SECONDS,
) -> RecoveryOutcome:
    """Carry out the steps from `first` on, and return how the last of them ended."""
    outcome = RecoveryOutcome.DONE
    for step in plan.after(first):
        began = time.time_ns()
        if step.kind is StepKind.CHECK:
            result = _check(plan, step, config, api, who, poll_seconds)
        else:
            result = _carry_out(plan, step, config, who)
        gpu = plan.place.gpu
        result.unsent = record.add(
            RecoveryStepRequest(
                id=fresh_id(),
                step=step.kind.value,
                outcome=result.outcome,
                rules=plan.rules,
                who=who,
                gpu=gpu.uuid or None if gpu else None,
                command=result.command,
                started=began,
                ended=time.time_ns(),
                exit_code=result.exit_code,
                output=result.output,
            ),
            api,
        )
        report(result)
        outcome = result.outcome
        if outcome is not RecoveryOutcome.DONE:
            break
    return outcome


def _carry_out(plan: Plan, step: PlanStep, config: RecoverConfig, who: str) -> StepResult:
    """Run the hook of a step; one that people end waits for them, with a hook or without."""
    argv = config.argv(step.kind)
    if argv is None:
        return StepResult(step, RecoveryOutcome.WAITS)
    done = _hook(plan, step, config, argv, who)
    outcome = done.outcome
    if step.kind in BY_PEOPLE and outcome is RecoveryOutcome.DONE:
        outcome = RecoveryOutcome.WAITS
    return StepResult(step, outcome, done.exit_code, done.output, argv)


def _hook(plan: Plan, step: PlanStep, config: RecoverConfig, argv: tuple[str, ...], who: str) -> HookResult:
    seconds = config.timeout(step.kind)
    return run_hook(argv, environment_of(plan, step.kind, seconds, who), seconds)


def _check(
    plan: Plan, step: PlanStep, config: RecoverConfig, api: ApiClient | None, who: str, poll_seconds: float
) -> StepResult:
    """Wait until the node proves that it works, then run the hook of this step where there is one."""
    findings = _proof(plan, config, api, poll_seconds)
    outcome = _outcome(findings)
    text = "\n".join(f"{each.state}: {each.text}" for each in findings)
    argv = config.argv(step.kind)
    if argv is None or outcome is not RecoveryOutcome.DONE:
        return StepResult(step, outcome, None, text, (), "", findings)
    done = _hook(plan, step, config, argv, who)
    output = f"{text}\n{done.output}".strip()
    return StepResult(step, done.outcome, done.exit_code, output, argv, "", findings)


def _outcome(findings: Sequence[ProofFinding]) -> RecoveryOutcome:
    states = {each.state for each in findings}
    if ProofState.BAD in states:
        return RecoveryOutcome.FAILED
    return RecoveryOutcome.UNKNOWN if ProofState.UNKNOWN in states else RecoveryOutcome.DONE


def _proof(plan: Plan, config: RecoverConfig, api: ApiClient | None, poll_seconds: float) -> list[ProofFinding]:
    """Look at the node until all is good, or a new fault came, or the time is over."""
    unknown = [ProofFinding(ProofState.UNKNOWN, "no aggregator was asked")]
    if api is None:
        return unknown
    end = time.monotonic() + config.check_seconds + config.timeout(StepKind.CHECK)
    since: int | None = None
    while True:
        try:
            if since is None:
                since = remedied_at(plan, api)
            findings = look(plan, api, since, config.check_seconds)
        except ApiError as error:
            findings = [ProofFinding(ProofState.UNKNOWN, str(error))]
        over = time.monotonic() >= end or any(each.final for each in findings)
        if over or all(each.state is ProofState.GOOD for each in findings):
            return findings
        try:
            time.sleep(min(poll_seconds, max(0.0, end - time.monotonic())))
        except KeyboardInterrupt:
            return [*findings, ProofFinding(ProofState.UNKNOWN, "interrupted")]


def look(plan: Plan, api: ApiClient, since: int, seconds: float) -> list[ProofFinding]:
    """Return what a node shows now. Raises `ApiError`."""
    node = plan.place.node
    page = api.get(f"/api/v1/nodes/{part(node)}", NodePageReply)
    alerts = api.get("/api/v1/alerts", AlertsReply, node=node, state="firing")
    rules = api.get("/api/v1/rules", RulesReply)
    asked = {"node": node, "from": f"{since / 1e9 - 1:.3f}", "limit": 1000}
    events = api.get("/api/v1/events", EventsReply, **asked)
    return proof_of(
        plan,
        page,
        alerts.alerts,
        rules.rules,
        [each.event for each in events.events],
        since=since,
        seconds=seconds,
        remedied=_remedied(node, api),
    )


def remedied_at(plan: Plan, api: ApiClient) -> int:
    """Return when the last remedy of a place ended by the record, ns since 1970 of the aggregator's
    clock; now where none is recorded or none is needed. Raises `ApiError`."""
    node = plan.place.node
    now = api.get(f"/api/v1/nodes/{part(node)}", NodePageReply).at
    if plan.remediation in {Remediation.FACILITY, Remediation.APPLICATION, Remediation.MONITOR}:
        return now
    times = _remedied(node, api)
    gpu = None if plan.place.gpu is None else plan.place.gpu.uuid
    return max(times.get(gpu, 0), times.get(None, 0)) or now


def _remedied(node: str, api: ApiClient) -> dict[str | None, int]:
    """Return when the last remedy of each GPU ended by the record of a day; None is the whole node, and
    what takes it down counts for all of its GPUs. Raises `ApiError`."""
    asked = {"node": node, "kind": "recovery", "from": "-1d", "limit": 1000}
    found: dict[str | None, int] = {}
    for each in api.get("/api/v1/events", EventsReply, **asked).events:
        event = each.event
        step, outcome = event.data.get("step"), event.data.get("outcome")
        if step in REMEDIES and outcome in {"done", "waits"}:
            gpu = event.gpu if step == StepKind.RESET else None
            at, ended = event.at, event.data.get("ended")
            if event.data.get("late") and isinstance(ended, int):
                at = min(at, ended)  # a fault after it counts
            found[gpu] = max(at, found.get(gpu, 0))
    return found
