"""Execution of a hook: a program, its environment, its time limit and the end of its output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from api.recovery import RecoveryOutcome
from kilowatch.recovery.config import StepKind
from kilowatch.recovery.plan import Plan
from telemetry.text.printable import one_line
from telemetry.wire.topics import is_name

TAIL_BYTES = 4096
"""How much of a hook's output is kept: its end."""
_GRACE_SECONDS = 10.0
"""Between the request to end and the kill of a hook that takes too long."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """Outcome of a hook."""

    outcome: RecoveryOutcome
    exit_code: int | None = None
    """None where it did not end by itself."""
    output: str = ""
    """The end of what it printed, in order."""


def environment_of(plan: Plan, step: StepKind, seconds: float, who: str) -> dict[str, str]:
    """Return the variables that a hook finds beside those of this process.

    Names come from the bus: one with a character that a shell or `scontrol` could take for something
    else is left out rather than escaped.
    """
    place = plan.place
    gpu = place.gpu or (plan.gpus[0] if len(plan.gpus) == 1 else None)
    reason = f"kilowatch: {','.join(plan.rules)}" + (f" GPU {gpu.index}" if gpu else "")
    found = {
        "NODE": place.node,
        "STEP": step.value,
        "REMEDY": plan.remediation.value,
        "GPU": str(gpu.index) if gpu else "",
        "UUID": gpu.uuid if gpu else "",
        "PCI": (gpu.pci or "") if gpu else "",
        "SERIAL": (gpu.serial or "") if gpu else "",
        "GPUS": "all" if plan.every else ",".join(str(one.index) for one in plan.gpus),
        "UUIDS": ",".join(one.uuid for one in plan.gpus if is_name(one.uuid)),
        "TIMEOUT": f"{seconds:.0f}",
        "REASON": "".join(each for each in reason if each.isascii() and (each.isalnum() or each in " .,:_-"))[:200],
        "WHO": who if is_name(who) else "",
    }
    for name in ("UUID", "PCI", "SERIAL"):
        if found[name] and not is_name(found[name]):
            found[name] = ""
    return {f"KILOWATCH_{name}": value for name, value in found.items()}


def run_hook(argv: tuple[str, ...], variables: Mapping[str, str], seconds: float) -> HookResult:
    """Run a hook without a shell, and wait for its end; after `seconds` it is ended with all that it
    started in its process group."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KILOWATCH_")}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **variables},
                start_new_session=True,
                close_fds=True,
            )
        except OSError as error:
            return HookResult(RecoveryOutcome.FAILED, None, f"{argv[0]}: {error.strerror}")
        outcome, code = RecoveryOutcome.FAILED, None
        try:
            code = process.wait(seconds)
            outcome = RecoveryOutcome.FAILED if code else RecoveryOutcome.DONE
        except subprocess.TimeoutExpired:
            outcome = RecoveryOutcome.TIMED_OUT
        except KeyboardInterrupt:
            outcome = RecoveryOutcome.INTERRUPTED
        if code is None:
            _end(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))
        return HookResult(outcome, code, _tail(output.read()))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a hook that did not end by itself, and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            if number is signal.SIGTERM:
                continue  # what it started may still run
            return


def _tail(raw: bytes) -> str:
    lines = (one_line(line) for line in raw.decode(errors="replace").splitlines())
    return "\n".join(line for line in lines if line.strip())
