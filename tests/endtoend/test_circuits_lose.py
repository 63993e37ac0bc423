"""`kilowatch circuits --lose` against a running aggregator: from the load that meters and nodes report now."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kilowatch.__main__ import main
from tests.brokers import Mosquitto
from tests.endtoend.test_circuits import PAIR, Meters, running
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.systems


def test_a_loss_is_worked_out_from_the_present_load(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """All of the node on the other feed; and the names that can't be lost."""
    meters = Meters(mosquitto.port)
    meters.watts = {"a": 3000.0, "b": 5000.0}
    with contextlib.closing(meters), running(tmp_path, mosquitto, PAIR) as plant:
        plant.collect("dgx-01", "simulated:two-dgx-h100/dgx-01")

        def lose(name: str, *, as_json: bool = False) -> Result:
            words = ["circuits", "--http", plant.http, "--lose", name]
            return CliRunner().invoke(main, [*words, "--json"] if as_json else words)

        wait_until(lambda: [c["watts"] for c in plant.circuits().values()] == [3000, 5000], "meters")
        wait_until(lambda: (plant.circuits()["a"]["survivor_continuous_ratio"] or 0) > 0, "its node")
        answer = json.loads(lose("a", as_json=True).stdout)
        found = {one["id"]: one for one in answer["circuits"]}
        assert found["a"]["lost"]
        assert found["a"]["watts"] == 0
        # The same code as the live survivor, a moment later; the job's load swings.
        survivor = plant.circuits()["b"]["more"]["survivor_amps"]
        assert max(found["b"]["amps"].values()) == pytest.approx(survivor, rel=0.3)
        assert found["b"]["watts"] > 6500
        text = lose("a")
        assert text.exit_code == 0
        assert "nothing is above its limits" in text.stdout
        assert "b: dgx-01 without power" in text.stdout  # the second loss
        assert plant.circuits()["a"]["watts"] == 3000  # nothing was lost
        both = lose("a,b")
        assert "dgx-01" in both.stdout

        wrong = lose("c")
        assert wrong.exit_code != 0
        assert "'c'" in wrong.output
        node = lose("dgx-01")
        assert node.exit_code != 0
        assert "dgx-01" in node.output
        meters.watts = {"a": 0.0, "b": 8000.0}
        wait_until(lambda: plant.circuits()["a"]["more"]["feed_lost"] == 1, "the loss itself")
        assert json.loads(lose("b", as_json=True).stdout)["nodes"][0]["dark"]
    gone = CliRunner().invoke(main, ["circuits", "--http", plant.http, "--lose", "a"])
    assert gone.exit_code != 0
    assert plant.http in gone.output
