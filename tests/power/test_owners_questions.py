"""Questions of owners without a file: each answer is worked out here too, and is what docs/home.md shows."""

from __future__ import annotations

import math
import re
import shlex

import pytest
from click.testing import CliRunner

from docs.worked_sites import HOME, OwnersQuestion, in_page, questions
from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode
from tests.power.cases.solve import AMERICAN, GPU_WATTS, MAINS, SYSTEMS

ASKED = questions()
HOST = 250
POWER_FACTOR = 0.97
PLUGS = {"UK": 13, "AU": 10}
"""Amps of a home's outlet, where breakers have more."""
GOLD = {"low": 0.90, "high": 0.92}
"""Efficiency of a gold supply at half load, at 115 and at 230 V."""


def expected(typed: str) -> tuple[bool, float, float]:
    """Return whether circuit and plug bear it for hours, the circuit's amps, and those that it bears."""
    words = shlex.split(typed)
    options = dict(zip(words[::2], words[1::2], strict=True))
    region = options.get("--region", "US")
    volts = float(options.get("--volts", MAINS[region]))
    gpus = [text for name, text in zip(words[::2], words[1::2], strict=True) if name == "--gpus"]
    if gpus[0] in SYSTEMS:
        wall = float(SYSTEMS[gpus[0]]["watts"])
    else:
        inside = float(options.get("--host-watts", HOST))
        for text in [*gpus, *(["RTX 5090"] if "--add" in options else [])]:
            count, name = re.fullmatch(r"(?:(\d+)x )?(.+)", text).groups()  # type: ignore[union-attr]
            each = min(GPU_WATTS[name], float(options.get("--cap", "inf")))
            inside += int(count or 1) * each
        wall = inside / GOLD["low" if volts < 200 else "high"]
    amps = (wall + float(options.get("--other-watts", 0))) / volts / POWER_FACTOR
    bears = float(options["--breaker"]) * (0.8 if region in AMERICAN else 1)
    plug = PLUGS.get(region, math.inf) if "--volts" not in options else math.inf
    return amps <= bears and wall / volts / POWER_FACTOR <= plug, amps, bears


@pytest.mark.parametrize("asked", ASKED, ids=[one.ask for one in ASKED])
def test_the_first_line_is_the_verdict_with_amps_that_are_right(asked: OwnersQuestion) -> None:
    """And the exit code says the same."""
    holds, amps, bears = expected(asked.type)
    found = CliRunner().invoke(main, ["plan", *shlex.split(asked.type)])
    first = " ".join(found.stdout.split())
    assert first.startswith("Yes: " if holds else "No: "), found.output
    if "by its cord, above the" in first:  # by no circuit of a made-up name
        assert amps <= bears
        return
    said = re.match(r"\w+: (?:just over )?([\d.]+) A on a circuit that carries ([\d.]+) A for hours", first)
    assert said is not None, first
    assert float(said[1]) == pytest.approx(amps, abs=0.06)
    assert float(said[2]) == pytest.approx(bears, abs=0.06)
    assert found.exit_code == (ExitCode.CLEAN if holds else ExitCode.TICKET)


def test_the_page_of_homes_shows_them() -> None:
    """As `python -m docs.worked_sites` writes it."""
    page = HOME.read_text(encoding="utf-8")
    assert in_page(page) == page
    assert len(ASKED) >= 30


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--gpus '4x RTX 5090'", "--gpus belongs to --breaker"),
        ("--breaker 20", "--gpus"),
        ("--breaker 20 --gpus 4090 --config a.toml", "Name a breaker"),
        ("--breaker 20 --gpus 'RTX 4090' --add rtx-4090@office", "need a file"),
        ("--breaker 20 --gpus 'RTX 4090' --lose circuit", "need a file"),
        ("--breaker 16 --gpus 'RTX 4090'", "--breaker: 16 A is no size of breakers at 120 V"),
        ("--breaker 20 --gpus 'RTX 4090' --region USA", "--region: 'USA' is no region"),
        ("--breaker 1500 --gpus 'RTX 4090' --region US", "--breaker"),
        ("--breaker twenty --gpus 'RTX 4090' --region US", "--breaker: 'twenty' is no current"),
        ("--breaker 20 --gpus 'RTX 4900' --region US", "--gpus: "),
        ("--breaker 20 --gpus 'RTX 4090' --host-watts 250000 --region US", "--host-watts"),
        ("--breaker 20 --gpus 'RTX 4090' --volts 12000 --region US", "--volts"),
        ("--breaker 20 --gpus dgx-h100 --add rtx-4090 --region US", "whole machine"),
    ],
)
def test_what_can_not_be_is_refused_with_the_option_that_says_it(typed: str, words: str) -> None:
    """In one line, with exit code 64."""
    found = CliRunner().invoke(main, ["plan", *shlex.split(typed)])
    assert found.exit_code == ExitCode.USAGE, found.output
    assert words in found.output
    assert "circuits.circuit" not in found.output
