"""docs/packages.md: each of its commands has a form that the program it names takes, and names what is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from kilowatch.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/packages.md").read_text()
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]
BIN = Path(sys.executable).parent
MADE = ("./dist/", "dist/")
"""What a command of the page has made by then."""


def of(program: str) -> list[list[str]]:
    return [shlex.split(each)[1:] for each in COMMANDS if each.split()[0] == program]


def ran(*command: str) -> None:
    # Ansible refuses an input that does not block, and a worker's may be such a one.
    ended = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_it_uses_these_programs_and_no_other() -> None:
    """One that is not here has its commands checked by hand, below, or is left out of the page."""
    assert {each.split()[0] for each in COMMANDS} == {
        "make", "apt-get", "dnf", "docker", "kubectl", "helm", "kilowatch", "ansible-playbook",
    }  # fmt: skip


@pytest.mark.parametrize("words", of("make"))
def test_make_has_its_targets(words: list[str]) -> None:
    ran("make", "--dry-run", *words)


@pytest.mark.parametrize(
    "word", [word for each in COMMANDS for word in shlex.split(each) if "/" in word and "example" not in word]
)
def test_every_path_is_there_or_was_made(word: str) -> None:
    path = word.rpartition("=")[2]
    assert path == "/tmp" or path.startswith(MADE) or (ROOT / path).exists(), word


@pytest.mark.parametrize("words", of("helm"))
def test_helm_takes_its_values(words: list[str]) -> None:
    verb, name, chart, *options = words
    assert verb in {"install", "upgrade"}
    ran("helm", "template", name, chart, *(word for word in options if word != "--reuse-values"))


def test_the_secret_has_the_keys_that_the_chart_reads() -> None:
    ((_, _, kind, name, password, token),) = of("kubectl")
    values = yaml.safe_load((ROOT / "deploy/helm/kilowatch/values.yaml").read_text())
    assert (kind, name) == ("generic", values["secret"])
    assert [each.partition("=")[2].partition("=")[0] for each in (password, token)] == ["password", "token"]


def test_the_image_is_run_by_a_command_of_it() -> None:
    arguments = next(words for words in of("docker") if words[0] == "run")
    assert arguments[-1] in main.list_commands(click.Context(main))


@pytest.mark.parametrize("words", of("kilowatch"))
def test_kilowatch_takes_its_options(words: list[str]) -> None:
    parent = click.Context(main)
    command = main.get_command(parent, words[0])
    assert command is not None
    with command.make_context(words[0], words[1:], parent=parent):
        pass


def test_the_playbook_fits_the_inventory_that_its_first_lines_show(tmp_path: Path) -> None:
    head = (ROOT / "deploy/ansible/site.yml").read_text().partition("# inventory.yml:\n")[2]
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(re.sub(r"^# ?", "", head.partition("\n- name")[0], flags=re.MULTILINE))
    ((*options, playbook, flag, variable),) = of("ansible-playbook")
    assert options == ["-i", "inventory.yml"]
    defaults = yaml.safe_load((ROOT / "deploy/ansible/roles/kilowatch/defaults/main.yml").read_text())
    assert variable.partition("=")[0] in defaults
    ran("ansible-playbook", "-i", str(inventory), playbook, flag, variable, "--syntax-check")
    hosts = yaml.safe_load(inventory.read_text())["all"]["children"]
    plays = yaml.safe_load((ROOT / playbook).read_text())
    assert {play["hosts"] for play in plays} == hosts.keys()
