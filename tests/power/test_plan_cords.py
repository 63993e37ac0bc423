"""`plan --add` and `--move` with cords and sides."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.power import FitRequest, PlanResult
from kilowatch.__main__ import main
from power.plan.fit import fit
from power.plan.plan import Suppose
from power.site.decode import decode
from telemetry.errors import ConfigError
from tests.power.sites import circuit, planned

HALL = """
region = "EU"
[panels.PA]
volts = 400
breaker = 250
[panels.PB]
volts = 400
breaker = 250
[circuits.R12-A]
panel = "PA"
poles = 3
breaker = 63
redundancy = { group = "R12", role = "A" }
[circuits.R12-B]
panel = "PB"
poles = 3
breaker = 63
redundancy = { group = "R12", role = "B" }
[circuits.lab]
panel = "PA"
poles = 3
breaker = 32
[nodes.old]
profile = "dgx-h100"
cords = [{ psu = "1-3", circuit = "R12-A" }, { psu = "4-6", circuit = "R12-B" }]
"""
WATTS = 10_200.0


def watts(plan: PlanResult) -> dict[str, float]:
    """Watts of each circuit."""
    return {one.id: one.watts for one in plan.circuits}


@pytest.mark.parametrize("target", ["R12-A+R12-B", "R12", "R12-B + R12-A"])
def test_a_machine_is_added_with_a_cord_into_each_side(target: str) -> None:
    """By circuits, or by the group; each side bears half, and all of it when the other is lost."""
    plan = planned(HALL, Suppose(add=(("dgx-h100", target),)))
    assert watts(plan) == pytest.approx({"R12-A": WATTS, "R12-B": WATTS, "lab": 0})
    one = circuit(plan, "R12-A")
    assert one.survivor_amps == pytest.approx(2 * max(one.amps.values()), rel=1e-4)
    assert not any("one cord" in notice for notice in plan.notices)


def test_a_machine_keeps_the_single_cord_of_a_plain_circuit() -> None:
    """The form of earlier releases, and the note that it earns."""
    plan = planned(HALL, Suppose(add=(("dgx-h100", "R12-A"),)))
    assert watts(plan) == pytest.approx({"R12-A": 1.5 * WATTS, "R12-B": WATTS / 2, "lab": 0})
    assert any("one cord in redundant group R12" in notice for notice in plan.notices)


def test_a_node_moves_with_all_its_cords() -> None:
    """From a pair to a circuit, and back on two cords of one."""
    plan = planned(HALL, Suppose(move={"old": "lab"}))
    assert watts(plan) == pytest.approx({"R12-A": 0, "R12-B": 0, "lab": WATTS})
    plan = planned(HALL, Suppose(move={"old": "R12-A+R12-A+R12-B+R12-B"}))
    assert watts(plan) == pytest.approx({"R12-A": WATTS / 2, "R12-B": WATTS / 2, "lab": 0})


def test_a_cord_takes_some_poles_of_a_circuit() -> None:
    """Between two lines of 208 V, the third carries nothing of it."""
    plan = planned(HALL.replace("volts = 400", "volts = 208"), Suppose(add=(("rtx-4090:4", "lab.L1-L2"),)))
    amps = circuit(plan, "lab").amps
    assert amps["L1"] == pytest.approx(amps["L2"])
    assert amps["L1"] > 4
    assert amps["L3"] == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [("R12-A+R12-C", "'R12-C'"), ("R13", "Did you mean"), ("R12-A.L1-L9", "names no poles"), ("R12-A+", "there is no ''")],
)  # fmt: skip
def test_cords_that_do_not_exist_are_refused_with_the_nearest(target: str, words: str) -> None:
    """In an added machine and in a moved one."""
    for suppose in (Suppose(add=(("dgx-h100", target),)), Suppose(move={"old": target})):
        with pytest.raises(ConfigError, match=words):
            planned(HALL, suppose)


def test_several_models_are_added_as_one_node() -> None:
    """As `gpus` of a node lists them; a cap binds each as far as it goes."""
    both = planned(HALL, Suppose(add=(("rtx-4090:2,rtx-a6000", "lab"),)))
    each = [planned(HALL, Suppose(add=((what, "lab"),))) for what in ("rtx-4090:2", "rtx-a6000")]
    assert [node.id for node in both.nodes if node.id.startswith("added")] == ["added-1"]
    one, two = (watts(plan)["lab"] for plan in each)
    assert max(one, two) < watts(both)["lab"] <= one + two + 0.2
    listed = (
        HALL + "[nodes.new]\ngpus = ['2x rtx-4090', '1x rtx-a6000']\nhost_watts = 0\ncords = [{ circuit = 'lab' }]\n"
    )
    assert watts(both)["lab"] == watts(planned(listed))["lab"]
    capped = planned(HALL, Suppose(add=(("rtx-4090:2,rtx-a6000", "lab"),), cap=250))
    assert watts(capped)["lab"] < watts(both)["lab"]
    place = fit("hall", decode("hall", tomllib.loads(HALL)), FitRequest(what="rtx-4090:2,rtx-a6000", host_watts=0.0))
    assert place.machine_watts == pytest.approx(watts(both)["lab"], abs=0.1)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("dgx-h100,rtx-4090", "is a whole machine"), ("rtx-4090,", "without a name"), (",", "without a name"),
        ("rtx-4090:2,rtx-a600", "Did you mean 'rtx-a6000'"), ("rtx-4090:900,rtx-a6000:200", "1,100 devices"),
        ("rtx-4090:0,rtx-a6000", "no number of devices"),
    ],
)  # fmt: skip
def test_a_list_that_is_no_machine_is_refused(what: str, words: str) -> None:
    """Nothing is left out of a list."""
    with pytest.raises(ConfigError, match=words):
        planned(HALL, Suppose(add=((what, "lab"),)))


def test_the_command_takes_cords_after_an_at_sign(tmp_path: Path) -> None:
    """Mixed with the form with --on; what has no cords or belongs to nothing is a usage error."""
    path = tmp_path / "hall.toml"
    path.write_text(HALL)

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["plan", "--config", str(path), *arguments])
        return result.exit_code, result.output

    code, text = run("--add", "dgx-h100@R12-A+R12-B", "--add", "rtx-4090", "--on", "lab", "--json")
    assert code == 0, text
    found = {c["id"]: c["watts"] for c in json.loads(text)["circuits"]}
    assert found["R12-A"] == found["R12-B"] == pytest.approx(WATTS)
    assert found["lab"] > 450
    assert run("--move", "old=lab", "--json")[0] == 0
    code, text = run("--add", "dgx-h100")
    assert (code, "@R12-A+R12-B" in text) == (64, True)
    code, text = run("--add", "dgx-h100@R12", "--on", "lab")
    assert (code, "belongs to no --add" in text) == (64, True)
