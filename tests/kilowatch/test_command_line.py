"""The command line is the same everywhere: how an aggregator is named, JSON, and how a command ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode
from tests.aggregator.http_client import door
from tests.web.busy_lab import busy_lab

YES = ""
SERVICE = "is a service or a whole cluster: where it listens is its setting"
NODE = "looks at this machine or at its files, whether an aggregator runs or not"
BUS = "speaks to the broker, and works while no aggregator runs"
MANY = "takes any number of words: an address behind them would be one of them"
MAKES = "makes files, and prints what is to be done with them"
CODE = "says what is wrong with a file or a server, a line each; its exit code is the answer"
LIVE = "is a program on a terminal; `status --json` has its figures"
PAGE = "prints a file of another program's form"
LOCAL = "changes files of the aggregator on its own machine"
NATS = "asks NATS, which knows members that answer no more"
PEOPLE = "is a step of an operator: its exit code says whether it was done"
OTHER = "asks NetBox, whose address is its argument"

TAKES: dict[str, tuple[str, str, str]] = {
    # command: ADDRESS, --http, --json; YES, or why not
    "run": (SERVICE, SERVICE, SERVICE), "demo": (SERVICE, SERVICE, YES), "collect": (SERVICE, SERVICE, YES),
    "aggregate": (SERVICE, SERVICE, SERVICE),
    "top": (YES, YES, LIVE), "status": (YES, YES, YES), "who": (YES, YES, YES), "jobs": (YES, YES, YES),
    "job": (YES, YES, YES), "circuits": (YES, YES, YES), "plan": (YES, YES, YES), "fit": (YES, YES, YES),
    "cap": (YES, YES, YES), "report": (YES, YES, YES), "drift": (YES, YES, YES), "diff": (YES, YES, YES),
    "alerts list": (YES, YES, YES), "alerts quality": (YES, YES, YES), "alerts show": (YES, YES, YES),
    "ack": (YES, YES, YES), "silence": (MANY, YES, YES), "notify list": (YES, YES, YES), "notify test": (YES, YES, YES),
    "recover": (YES, YES, YES), "rules list": (YES, YES, YES), "forget": (YES, YES, YES),
    "nodes list": (YES, YES, YES), "nodes expect": (MANY, YES, YES), "nodes rename": (YES, YES, YES),
    "nodes retire": (YES, YES, YES),
    "tap": (BUS, BUS, YES), "record": (BUS, BUS, PAGE), "command": (BUS, BUS, PEOPLE),
    "token add": (LOCAL, LOCAL, MAKES), "token list": (LOCAL, LOCAL, YES), "token revoke": (LOCAL, LOCAL, PEOPLE),
    "config check": (NODE, NODE, CODE), "config show": (NODE, NODE, YES), "doctor": (NODE, NODE, YES),
    "verify": (NODE, NODE, YES), "check": (NODE, NODE, YES), "diagnose": (NODE, NODE, YES), "xid": (NODE, NODE, YES),
    "replay": (NODE, NODE, YES), "rules check": (NODE, NODE, CODE), "rules test": (NODE, NODE, CODE),
    "rules prometheus": (NODE, NODE, PAGE), "power check": (NODE, NODE, CODE), "power import netbox": (OTHER, OTHER, PAGE),
    "influx check": (NODE, NODE, CODE), "influx setup": (NODE, NODE, CODE),
    "cluster": (NATS, NATS, YES), "cluster nats-config": (NODE, NODE, PAGE),
    "init": (NODE, NODE, MAKES), "pki init": (NODE, NODE, MAKES), "pki node": (NODE, NODE, MAKES),
    "pki aggregator": (NODE, NODE, MAKES), "pki renew": (NODE, NODE, MAKES), "pki revoke": (NODE, NODE, MAKES),
    "pki acl": (NODE, NODE, PAGE), "pki show": (NODE, NODE, YES),
}  # fmt: skip
WORDS = {
    "who": ["n1"], "job": ["4711"], "fit": ["dgx-h100"], "alerts show": ["abc"], "ack": ["abc"], "notify test": ["ops"],
    "recover": ["n1"], "forget": ["n1"], "nodes expect": ["n1"], "nodes rename": ["n1", "n2"],
    "nodes retire": ["n1"], "diff": ["n1", "n2"], "silence": ["node=n1", "--for", "1h", "--why", "x"],
    "cap": ["--circuit", "a", "--below", "1kW"],
}  # fmt: skip
"""Arguments that a command needs besides an aggregator."""
NOBODY = "127.0.0.1:1"


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(main))
BY_HTTP = [name for name, (_, http, _) in TAKES.items() if http == YES and name != "top"]
"""Without `top`, which waits for an aggregator (tests/tui)."""
BY_ADDRESS = [name for name, (address, _, _) in TAKES.items() if address == YES]


def takes(command: click.Command) -> tuple[bool, bool, bool]:
    """Return whether a command takes ADDRESS, `--http` of a running aggregator, and `--json`."""
    words = [each for each in command.params if isinstance(each, click.Argument)]
    options = {name for each in command.params for name in each.opts}
    address = bool(words) and words[-1].make_metavar(click.Context(command)) == "[ADDRESS]"
    return address, {"--http", "--token-file", "--ca"} <= options, "--json" in options


def test_the_table_has_every_command_and_no_other() -> None:
    assert TAKES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", TAKES)
def test_a_command_takes_what_the_table_says(name: str) -> None:
    assert takes(COMMANDS[name]) == tuple(each == YES for each in TAKES[name])


@pytest.mark.parametrize("name", BY_HTTP)
def test_an_aggregator_that_does_not_answer_is_3_however_it_is_named(name: str) -> None:
    """And the word of one too many is wrong use, never an address that nobody meant."""
    words = [*name.split(), *WORDS.get(name, ())]
    forms = [["--http", NOBODY], *([[NOBODY], ["1"], [f"http://{NOBODY}"]] if name in BY_ADDRESS else ())]
    for form in forms:
        result = CliRunner().invoke(main, [*words, *form])
        assert result.exit_code == ExitCode.UNJUDGED, (form, result.output)
        assert "Traceback" not in result.output
    if name in BY_ADDRESS:
        two = CliRunner().invoke(main, [*words, NOBODY, "--http", "127.0.0.1:2"])
        assert two.exit_code == ExitCode.USAGE, two.output
        assert "Two aggregators are named" in two.output


@pytest.mark.parametrize("name", [name for name in BY_ADDRESS if name not in {"top", "status"}])
def test_a_word_too_many_is_no_address(name: str) -> None:
    result = CliRunner().invoke(main, [*name.split(), *WORDS.get(name, ()), "dgx-02"])
    assert result.exit_code == ExitCode.USAGE, result.output
    assert "'dgx-02' is no address. Write HOST:PORT, a port or a URL." in result.output


def test_status_without_an_answer_is_json_too() -> None:
    result = CliRunner().invoke(main, ["status", "--json", NOBODY])
    assert result.exit_code == ExitCode.UNJUDGED
    assert "fault" in json.loads(result.output)


async def test_an_aggregator_answers_by_address_as_by_option() -> None:
    """A bare address led to wrong use before."""
    view = await busy_lab()
    async with door(view) as opened:
        token = ["--token-file", str(opened.token_file)]
        for words in (["jobs"], ["drift"], ["diff", "n1", "n2"], ["who", "n1"], ["nodes", "list"]):
            shown = [
                await asyncio.to_thread(CliRunner().invoke, main, [*words, *form, *token, *json_])
                for json_ in ([], ["--json"])
                for form in ([f"127.0.0.1:{opened.port}"], ["--http", opened.url])
            ]
            assert {each.exit_code for each in shown} <= {0, 1, 3}, shown[0].output
            assert len({each.exit_code for each in shown}) == 1
            assert "no aggregator answers" not in "".join(each.output for each in shown)
            assert all(isinstance(json.loads(each.stdout), dict) for each in shown[2:])


async def test_who_uses_a_node_is_asked_of_an_aggregator() -> None:
    view = await busy_lab()
    async with door(view) as opened:
        http = ["--http", opened.url, "--token-file", str(opened.token_file)]

        async def who(*words: str) -> tuple[int, str]:
            result = await asyncio.to_thread(CliRunner().invoke, main, ["who", *words, *http])
            return result.exit_code, result.output

        message = view.jobs.lists["n1"]
        code, text = await who("n1")
        assert all(str(process.pid) in text for process in message.processes)
        assert message.processes
        assert json.loads((await who("n1", "--json"))[1])["processes"]
        assert (await who("m1"))[0] == ExitCode.UNJUDGED
        code, text = await who("GPU-n1-0")
        assert (code, "kilowatch who NODE ADDRESS" in text) == (ExitCode.USAGE, True)
        del view.jobs.lists["n1"]
        code, text = await who("n1")
        assert (code, "n1 has published no jobs" in text) == (ExitCode.UNJUDGED, True)
