"""Text of a recovery for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from api.recovery import RecoveryOutcome
from kilowatch.recovery.config import RecoverConfig, StepKind
from kilowatch.recovery.plan import BY_PEOPLE, Plan, PlanStep
from kilowatch.text.table import WIDTH
from telemetry.text import duration

_WORDS = {
    RecoveryOutcome.DONE: "done",
    RecoveryOutcome.FAILED: "failed",
    RecoveryOutcome.TIMED_OUT: "took too long, and was ended",
    RecoveryOutcome.INTERRUPTED: "interrupted",
    RecoveryOutcome.UNKNOWN: "can't be judged",
    RecoveryOutcome.WAITS: "waits for a person",
}
COLOURS = {RecoveryOutcome.DONE: "green", RecoveryOutcome.FAILED: "red", RecoveryOutcome.TIMED_OUT: "red"}


def plan_lines(plan: Plan, config: RecoverConfig) -> Iterator[str]:
    """Yield a plan: why, then each step with its commands and its hook."""
    yield f"{plan.place.name}: {plan.remediation.text}"
    for reason in plan.reasons:
        yield from _wrapped(reason, "  ")
    for note in plan.notes:
        yield from _wrapped(note, "  ")
    for number, step in enumerate(plan.steps, 1):
        yield ""
        yield from _wrapped(f"{number}. {step.kind}: {step.text}", "", "   ")
        for line in consequences(step):
            yield from _wrapped(line, "     ")
        yield from (f"     {line}" for line in step.commands)
        argv = config.argv(step.kind)
        if argv is not None:
            limit = duration(int(config.timeout(step.kind)))
            yield f"     hook (at most {limit}): {' '.join(argv)}"


def _wrapped(text: str, indent: str, rest: str | None = None) -> list[str]:
    return wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent if rest is None else rest, break_on_hyphens=False
    )


def consequences(step: PlanStep) -> Iterator[str]:
    """Yield which GPUs without a fault a step takes along."""
    if step.healthy:
        yield f"It also ends work on GPUs without a fault: {', '.join(step.healthy)}"
    elif not step.healthy_known:
        yield "Which other GPUs it takes along is not known: no aggregator was asked."


def outcome_line(step: PlanStep, outcome: RecoveryOutcome, exit_code: int | None) -> str:
    """Return how a step ended, in one line."""
    code = f" (exit code {exit_code})" if exit_code else ""
    return f"{step.kind}: {_WORDS.get(outcome, outcome.value)}{code}"


def resume_line(plan: Plan, step: StepKind, rule: str | None) -> str:
    """Return how to go on after a step that did not end well. `rule`: that of `--rule`."""
    command = f"kilowatch recover {plan.place.name}" + (f" --rule {rule}" if rule else "") + " --write"
    if step in BY_PEOPLE:
        return f"When that is done: {command} --from check"
    return f"To go on from here: {command} --from {step}"
