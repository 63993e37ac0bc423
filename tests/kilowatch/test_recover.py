"""`kilowatch recover`: its steps by real rules over real HTTP, its hooks as real programs."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aggregator.access.tokens import AccessScope
from alerts.rules.rule import load
from api.alerts import Remediation
from kilowatch import settings as kilowatch_settings
from kilowatch.__main__ import main
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.doctor.checks import hooks
from kilowatch.exit_codes import ExitCode
from kilowatch.recovery.config import RecoverConfig, StepKind
from kilowatch.recovery.hooks import environment_of, run_hook
from kilowatch.recovery.plan import REMEDIATIONS, Place, plan_of_rule
from kilowatch.recovery.run import _remedied
from kilowatch.text.table import WIDTH
from telemetry.devices import Event, Gpu, MemoryPool
from telemetry.errors import ConfigError
from tests.aggregator.fake_view import inventory
from tests.aggregator.http_client import Door, add_token, door
from tests.kilowatch.broken_node import BrokenNode, events_of, program, settings, typed
from tests.kit.waiting import until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own: the local record is there."""
    folder = tmp_path / "state"
    monkeypatch.setenv("STATE_DIRECTORY", str(folder))
    return folder


@asynccontextmanager
async def broken(node: BrokenNode | None = None) -> AsyncIterator[tuple[BrokenNode, Door]]:
    """Serve a node."""
    node = node or BrokenNode()
    async with door(node) as opened:
        yield node, opened


def steps_in(text: str) -> list[str]:
    """Return the steps of a printed plan, in order."""
    return [line.split()[1].rstrip(":") for line in text.splitlines() if line[:1].isdigit()]


def recorder(folder: Path, name: str = "hook", code: int = 0) -> Path:
    """A hook that writes down its environment and its arguments."""
    log = folder / "hooks.log"
    return program(
        folder / name,
        f'echo "$KILOWATCH_STEP|$KILOWATCH_NODE|$KILOWATCH_GPU|$KILOWATCH_UUID|$KILOWATCH_GPUS|$KILOWATCH_REASON|$*" >> {log}',
        'echo "did $KILOWATCH_STEP"',
        f"exit {code}",
    )


def hooked(folder: Path, **others: object) -> Path:
    """Settings whose hooks all work, but those of `others`."""
    works = [str(recorder(folder)), "with an argument"]
    hooks: dict[str, object] = dict.fromkeys(("drain", "stop", "reset", "reboot", "uncordon"), works)
    return settings(folder / "kilowatch.toml", {**hooks, **others}, check_seconds=0, timeouts={"check": 1.0})


def ran(folder: Path) -> list[list[str]]:
    """Return what the recorder wrote, a list a step."""
    log = folder / "hooks.log"
    return [line.split("|") for line in log.read_text().splitlines()] if log.exists() else []


# -- The plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["n1", "n1/1", "GPU-n1-1"])
async def test_a_gpu_that_needs_a_reset_is_drained_freed_reset_checked_and_uncordoned(
    tmp_path: Path, place: str
) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        shown = await typed(opened, "recover", place, config=hooked(tmp_path))
    assert shown.exit_code == 0, shown.output
    assert steps_in(shown.stdout) == ["drain", "stop", "reset", "check", "uncordon"]
    assert "nvidia-smi --gpu-reset -i GPU-n1-1\n" in shown.stdout
    assert "fuser" in shown.stdout
    assert "nvidia-persistenced nvidia-dcgm dcgm-exporter\n" in shown.stdout
    assert "kilowatch command n1 release" in shown.stdout
    assert all(len(line) <= WIDTH for line in shown.stdout.splitlines() if "hook (" not in line)
    assert ran(tmp_path) == []
    assert events_of(node) == []


async def test_a_gpu_off_the_bus_takes_a_reboot_that_names_who_else_is_hit() -> None:
    async with broken() as (node, opened):
        node.gpus[2] = {"gpu_processes": 1.0}
        node.xid(79, gpu=0)
        shown = await typed(opened, "recover", "n1/0")
    assert steps_in(shown.stdout) == ["drain", "reboot", "check", "uncordon"]
    words = " ".join(shown.stdout.split())
    assert "GPU 1 (2 processes), GPU 2 (1 process), GPU 3 (2 processes)" in words
    assert "GPU 0 (" not in shown.stdout


async def test_a_healthy_gpu_needs_nothing_and_the_fault_of_another_is_not_its_own() -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        shown = await typed(opened, "recover", "n1/0")
        assert (shown.exit_code, steps_in(shown.stdout)) == (0, [])
        assert "no alert is open there" in shown.stdout


async def test_the_drivers_own_word_and_nvidias_action_can_ask_for_more_than_the_rule() -> None:
    async with broken() as (node, opened):
        node.gpus[1] = {"gpu_recovery_action": 2.0}
        node.xid(62, gpu=1)
        shown = await typed(opened, "recover", "n1/1")
        assert "the driver asks for a reboot because of GPU 1" in shown.stdout
        assert steps_in(shown.stdout) == ["drain", "reboot", "check", "uncordon"]
        other = await typed(opened, "recover", "n1/2")
        assert "no alert is open there" in other.stdout


async def test_what_a_consequence_asks_for_does_not_decide() -> None:
    """XID 119 inhibits what follows from it: the plan is that of the cause."""
    async with broken() as (node, opened):
        node.xid(119, gpu=1)
        node.xid(62, gpu=1)
        found = await typed(opened, "recover", "n1/1", "--json")
    assert json.loads(found.stdout)["rules"] == ["gsp_dead"]


def test_every_rule_has_a_plan_that_follows_from_its_remediation_alone() -> None:
    remedies = {step.value for step in StepKind} - {"drain", "stop", "check", "uncordon"}
    assert remedies == {one.value for one in Remediation} == {one.value for one in REMEDIATIONS}
    for rule in load():
        plan = plan_of_rule(Place("n1", Gpu(uuid="GPU-0", index=0, name="")), rule.name, rule.remediation)
        kinds = [step.kind.value for step in plan.steps]
        assert rule.remediation.value in kinds
        assert kinds[-1] in {"check", "uncordon"}
        assert ("drain" in kinds) == ("uncordon" in kinds)
        assert ("stop" in kinds) == (rule.remediation is Remediation.RESET)


async def test_before_ampere_linked_gpus_are_reset_together_and_the_healthy_one_is_named() -> None:
    what = inventory("n1", gpus=4)
    pair = MemoryPool(gpus=("GPU-n1-0", "GPU-n1-1"), over="nvlink")
    for architecture, hit in (("Volta", True), ("Hopper", False)):
        gpus = tuple(msgspec.structs.replace(gpu, architecture=architecture) for gpu in what.gpus)
        node = BrokenNode(msgspec.structs.replace(what, gpus=gpus, pools=(pair,)))
        async with broken(node) as (_, opened):
            node.xid(62, gpu=1)
            shown = await typed(opened, "recover", "n1/1")
            assert ("GPU 0 (2 processes)" in shown.stdout) is hit
            assert ("--gpu-reset -i GPU-n1-0,GPU-n1-1\n" in shown.stdout) is hit


async def test_a_fault_of_the_whole_node_resets_all_gpus_with_the_switches() -> None:
    async with broken() as (_, opened):
        shown = await typed(opened, "recover", "n1", "--rule", "driver_slow")
    assert shown.exit_code == 0, shown.output
    assert "--gpu-reset\n" in shown.stdout
    assert "nvidia-fabricmanager" in shown.stdout
    assert "GPU 0 (2 processes), GPU 1" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("n2",), 3, "'n2' is not known"),
        (("GPU-none",), 3, "is not known"),
        (("n1/9",), 3, "n1 has 4 GPUs, and none of this index"),
        (("n1;reboot",), ExitCode.USAGE, "no node and no GPU"),
        (("n1/x",), ExitCode.USAGE, "no node and no GPU"),
        (("../n1",), ExitCode.USAGE, "no node and no GPU"),
        (("n1", "--rule", "gpu_lots"), ExitCode.USAGE, "Did you mean 'gpu_lost'?"),
        (("n1", "--rule", "gpu_lost", "--from", "stop"), ExitCode.USAGE, "drain, reboot, check, uncordon"),
        (("n1", "--rule", "gpu_lost", "--from", "sop"), ExitCode.USAGE, "sop"),
    ],
)
async def test_a_mistake_is_one_error(arguments: tuple[str, ...], code: int, words: str) -> None:
    async with broken() as (_, opened):
        result = await typed(opened, "recover", *arguments)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert "Traceback" not in result.output


# -- Execution -------------------------------------------------------------------------------------


async def test_every_step_is_run_in_order_with_what_it_needs_and_recorded(tmp_path: Path, state: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        done = await typed(opened, "recover", "n1/1", "--write", "--who", "bob", config=hooked(tmp_path))
        assert done.exit_code == 0, done.output
        steps = ["drain", "stop", "reset", "uncordon"]
        reason = "kilowatch: gpu_fault GPU 1"
        wanted = [[step, "n1", "1", "GPU-n1-1", "1", reason, "with an argument"] for step in steps]
        assert ran(tmp_path) == wanted
        found = events_of(node)
        assert [each["step"] for each in found] == ["drain", "stop", "reset", "check", "uncordon"]
        assert {each["who"] for each in found} == {"ann (bob)"}
        assert {each["outcome"] for each in found} == {"done"}
        first = found[0]
        assert first["command"] == [str(tmp_path / "hook"), "with an argument"]
        assert (first["exit_code"], first["output"], first["rules"]) == (0, "did drain", ["gpu_fault"])
        assert 0 < first["started"] <= first["ended"] <= time.time_ns()
        assert "good: GPU 1 is there and answers" in found[3]["output"]
        node.step(1)
        stored = (await opened.json("/api/v1/events?kind=recovery&node=n1&from=-1h"))[1]["events"]
        assert {each["event"]["gpu"] for each in stored} == {"GPU-n1-1"}
        (incident,) = node.pipeline.manager.incidents()
        timeline = node.pipeline.manager.timeline(incident.key)
        assert [(one.who, one.why) for one in timeline if one.what == "recovery"] == [
            ("ann (bob)", f"{each['step']} done") for each in found
        ]
    record = state / "recover" / "n1.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["step"]["step"], line["sent"]) for line in lines] == [(each["step"], True) for each in found]
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


async def test_it_stops_at_the_first_step_that_fails_and_goes_on_from_there(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        fails = hooked(tmp_path, reset=str(recorder(tmp_path, "fails", code=7)))
        result = await typed(opened, "recover", "n1/1", "--write", config=fails)
        assert result.exit_code == 1
        assert "reset: failed (exit code 7)" in result.stdout
        assert "did reset" in result.stdout
        assert "kilowatch recover n1/1 --write --from reset" in result.stdout
        assert [step for step, *_ in ran(tmp_path)] == ["drain", "stop", "reset"]
        assert [(each["step"], each["exit_code"]) for each in events_of(node)][-1] == ("reset", 7)
        again = await typed(opened, "recover", "n1/1", "--write", "--from", "reset", config=hooked(tmp_path))
        assert again.exit_code == 0, again.output
        assert [step for step, *_ in ran(tmp_path)][3:] == ["reset", "uncordon"]


async def test_without_a_hook_for_each_step_nothing_is_run(tmp_path: Path, state: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        some = settings(tmp_path / "k.toml", {"drain": str(recorder(tmp_path))})
        result = await typed(opened, "recover", "n1/1", "--write", config=some)
        assert result.exit_code == ExitCode.USAGE
        assert "there is no hook for stop, reset, uncordon: nothing was run" in result.stderr
        assert (ran(tmp_path), events_of(node), state.exists()) == ([], [], False)


@pytest.mark.parametrize("yes", [False, True])
async def test_gpus_without_a_fault_are_taken_along_only_with_a_yes(tmp_path: Path, yes: bool) -> None:
    async with broken() as (node, opened):
        config = settings(
            tmp_path / "k.toml",
            dict.fromkeys(("drain", "reboot", "uncordon"), str(recorder(tmp_path))),
            check_seconds=0,
            timeouts={"check": 1.0},
        )
        arguments = ["recover", "n1/0", "--rule", "gpu_lost", "--write", *(["--yes"] if yes else [])]
        result = await typed(opened, *arguments, config=config)
        if yes:
            assert result.exit_code == ExitCode.UNJUDGED, result.output  # it has not rebooted yet
            assert "unknown: its collector has not started again since" in result.stdout
            assert [step for step, *_ in ran(tmp_path)] == ["drain", "reboot"]
            node.step(60, Event(id="8-0", node="n1", at=node.wall(), kind="collector_started"))
            arguments = [*arguments, "--from", "check"]
            rest = await typed(opened, *arguments, config=config)
            assert rest.exit_code == ExitCode.CLEAN, rest.output
            assert [step for step, *_ in ran(tmp_path)][2:] == ["uncordon"]
        else:
            assert result.exit_code == ExitCode.USAGE
            assert "GPU 1 (2 processes)" in result.stderr
            assert (ran(tmp_path), events_of(node)) == ([], [])


async def test_a_step_of_people_waits_for_them_and_the_rest_follows(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        rule = ("--rule", "remap_failure")
        config = hooked(tmp_path, replace=str(recorder(tmp_path, "ticket")))
        result = await typed(opened, "recover", "n1/2", "--write", "--yes", *rule, config=config)
        assert result.exit_code == 1, result.output
        assert "replace: waits for a person" in result.stdout
        assert "--from check" in result.stdout
        assert [step for step, *_ in ran(tmp_path)] == ["drain", "replace"]
        rest = await typed(opened, "recover", "n1/2", "--write", *rule, "--from", "check", config=config)
        assert rest.exit_code == 0, rest.output
        assert [each["outcome"] for each in events_of(node)] == ["done", "waits", "done", "done"]


async def test_a_step_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    slow = program(tmp_path / "slow", f"sleep 600 & echo $! > {child}", "echo begun", "wait")
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        config = settings(
            tmp_path / "k.toml",
            dict.fromkeys(("drain", "stop", "reset", "uncordon"), str(slow)),
            timeouts={"drain": 0.5},
        )
        result = await typed(opened, "recover", "n1/1", "--write", config=config)
        assert result.exit_code == 1
        assert "drain: took too long, and was ended" in result.stdout
        (event,) = events_of(node)
        assert (event["outcome"], event["exit_code"]) == ("timed_out", None)
        assert event["output"].startswith("begun")
    assert not _runs(int(child.read_text()))


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_without_an_aggregator_it_can_not_be_known_but_a_rule_can_be_planned(tmp_path: Path, state: Path) -> None:
    async with broken() as (_, opened):
        pass  # its port is free now
    gone = await typed(opened, "recover", "n1/1", "--token-file", str(_token(tmp_path)))
    assert gone.exit_code == 3
    assert "no aggregator answers" in gone.stderr
    args = ("recover", "n1/1", "--rule", "gsp_dead", "--token-file", str(tmp_path / "token"))
    planned = await typed(opened, *args)
    assert planned.exit_code == 0, planned.output
    assert steps_in(planned.stdout) == ["drain", "stop", "reset", "check", "uncordon"]
    assert "--gpu-reset -i 1\n" in planned.stdout
    config = hooked(tmp_path)
    unsure = await typed(opened, *args, "--write", config=config)
    assert unsure.exit_code == ExitCode.USAGE
    assert "not known" in unsure.stderr
    result = await typed(opened, *args, "--write", "--yes", config=config)
    assert result.exit_code == 3, result.output
    assert [step for step, *_ in ran(tmp_path)] == ["drain", "stop", "reset"]
    lines = [json.loads(line) for line in (state / "recover/n1.jsonl").read_text().splitlines()]
    assert [(line["step"]["step"], line["sent"]) for line in lines] == [
        ("drain", False), ("stop", False), ("reset", False), ("check", False),
    ]  # fmt: skip


async def test_what_was_recorded_while_the_aggregator_was_away_is_sent_later(tmp_path: Path, state: Path) -> None:
    """Once, oldest first, with the time at which each step ended, and on no incident that began later."""
    async with broken() as (_, gone):
        pass
    args = ("recover", "n1/1", "--rule", "gsp_dead", "--write", "--yes")
    token = str(_token(tmp_path))
    away = await typed(gone, *args, "--token-file", token, config=hooked(tmp_path))
    assert "no record of 4 steps" in away.stderr
    path = state / "recover" / "n1.jsonl"
    with path.open("ab") as file:
        file.write(b'{"node": "n1", "st')  # the machine stopped in the middle of a line
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        result = await typed(opened, "recover", "n1/1")
        assert result.exit_code == 0, result.output
        assert "Sent 4 steps that had been recorded here" in result.stderr
        stored = events_of(node)
        assert [(each["step"], each["late"]) for each in stored] == [
            ("drain", True), ("stop", True), ("reset", True), ("check", True),
        ]  # fmt: skip
        assert all(0 < each["started"] <= each["ended"] for each in stored)
        again = await typed(opened, "recover", "n1/1")
        assert "Sent" not in again.stderr
        assert len(events_of(node)) == 4


async def test_any_command_to_the_aggregator_of_the_settings_sends_what_was_recorded(
    tmp_path: Path, state: Path
) -> None:
    """None to another aggregator does, which may have a node of the same name, nor one that fails."""
    folder = state / "recover"
    folder.mkdir(parents=True)
    body = {"id": "recovery-0000000000000001", "step": "drain", "outcome": "done"}
    (folder / "n1.jsonl").write_text(json.dumps({"node": "n1", "sent": False, "step": body}) + "\n")
    async with broken() as (node, opened):
        elsewhere = await typed(opened, "alerts")
        assert elsewhere.exit_code == 0, elsewhere.output
        config = tmp_path / "kilowatch.toml"
        config.write_text(f'[aggregator]\nlisten = "127.0.0.1:{opened.port}"\ntoken_file = "{opened.token_file}"\n')
        arguments = ["alerts", "--config", str(config)]
        wrong = await asyncio.to_thread(CliRunner().invoke, main, ["alerts", "show", "none", *arguments[1:]])
        assert wrong.exit_code != 0
        assert events_of(node) == []
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert result.exit_code == 0, result.output
        assert "Sent 1 step that had been recorded here" in result.stderr
        assert [(each["step"], each["late"]) for each in events_of(node)] == [("drain", True)]
        again = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert again.stderr == ""


async def test_a_recorded_step_that_is_refused_for_good_is_not_sent_for_ever(tmp_path: Path, state: Path) -> None:
    """One that another token may send, or of a node that is not known yet, waits."""
    folder = state / "recover"
    folder.mkdir(parents=True)

    def line(node: str, number: int, step: str) -> str:
        body = {"id": f"recovery-{number:016x}", "step": step, "outcome": "done"}
        return json.dumps({"node": node, "sent": False, "step": body}) + "\n"

    (folder / "n1.jsonl").write_text(line("n1", 1, "rm -rf"))
    (folder / "n9.jsonl").write_text(line("n9", 2, "drain"))
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        first = await typed(opened, "recover", "n1/1")
        assert "1 recorded step could not be sent" in first.stderr
        assert json.loads((folder / "n1.jsonl").read_text().splitlines()[-1])["refused"]
        node.add(inventory("n9"))
        second = await typed(opened, "recover", "n1/1")
        assert "Sent 1 step " in second.stderr
        assert [each["step"] for each in events_of(node)] == ["drain"]
        assert len((folder / "n1.jsonl").read_text().splitlines()) == 2


async def test_a_late_record_hides_no_fault_that_came_after_the_remedy() -> None:
    """The time without a fault counts from when the reset ended, not from when its record arrived."""
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        ended = node.wall() - 3600 * 10**9
        for late in (True, False):
            number = f"recovery-{int(late):016x}"
            body = {"id": number, "step": "reset", "outcome": "done", "ended": ended, "late": late}
            at = node.wall()
            assert await _record(opened, body) == 200
            node.step(1)
            api = ApiClient(opened.url, read_token(Path(opened.token_file)))
            found = await asyncio.to_thread(_remedied, "n1", api)
            assert found[None] == (ended if late else at)


def _token(folder: Path) -> Path:
    path = folder / "token"
    path.write_text("of-nobody\n")
    path.chmod(0o600)
    return path


async def test_it_goes_on_when_the_remedy_has_ended_the_alert(tmp_path: Path) -> None:
    """Nothing is open any more, and the node is still drained."""
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        config = hooked(tmp_path, stop=str(recorder(tmp_path, "fails", code=1)))
        assert (await typed(opened, "recover", "n1/1", "--write", config=config)).exit_code == 1
        node.step(7200)
        assert "no alert is open" in (await typed(opened, "recover", "n1/1")).stdout
        node.step(1)
        rest = await typed(opened, "recover", "n1/1", "--write", "--from", "reset", config=config)
        assert rest.exit_code == ExitCode.CLEAN, rest.output
        assert [step for step, *_ in ran(tmp_path)] == ["drain", "stop", "reset", "uncordon"]
        other = await typed(opened, "recover", "n1/2", "--write", "--from", "reset", config=config)
        assert "no alert is open" in other.stdout


async def test_two_recoveries_of_a_node_do_not_run_at_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = program(tmp_path / "waits", f"touch {tmp_path / 'begun'}", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        config = hooked(tmp_path, drain=str(waits))
        first = asyncio.create_task(typed(opened, "recover", "n1/1", "--write", config=config))
        await until((tmp_path / "begun").exists)
        second = await typed(opened, "recover", "n1/1", "--write", config=config)
        gate.touch()
        assert second.exit_code != 0
        assert "a recovery of n1 runs already" in second.stderr
        assert (await first).exit_code == 0


# -- The check -------------------------------------------------------------------------------------


async def test_a_fault_after_the_reset_fails_the_check_and_the_node_stays_drained(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        await _record(opened, {"id": "recovery-00000000000000a1", "step": "reset", "outcome": "done"})
        node.xid(31, gpu=1)  # a program's own fault is none of the GPU
        config = hooked(tmp_path)
        arguments = ("recover", "n1/1", "--write", "--from", "check")
        fine = await typed(opened, *arguments, config=config)
        assert fine.exit_code == 0, fine.output
        node.xid(62, gpu=1)
        result = await typed(opened, *arguments, config=config)
        assert result.exit_code == 1, result.output
        assert "bad: a new fault after the remedy: xid 62" in result.stdout
        assert [step for step, *_ in ran(tmp_path)] == ["uncordon"]


async def test_a_node_with_another_gpu_that_needs_a_reset_takes_no_work(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        node.xid(46, gpu=3)
        config = hooked(tmp_path)
        result = await typed(opened, "recover", "n1/1", "--write", config=config)
        assert result.exit_code == ExitCode.TICKET, result.output
        assert "bad: reset is due elsewhere on the node: n1 GPU 3" in result.stdout
        assert [step for step, *_ in ran(tmp_path)] == ["drain", "stop", "reset"]
        node.step(1)
        other = await typed(opened, "recover", "n1/3", "--write", config=config)
        assert other.exit_code == ExitCode.CLEAN, other.output  # GPU 1 was reset since its alert
        assert ran(tmp_path)[-2][4] == "3"


async def test_a_recovery_of_the_node_resets_each_gpu_that_needs_it(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        node.xid(46, gpu=3)
        result = await typed(opened, "recover", "n1", "--write", config=hooked(tmp_path))
        assert result.exit_code == ExitCode.CLEAN, result.output
        assert {tuple(each[2:5]) for each in ran(tmp_path)} == {("", "", "1,3")}


async def test_a_gpu_that_does_not_come_back_fails_the_check(tmp_path: Path) -> None:
    what = inventory("n1", gpus=4)
    gone = tuple(msgspec.structs.replace(gpu, present=gpu.index != 1) for gpu in what.gpus)
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        config = settings(
            tmp_path / "k.toml",
            dict.fromkeys(("drain", "stop", "reset", "uncordon"), str(recorder(tmp_path))),
            check_seconds=0,
            timeouts={"check": 0.2},
        )
        node.fleet.place(msgspec.structs.replace(what, gpus=gone, version=1))
        node.step(1)
        result = await typed(opened, "recover", "GPU-n1-1", "--write", config=config)
        assert result.exit_code == 1, result.output
        assert "bad: GPU 1 is not in the inventory" in result.stdout
        assert [step for step, *_ in ran(tmp_path)][-1] == "reset"


async def test_the_time_without_a_fault_counts_from_the_recorded_remedy(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        config = settings(
            tmp_path / "k.toml",
            dict.fromkeys(("drain", "stop", "reset", "uncordon"), str(recorder(tmp_path))),
            check_seconds=600,
            timeouts={"check": 0.2},
        )
        body = {"id": "recovery-00000000000000a1", "step": "reset", "outcome": "done", "gpu": "GPU-n1-1"}
        await _record(opened, body)
        node.step(660)
        result = await typed(opened, "recover", "n1/1", "--write", "--from", "check", config=config)
        assert result.exit_code == 0, result.output
        assert "good: no new fault for 11 min" in result.stdout


async def _record(opened: Door, body: Mapping[str, object], token: str = "") -> int:
    headers = {
        "Content-Type": "application/json",
        **(opened.bearer if not token else {"Authorization": f"Bearer {token}"}),
    }
    url = f"{opened.url}/api/v1/nodes/n1/recovery"
    async with opened.session.post(url, data=json.dumps(body), headers=headers) as answer:
        await answer.read()
        return answer.status


# -- The record over HTTP --------------------------------------------------------------------------


async def test_a_step_needs_the_scope_ack_and_is_stored_once(tmp_path: Path) -> None:
    async with broken() as (node, opened):
        tokens = Path(opened.token_file).parent / "tokens.json"
        body = {"id": "recovery-00000000000000a1", "step": "drain", "outcome": "done", "output": "a\x1b[2Jb\nc"}
        reader = add_token(tokens, "reader", AccessScope.READ)
        acker = add_token(tokens, "acker", AccessScope.ACK)
        assert await _record(opened, body, reader) == 403
        assert await _record(opened, body, acker) == 200
        assert await _record(opened, body, acker) == 200
        (event,) = events_of(node)
        assert (event["who"], event["output"]) == ("acker", "a[2Jb\nc")
        for wrong in (
            {"id": "no id!"},
            {"id": "0000688f1a2b-58"},
            {"step": "rm -rf"},
            {"gpu": "GPU-of-another"},
            {"ended": 2**70},
            {"outcome": 3},
            {"unknown": 1},
        ):
            assert await _record(opened, {**body, **wrong}, acker) == 400, wrong
        assert len(events_of(node)) == 1


async def test_a_step_that_the_aggregator_refuses_is_run_and_kept_here(tmp_path: Path, state: Path) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        tokens = Path(opened.token_file).parent / "tokens.json"
        token = _token(tmp_path)
        token.write_text(add_token(tokens, "reader", AccessScope.READ))
        result = await typed(opened, "recover", "n1/1", "--write", "--token-file", str(token), config=hooked(tmp_path))
        assert result.exit_code == 0, result.output
        assert "no record of 5 steps" in result.stderr
        assert events_of(node) == []
        assert len((state / "recover" / "n1.jsonl").read_text().splitlines()) == 5


# -- Settings and hooks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[recover.hooks]\ndrian = "/bin/true"', "Did you mean 'drain'?"),
        ('[recover.hooks]\ndrain = "scontrol update nodename=x"', "no shell splits it"),
        ('[recover.hooks]\ndrain = ["true"]', "no absolute path"),
        ("[recover.hooks]\ndrain = []", "it is empty"),
        ('[recover.hooks]\ndrain = ["/bin/sh", "-c", "x"]', "a command for a shell"),
        ('[recover.hooks]\ndrain = ["/bin/x", "{node}"]', "nothing is put into arguments"),
        ('[recover.hooks]\ndrain = ["/bin/x", "$KILOWATCH_NODE"]', "nothing is put into arguments"),
        ("[recover]\ntimeout_seconds = 0", "is no time limit"),
        ("[recover.timeouts]\ndrain = -1", "is no time limit"),
        ("[recover.timeouts]\nwait = 5", "there is no such step"),
        ("[recover]\ncheck_seconds = 1e9", "0 to 86400"),
        ("[recover]\nhook = 1", "Did you mean 'hooks'?"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError) as error:
        kilowatch_settings.load(path, {})
    assert words in str(error.value)
    assert "recover" in error.value.where


@pytest.mark.parametrize(("mode", "words"), [(0o777, "other users may write"), (0o600, "no program that can be run")])
async def test_a_program_that_others_can_change_is_not_run(tmp_path: Path, mode: int, words: str) -> None:
    async with broken() as (node, opened):
        node.xid(62, gpu=1)
        bad = recorder(tmp_path, "bad")
        bad.chmod(mode)
        result = await typed(opened, "recover", "n1/1", "--write", config=hooked(tmp_path, reset=str(bad)))
        assert result.exit_code == ExitCode.USAGE
        assert words in result.stderr
        assert ran(tmp_path) == []


def test_the_doctor_looks_at_each_hook(tmp_path: Path) -> None:
    """One that is missing, can't be run, or that others may change or put another in place of."""
    shared = tmp_path / "shared"
    shared.mkdir()
    good, plain, loose = (program(tmp_path / name) for name in ("good", "plain", "loose"))
    swapped = program(shared / "swapped")
    plain.chmod(0o644)
    loose.chmod(0o757)
    shared.chmod(0o777)
    named = {"drain": good, "stop": tmp_path / "none", "reset": plain, "reboot": loose, "uncordon": swapped}
    found = hooks(RecoverConfig(hooks={step: str(path) for step, path in named.items()}))
    assert [(one.level, one.text.removeprefix("recover.hooks.").partition(":")[0]) for one in found] == [
        ("ok", "drain"), ("fault", "stop"), ("fault", "reset"), ("fault", "reboot"), ("fault", "uncordon"),
    ]  # fmt: skip
    texts = [one.text for one in found[1:]]
    for text, words in zip(texts, ("No such file", "can be run", "may write", "in its place"), strict=True):
        assert words in text
    assert all(one.cure for one in found[1:])
    (nothing,) = hooks(RecoverConfig())
    assert (nothing.level, "none is configured" in nothing.text) == ("ok", True)


def test_odd_names_do_not_reach_a_hook() -> None:
    gpu = Gpu(uuid="GPU-1$(reboot)", index=3, name="", serial="a b", pci="0000:18:00.0")
    plan = plan_of_rule(Place("n1", gpu), "gpu_fault", Remediation.RESET)
    found = environment_of(plan, StepKind.RESET, 60.0, "bob; rm")
    assert (found["KILOWATCH_UUID"], found["KILOWATCH_SERIAL"], found["KILOWATCH_WHO"]) == ("", "", "")
    assert (found["KILOWATCH_PCI"], found["KILOWATCH_GPU"], found["KILOWATCH_UUIDS"]) == ("0000:18:00.0", "3", "")


def test_a_hook_has_no_kilowatch_settings_no_input_and_only_the_end_of_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILOWATCH__ALERTS__PROXY", "http://secret")
    talks = program(tmp_path / "talks", "env | grep KILOWATCH", "cat", "seq 20000", "printf 'a\\033[2Jb\\n'")
    done = run_hook((str(talks),), {"KILOWATCH_NODE": "n1"}, 30)
    assert (done.outcome, done.exit_code) == ("done", 0)
    assert len(done.output) <= 4096
    assert done.output.splitlines()[-2:] == ["20000", "a?[2Jb"]
    first = program(tmp_path / "first", "env | grep KILOWATCH")
    assert run_hook((str(first),), {"KILOWATCH_NODE": "n1"}, 30).output == "KILOWATCH_NODE=n1"


def test_help_says_that_nothing_is_run() -> None:
    shown = CliRunner().invoke(main, ["recover", "-h"])
    assert shown.exit_code == 0
    assert "Without --write nothing is run." in " ".join(shown.output.split())
