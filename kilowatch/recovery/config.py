"""The `[recover]` section: the programs that carry out the steps of a recovery (docs/recover.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from telemetry.errors import ConfigError, did_you_mean
from telemetry.text import LONGEST


class StepKind(StrEnum):
    """A step of a recovery. Those between `stop` and `check` are the remedies of `api.alerts.Remediation`."""

    DRAIN = "drain"
    STOP = "stop"
    RESET = "reset"
    REBOOT = "reboot"
    COLD_START = "cold_start"
    REPLACE = "replace"
    FACILITY = "facility"
    APPLICATION = "application"
    MONITOR = "monitor"
    CHECK = "check"
    UNCORDON = "uncordon"


_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})


class RecoverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hooks of `kilowatch recover --write`, and how long each step may take."""

    hooks: dict[str, str | tuple[str, ...]] = {}
    """By step, a program with its arguments: a list, or the path of an executable. It is started
    without a shell; what it works on is in its environment (`KILOWATCH_NODE`, ...)."""
    timeout_seconds: float = 900.0
    """Seconds that a step may take."""
    timeouts: dict[str, float] = {}
    """Seconds by step, where they differ: `drain` waits for jobs to end."""
    check_seconds: float = 600.0
    """Seconds that must pass after the remedy without a new fault before the node takes work again."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work. Whether a program exists is checked before
        it is run: settings are shared by machines that lack it."""
        for key, problem, cure in self._problems():
            raise ConfigError(f"{where}.{key}", problem, cure)

    def argv(self, step: StepKind) -> tuple[str, ...] | None:
        """Return the hook of a step; None where there is none."""
        given = self.hooks.get(step.value)
        return (given,) if isinstance(given, str) else given

    def timeout(self, step: StepKind) -> float:
        """Return the seconds that a step may take."""
        return self.timeouts.get(step.value, self.timeout_seconds)

    def _problems(self) -> Iterator[tuple[str, str, str]]:
        known = [each.value for each in StepKind]
        for section, names in (("hooks", self.hooks), ("timeouts", self.timeouts)):
            for name in names:
                if name not in known:
                    hint = did_you_mean(name, known) or f"Steps: {', '.join(known)}."
                    yield f"{section}.{name}", "there is no such step", hint
        for name, given in self.hooks.items():
            for problem, cure in _hook_problems(given):
                yield f"hooks.{name}", problem, cure
        for name, seconds in [("timeout_seconds", self.timeout_seconds)] + [
            (f"timeouts.{step}", value) for step, value in self.timeouts.items()
        ]:
            if not 0 < seconds <= LONGEST:
                yield name, f"{seconds:g} s is no time limit", "Write seconds, more than 0."
        if not 0 <= self.check_seconds <= 86_400:
            yield "check_seconds", "it must be 0 to 86400 seconds", ""


def _hook_problems(given: str | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a hook as it is written, each with its cure."""
    argv = (given,) if isinstance(given, str) else given
    if not argv or not argv[0]:
        yield "it is empty", 'Write ["/path/of/program", "argument"].'
        return
    if isinstance(given, str) and any(each.isspace() for each in given):
        yield ("it is one text with blanks, and no shell splits it", 'Write a list: ["/path/of/program", "argument"].')
        return
    if not argv[0].startswith("/"):
        yield f"{argv[0]!r} is no absolute path", "Another PATH would run another program."
    if Path(argv[0]).name in _SHELLS and any(each.startswith("-") and "c" in each for each in argv[1:2]):
        yield "it is a command for a shell", "Put it into a file of its own, and name that."
    for each in argv:
        if "\0" in each:
            yield "it has a NUL", ""
        if "{node}" in each or "{gpu}" in each or "$KILOWATCH" in each:
            yield (
                f"{each!r}: nothing is put into arguments",
                "The program finds the node in its environment: KILOWATCH_NODE.",
            )


def check_program(where: str, argv: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless the program of a hook can be run, and nobody else can change it."""
    path = Path(argv[0])
    try:
        its = path.stat()
    except OSError as error:
        raise ConfigError(where, f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(its.st_mode) or not os.access(path, os.X_OK):
        raise ConfigError(where, f"{path} is no program that can be run", f"chmod +x {path}")
    if its.st_mode & 0o022:
        raise ConfigError(where, f"other users may write {path}: what it does could be changed", f"chmod go-w {path}")
    folder = path.parent.stat().st_mode
    if folder & 0o002 and not folder & stat.S_ISVTX:
        raise ConfigError(
            where,
            f"every user may write {path.parent}, and put another program in its place",
            f"chmod o-w {path.parent}",
        )
