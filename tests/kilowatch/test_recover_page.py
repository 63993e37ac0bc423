"""docs/recover.md: its commands, settings and tables are those of the program."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from api.alerts import Remediation
from kilowatch import settings
from kilowatch.exit_codes import ExitCode
from kilowatch.recovery.config import RecoverConfig, StepKind
from kilowatch.recovery.hooks import environment_of
from kilowatch.recovery.plan import Place, plan_of_rule
from tests.aggregator.fake_view import inventory
from tests.aggregator.http_client import door
from tests.kilowatch.broken_node import BrokenNode, program, typed
from tests.kilowatch.broken_node import settings as written

ROOT = Path(__file__).parents[2]
OF_JOBS = {"prolog", "epilog"}
"""Hooks of Slurm itself, for docs/slurm.md."""
PAGE = (ROOT / "docs" / "recover.md").read_text()
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
(TOML,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
async def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    node = BrokenNode(inventory("dgx-01", gpus=4))
    true = str(program(tmp_path / "true", "exit 0"))
    hooks = dict.fromkeys(("drain", "stop", "reset", "reboot", "uncordon"), true)
    config = written(tmp_path / "k.toml", hooks, check_seconds=0, timeouts={"check": 1.0})
    async with door(node) as opened:
        node.xid(62, gpu=3)
        name, *arguments = shlex.split(command)
        assert name == "kilowatch"
        result = await typed(opened, *arguments, config=config)
        assert result.exit_code == ExitCode.CLEAN, result.output
        assert "drain" in result.stdout


def test_its_settings_are_read_and_name_files_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text(TOML)
    found = settings.load(path, {}).recover
    assert found.timeout(StepKind.DRAIN) == 86_400
    usual = RecoverConfig()
    assert (found.check_seconds, found.timeout_seconds) == (usual.check_seconds, usual.timeout_seconds)
    for step in (StepKind.DRAIN, StepKind.STOP, StepKind.RESET, StepKind.REBOOT, StepKind.UNCORDON):
        argv = found.argv(step)
        assert argv is not None
        relative = Path(argv[0]).relative_to("/usr/local/lib/kilowatch")
        assert (ROOT / "deploy" / relative).is_file()
        assert all((ROOT / "deploy" / relative.parent / each).is_file() for each in argv[1:])


def test_its_table_of_steps_is_that_of_the_program() -> None:
    rows = re.findall(r"^\| ([a-z, ]+) \| ([a-z_, ]+) \|$", PAGE, re.MULTILINE)
    shown = {name: steps.split(", ") for names, steps in rows for name in names.split(", ")}
    for one in Remediation:
        kinds = [step.kind.value for step in plan_of_rule(Place("n1"), "a", one).steps]
        if one in {Remediation.FACILITY, Remediation.APPLICATION, Remediation.MONITOR}:
            assert kinds == [one.value, "check"]
            assert shown[one.text] == ["that person acts", "check"]
        else:
            assert shown[one.text] == kinds


def test_its_variables_are_those_that_a_hook_finds() -> None:
    plan = plan_of_rule(Place("n1"), "gpu_fault", Remediation.RESET)
    found = environment_of(plan, StepKind.RESET, 60.0, "ann")
    table = PAGE.partition("| variable |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(KILOWATCH_\w+)`", table)) == set(found)
    named = {
        name
        for path in (ROOT / "deploy").glob("*/*")
        if path.parent.name in {"slurm", "kubernetes", "node"} and path.name not in OF_JOBS
        for name in re.findall(r"\$\{?(KILOWATCH_\w+)", path.read_text())
    }
    assert named - set(found) == {"KILOWATCH_POLL_SECONDS", "KILOWATCH_STOPPED", "KILOWATCH_DEVICES"}


def test_every_hook_that_comes_with_it_has_a_row() -> None:
    for folder in ("slurm", "kubernetes", "node"):
        for path in (ROOT / "deploy" / folder).iterdir():
            if path.read_text().startswith("#!") and path.name not in OF_JOBS:
                assert f"`{folder}/{path.name}`" in PAGE
