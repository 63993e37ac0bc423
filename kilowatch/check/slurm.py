"""Slurm's HealthCheckProgram: Slurm runs it and does nothing with its answer, so it drains the node itself.

Only a node that this drained, by its reason, is resumed by it.
"""

from __future__ import annotations

import os
import subprocess

from kilowatch.check.verdict import CheckReply, Verdict
from telemetry.errors import KilowattError
from telemetry.text.printable import one_line

SIGN = "kilowatch: "
"""With which the reason of a node begins that was drained here."""
LONGEST = 200
"""Characters of a reason."""
_SECONDS = 30
"""For which the controller may take to answer; Slurm itself ends the program after a minute."""


def drain_or_resume(reply: CheckReply, node: str | None = None) -> str:
    """Drain this node while it is unfit, and resume it once every part is known and none is; return what was
    done. `node`: its name in Slurm; None for the one that slurmd passes. Raises `KilowattError`."""
    name = node or os.environ.get("SLURMD_NODENAME") or reply.node
    state, reason = _state(name)
    drained = "drain" in state
    if reply.verdict is Verdict.UNFIT:
        wanted = f"{SIGN}{one_line(reply.reason)}"[:LONGEST]
        if drained:
            return f"{name} is drained already: {reason}"
        _slurm("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={wanted}")
        return f"{name} is drained: {wanted}"
    known = all(one.verdict is not Verdict.UNKNOWN for one in reply.results)
    if drained and known and reason.startswith(SIGN.strip()):
        _slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
        return f"{name} is resumed: it was drained for {reason}"
    return f"{name} stays {state}"


def _state(name: str) -> tuple[str, str]:
    """Return state and reason of a node."""
    text = _slurm("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").splitlines()
    if not text:
        raise KilowattError(f"Slurm has no node {name!r}. Set SLURMD_NODENAME to its NodeName.")
    state, _, reason = text[0].partition("|")
    return state.lower().rstrip("*$~#"), reason


def _slurm(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise KilowattError(f"{command[0]} is not on the PATH. --plugin slurm belongs on nodes of Slurm.") from None
    except subprocess.TimeoutExpired:
        raise KilowattError(f"{command[0]} took more than {_SECONDS} s; is slurmctld up?") from None
    if done.returncode:
        raise KilowattError(f"{' '.join(command[:2])}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()
