"""Planning questions of people, each with an answer that `cases/solve.py` worked out without kilowatch.

Numbers are held to 2 %, everything else exactly. `docs/power.md` says what is modelled.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.power import CircuitPlan, PlanResult
from kilowatch.__main__ import main
from power.plan.plan import Suppose
from power.site.decode import decode
from power.site.layout import lay_out
from telemetry.errors import ConfigError
from tests.power.sites import planned

HERE = Path(__file__).parent / "cases"
Case = dict[str, Any]
CASES: list[Case] = [case for file in sorted(HERE.glob("*.toml")) for case in tomllib.loads(file.read_text())["case"]]

NOT_YET: dict[str, str] = {}
"""Ids of cases that the planning code answers wrongly today, with the reason."""

TOLERANCE = 0.02
LIMITS = {"E02", "E03"}
NEC_SIZES = (15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100, 110, 125)
IEC_SIZES = (6, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125)


def question(case: Case) -> PlanResult:
    """Return the plan of a case."""
    return planned(case["site"], Suppose(**_supposed(case)))


def _supposed(case: Case) -> dict[str, Any]:
    supposed = dict(case.get("suppose", {}))
    if "add" in supposed:
        supposed["add"] = [tuple(pair) for pair in supposed["add"]]
    return supposed


def answered(case: Case, plan: PlanResult, key: str) -> Any:
    """Return what the plan answers to a key of `[case.answer]`: `cases/solve.py` lists them."""
    if key == "note":
        return case["answer"][key] if case["answer"][key] in " ".join(plan.notices) else plan.notices
    named = [one.id for one in (*plan.circuits, *plan.panels)]
    named += [one.id for one in plan.nodes] + [one.id for one in plan.budgets]
    name = max((one for one in named if key.startswith(f"{one}.")), key=len)
    what = key.removeprefix(f"{name}.")
    for budget in plan.budgets:
        if budget.id == name and what == "kw":
            return budget.kw
    for node in plan.nodes:
        if node.id == name:
            return {"watts": node.watts, "dark": node.dark, "supply_load": node.supply_load}[what]
    circuit = next(c for c in [*plan.circuits, *plan.panels] if c.id == name)
    return of_circuit(case, circuit, what)


def of_circuit(case: Case, found: CircuitPlan, what: str) -> Any:
    """Return what the plan of a circuit answers."""
    cap = found.cap
    match what.split("."):
        case ["amps", pole]:
            return found.amps[pole]
        case ["neutral"]:
            return found.neutral_amps
        case ["watts"]:
            return found.watts
        case ["limit"]:
            return found.continuous_amps
        case ["rating"]:
            site = decode("case", tomllib.loads(case["site"]))
            return lay_out("case", site).circuits[found.id].effective_amps
        case ["ratio"]:
            return found.load_ratio
        case ["fits"]:
            return not LIMITS & set(found.alerts)
        case ["survivor"]:
            return found.survivor_amps
        case ["survives"]:
            return "E08" not in found.alerts
        case ["trip"]:
            if not found.trip_known:
                return "unknown"
            earliest, latest = found.trip_seconds["earliest"], found.trip_seconds["latest"]
            return "never" if earliest is None else "may" if latest is None else "must"
        case ["at_once"]:
            earliest, latest = found.trip_seconds["earliest"], found.trip_seconds["latest"]
            at_once = [seconds is not None and seconds <= 0.1 for seconds in (earliest, latest)]
            return "must" if all(at_once) else "may" if at_once[0] else "no"
        case ["cap"]:
            return None if cap is None else cap.watts_per_gpu
        case ["cap_accepted"]:
            return None if cap is None else cap.reachable
        case ["breaker"]:
            return smallest_breaker(case, found.id)
        case ["most", node]:
            return most_gpus(case, found.id, node)
        case _:
            raise KeyError(what)


def smallest_breaker(case: Case, name: str) -> int | None:
    """Return the smallest standard breaker with which the plan has no alert of a limit."""
    american = re.search('region = "(US|CA|MX|JP|TW)"', case["site"]) or "region" not in case["site"]
    for size in NEC_SIZES if american else IEC_SIZES:
        text = re.sub(rf"(circuits\.{name} = {{ breaker = )\d+", rf"\g<1>{size}", case["site"])
        plan = planned(text, Suppose(**_supposed(case)))
        if not LIMITS & set(next(c for c in plan.circuits if c.id == name).alerts):
            return size
    return None


def most_gpus(case: Case, name: str, node: str) -> int:
    """Return the most GPUs with which the plan has no alert of a limit."""
    count = 0
    while True:
        text = re.sub(rf'(nodes\.{node} = {{ gpus = ")\d+x', rf"\g<1>{count + 1}x", case["site"])
        plan = planned(text, Suppose(**_supposed(case)))
        if LIMITS & set(next(c for c in plan.circuits if c.id == name).alerts):
            return count
        count += 1


def differences(case: Case) -> list[str]:
    """Return what the plan answers otherwise than the case says."""
    wanted = case["answer"]
    try:
        plan = question(case)
    except ConfigError as error:
        place, _, rest = str(error).partition(": ")[2].partition(": ")
        cure = rest.rstrip(".").count(". ") >= 1
        met = "refused" in wanted and wanted["refused"] in place and cure
        return [] if met else [f"{wanted.get('refused', 'an answer')}, not refused: {error}"]
    if "refused" in wanted:
        return [f"refused: {wanted['refused']}, not answered"]
    wrong = []
    for key, value in wanted.items():
        found = answered(case, plan, key)
        same = found == value
        if isinstance(value, int | float) and not isinstance(value, bool) and found is not None:
            same = found == pytest.approx(value, rel=TOLERANCE, abs=0.02)
        if not same:
            wrong.append(f"{key}: {value}, not {found}")
    return wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_plan_answers_as_was_worked_out(case: Case) -> None:
    """A case of `NOT_YET` must still be wrong, so that the list stays honest."""
    wrong = differences(case)
    if case["id"] in NOT_YET:
        assert wrong, f"{case['id']} is answered now: remove it from NOT_YET"
    else:
        assert not wrong, f"{case['question']}\n" + "\n".join(wrong)


def test_the_questions_are_many_and_the_list_is_about_them() -> None:
    """150 at least, of twelve regions and more, each with a name of its own."""
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids) >= 150
    assert len({r for case in CASES for r in re.findall('region = "(..)"', case["site"])}) >= 12
    assert set(NOT_YET) <= set(ids)


def test_the_answers_are_what_the_script_works_out() -> None:
    """The script imports nothing of kilowatch."""
    script = HERE / "solve.py"
    tree = ast.parse(script.read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)
    done = subprocess.run([sys.executable, "-I", str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("id_", ["us-plan-cap-below-floor", "us-move-second-rig", "rack-2n-dgx-lose", "lab-add-dgx"])
def test_the_command_answers_what_the_planning_code_does(id_: str, tmp_path: Path) -> None:
    """`kilowatch plan --json` with the options of the case."""
    case = next(case for case in CASES if case["id"] == id_)
    file = tmp_path / "site.toml"
    file.write_text(case["site"])
    asked = case["suppose"]
    options = [word for name in asked.get("lose", []) for word in ("--lose", name)]
    options += [word for what, at in asked.get("add", []) for word in ("--add", what, "--on", at)]
    options += [word for node, at in asked.get("move", {}).items() for word in ("--move", f"{node}={at}")]
    options += ["--cap", str(asked["cap"])] if "cap" in asked else []
    shown = CliRunner().invoke(main, ["plan", "--config", str(file), "--json", *options])
    assert shown.exit_code == {True: 0, False: 1, None: 3}[json.loads(shown.stdout)["holds"]], shown.stderr
    plan = json.loads(shown.stdout)
    for key, value in case["answer"].items():
        name, _, what = key.partition(".")
        if what.startswith("amps"):
            circuit = next(c for c in plan["circuits"] if c["id"] == name)
            assert circuit["amps"][what[-2:]] == pytest.approx(value, rel=TOLERANCE, abs=0.02)
