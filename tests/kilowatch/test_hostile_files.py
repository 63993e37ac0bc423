"""Files that an operator was sent, and that were made to harm: bounded in time, memory and in what the
terminal gets. Commands run in a process of their own, with limits that only a file without end meets.
"""

from __future__ import annotations

import gzip
import json
import lzma
import resource
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from alerts.diagnosis.burst import MOST_BURSTS
from alerts.diagnosis.diagnosis import Diagnosis
from collector.recording.file import RecordingHeader, RecordingWriter, Skipped, read
from collector.ring.segment import RECORDS
from collector.smi.document import MAX_DEPTH, MAX_GPUS_OF_A_LOG, MAX_VALUES
from collector.smi.file import documents_of
from kilowatch.__main__ import main
from kilowatch.saved_logs import archive
from kilowatch.saved_logs.reader import SavedLogReader
from kilowatch.text.alerts import replay_lines
from telemetry.files.expansion import LimitError, expanded
from telemetry.text.printable import printable_json
from telemetry.wire.topics import Topic

LOST = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"
CPU_SECONDS = 60
"""Seconds that a command may compute: those that end need 3, those without an end would need hours."""
MEMORY = 2 * 1024**3
EVIL = "\x1b]0;owned\x07\x9b31m\u202e\x08"
HARM = ("\x1b", "\x9b", "\u202e", "\x07", "\x08")
MIB = 1024 * 1024


def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with limits on its computing time and its memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-m", "kilowatch", *arguments], preexec_fn=limit, capture_output=True, text=True, check=False
    )


def zeros(kind: str, mebibytes: int, start: bytes = b"") -> bytes:
    """Return a compressed file of so many MiB of zeros, behind its beginning."""
    pack = gzip.compress if kind == "gz" else lzma.compress
    return (pack(start) if start else b"") + pack(bytes(16 * MIB)) * (mebibytes // 16)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_small_file_of_zeros_ends_diagnose_with_what_was_read(tmp_path: Path, kind: str) -> None:
    """2 GiB of zeros: 2 MB of gzip, 0.3 MB of xz; and a fault before them."""
    path = tmp_path / f"bomb.{kind}"
    path.write_bytes(zeros(kind, 2048, LOST.encode()))
    assert path.stat().st_size < 2.2e6
    done = limited("diagnose", "--json", str(path))
    assert done.returncode == 2, done.stderr[-500:]
    (found,) = json.loads(done.stdout)["findings"]
    assert found["fault"] == "gpu_lost"
    assert "were read, the rest was not" in done.stderr
    assert "--max-size 1G" in done.stderr or "--max-size 4G" in done.stderr


def test_a_file_that_could_not_be_read_to_its_end_is_no_healthy_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, and words that say so; the other files are read."""
    monkeypatch.setattr("telemetry.files.expansion.FREE_BYTES", 4 * MIB)
    bomb, log = tmp_path / "bomb.xz", tmp_path / "dmesg"
    bomb.write_bytes(zeros("xz", 128))
    log.write_text(LOST)
    alone = CliRunner().invoke(main, ["diagnose", str(bomb)])
    assert alone.exit_code == 3
    assert "could not judge" in alone.stdout
    assert "no fault" not in alone.stdout
    both = CliRunner().invoke(main, ["diagnose", str(bomb), str(log)])
    assert both.exit_code == 2
    assert "gpu_lost" in both.stdout
    assert "bomb.xz" in both.stdout


def test_max_size_is_a_limit_that_a_person_gives(tmp_path: Path) -> None:
    """Also for what the ratio would refuse; and of what is not compressed."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(zeros("gz", 96))
    with path.open("rb") as file:
        assert sum(map(len, expanded(file, "a", [], 128 * MIB))) == 96 * MIB
    with path.open("rb") as file, pytest.raises(LimitError, match=r"more than 64 MiB"):
        list(expanded(file, "a", [], 64 * MIB))
    plain = tmp_path / "plain"
    plain.write_bytes(b"a" * 5000)
    with plain.open("rb") as file, pytest.raises(LimitError, match=r"more than 3\.9 KiB"):
        list(expanded(file, "a", [], 4000))
    result = CliRunner().invoke(main, ["diagnose", "--max-size", "1K", str(plain)])
    assert result.exit_code == 3
    assert "it holds more than 1 KiB" in result.output
    assert CliRunner().invoke(main, ["diagnose", "--max-size", "some", "x"]).exit_code == 64


def test_members_and_levels_of_compression_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"") * 70_000)
    with path.open("rb") as file, pytest.raises(LimitError, match="65,536 compressed files"):
        list(expanded(file, "a", []))
    path.write_bytes(gzip.compress(gzip.compress(LOST.encode())))
    result = CliRunner().invoke(main, ["diagnose", str(path)])
    assert result.exit_code == 3
    assert "compressed twice" in result.output
    path.write_bytes(b"PK\x03\x04rest")
    assert "damaged or locked zip archive" in CliRunner().invoke(main, ["diagnose", str(path)]).output


def test_a_dictionary_of_xz_takes_no_memory(tmp_path: Path) -> None:
    """A header may demand 1.5 GiB before the first byte; the size is one byte of it."""
    head = lzma.compress(b"a" * 100, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}])
    made = bytearray(head)
    at = 12  # block header: size, flags, filter id 0x21, 1, dictionary size
    assert made[at + 2 : at + 4] == b"\x21\x01"
    made[at + 4] = 37
    end = at + (made[at] + 1) * 4 - 4
    made[end : end + 4] = zlib.crc32(bytes(made[at:end])).to_bytes(4, "little")
    path = tmp_path / "log.xz"
    path.write_bytes(bytes(made))
    result = CliRunner().invoke(main, ["diagnose", str(path)])
    assert result.exit_code == 3
    assert "Memory usage limit" in result.output


HOSTILE_SMI = {
    "comments": "--><nvidia_smi_log>" + "<!--" * 1_500_000,
    "depth": "<nvidia_smi_log><gpu id='a'>" + "<a>" * 100_000 + "</b>" * 100_000,
    "closed": "<nvidia_smi_log><gpu id='a'>" + "<a>" * 100_000 + "</a>" * 100_000,
    "gpus": "<nvidia_smi_log>" + "<gpu id='a'></gpu>" * 100_000,
    "documents": "<nvidia_smi_log>" * 100_000,
    "values": "<nvidia_smi_log><gpu id='a'>" + "".join(f"<a{n}>1</a{n}>" for n in range(70_000)),
    "uuids": "GPU 1: a (UUID: x\n" * 100_000 + "=NVSMI LOG=",
    "labels": "=NVSMI LOG=\nGPU 00000000:3B:00.0\n" + "".join(f"{' ' * n}{'l' * 4000}: 1\n" for n in range(1, 2000)),
    "kernel": "".join(f"NVRM: Xid ({n:x}): {n % 900000}\n" for n in range(70_000)),
    "journal": '{"MESSAGE": "NVRM", "a": ' + "[" * 3900 + "\n",
    "no line": "NVRM" * 3_000_000,
}


@pytest.mark.parametrize("name", HOSTILE_SMI)
def test_a_log_that_is_made_to_be_slow_is_read_in_the_time_of_its_length(tmp_path: Path, name: str) -> None:
    """Each took hours or gigabytes: a search from each place to the end, or a copy at each level."""
    path = tmp_path / "log.xz"
    path.write_bytes(lzma.compress(HOSTILE_SMI[name].encode(), preset=0))
    done = limited("diagnose", "--json", str(path))
    assert done.returncode in {0, 1, 2, 3}, done.stderr[-500:]
    assert "Traceback" not in done.stderr
    json.loads(done.stdout)


def test_gpus_levels_values_and_faults_of_a_log_are_bounded() -> None:
    """Logs of which each holds more than one bound allows."""
    documents = documents_of(HOSTILE_SMI["gpus"], "gpus")
    assert isinstance(documents, list)
    assert [len(one.gpus) for one in documents] == [MAX_GPUS_OF_A_LOG]
    for name in ("values", "depth", "closed", "labels"):
        documents = documents_of(HOSTILE_SMI[name], name)
        assert isinstance(documents, list)
        values = [key for one in documents for gpu in one.gpus for key in gpu.values]
        assert len(values) <= MAX_VALUES
        assert name != "values" or len(values) == MAX_VALUES
        assert max((key.count("/") for key in values), default=0) < MAX_DEPTH
    diagnosis = Diagnosis()
    diagnosis.feed(HOSTILE_SMI["kernel"])
    assert diagnosis.full
    assert 40_000 < diagnosis.kept <= MOST_BURSTS


@pytest.mark.parametrize("kind", ["tar", "zip", "folder"])
def test_files_of_archives_and_folders_are_bounded_and_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor is an archive in an archive read."""
    monkeypatch.setattr(archive, "MAX_FILES", 5)
    folder, beyond = tmp_path / "logs", tmp_path / "secret"
    folder.mkdir()
    beyond.write_text(LOST)
    (folder / "a-link").symlink_to(beyond)
    (folder / "b").write_text("plain\n")
    with tarfile.open(tmp_path / "inner.tar", "w") as inner:
        inner.add(beyond, "dmesg")
    shutil.copy(tmp_path / "inner.tar", folder / "c.tar")
    path = folder
    if kind == "tar":
        with tarfile.open(path := tmp_path / "logs.tar", "w") as packed:
            packed.add(folder, "logs")
    elif kind == "zip":
        with zipfile.ZipFile(path := tmp_path / "logs.zip", "w") as zipped:
            for name in ("b", "c.tar"):
                zipped.write(folder / name, name)
            link = zipfile.ZipInfo("a-link")
            link.external_attr = 0o120777 << 16
            zipped.writestr(link, str(beyond))
    reader = SavedLogReader()
    reader.read(path)
    # An archive in a folder is one of its files.
    assert [one.node for one in reader.reply().findings] == ["c.tar"] * (kind == "folder")
    for number in range(5):
        (folder / f"more-{number}").write_text("plain\n")
        if kind == "tar":
            with tarfile.open(path, "a") as packed:
                packed.add(folder / f"more-{number}", f"more-{number}")
        elif kind == "zip":
            with zipfile.ZipFile(path, "a") as zipped:
                zipped.write(folder / f"more-{number}", f"more-{number}")
    reader = SavedLogReader()
    reader.read(path)
    problems = [problem for file in reader.reply().files for problem in file.problems]
    assert any("more than 5 files; the first were read" in problem for problem in problems)


# -- Recordings ----------------------------------------------------------------------------------


def recording(path: Path, times: list[int], node: str = "n1") -> Path:
    """Write a recording with one message at each time."""
    writer = RecordingWriter(path, RecordingHeader())
    for at in times:
        writer.write(at, Topic.STATUS, node, b"")
    writer.close()
    return path


def block(entries: list[tuple[int, str, str, bytes]]) -> bytes:
    """Return a block as another program may write it."""
    return RECORDS.pack(zlib.compress(msgspec.msgpack.encode(entries)), 0)


DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    "times",
    [[0, 4_102_444_799 * 10**9], [4 * DAY * n for n in range(4)]],
    ids=["1970 and 2099", "a message in four days"],
)
def test_a_recording_with_little_in_it_is_replayed_in_little_time(tmp_path: Path, times: list[int]) -> None:
    """Its silences are skipped, and the outcome says how long they were."""
    path = recording(tmp_path / "a.kwrec", times)
    done = limited("replay", "--only", "--json", str(path))
    assert done.returncode == 0, done.stderr[-500:]
    outcome = json.loads(done.stdout)
    assert outcome["messages"] == len(times)
    assert outcome["seconds_skipped"] > 10 * 86_400
    assert outcome["last"] == times[-1]


def test_impossible_messages_are_left_out_and_counted(tmp_path: Path) -> None:
    """Times that no calendar has, names that no topic has, lists without end."""
    path = recording(tmp_path / "a.kwrec", [10**18])
    wrong = [(-1, "frame", "n", b""), (2**63, "frame", "n", b""), (1, "frame", EVIL, b""), (1, "later kind", "n", b"")]
    with path.open("ab") as file:
        file.write(block(wrong))
        file.write(block([(10**18, "frame", "n", b"")] * 70_000))
        file.write(RECORDS.pack(zlib.compress(bytes(64 * MIB)), 0))
        file.write(RECORDS.pack(b"no zlib", 0))
    skipped = Skipped()
    assert [one.at for one in read(path, None, skipped)] == [10**18]
    assert (skipped.messages, skipped.blocks) == (3, 3)
    result = CliRunner().invoke(main, ["replay", str(path)])
    assert "3 damaged blocks and 3 impossible messages of the file left out" in result.output
    with pytest.raises(LimitError, match="--max-size"):
        list(read(path, 10))


def test_a_recorder_writes_nothing_that_it_could_not_read(tmp_path: Path) -> None:
    """Too long, or of an impossible node; and it ends at its size."""
    path = tmp_path / "a.kwrec"
    writer = RecordingWriter(path, RecordingHeader(), max_size=10_000)
    writer.write(1, Topic.FRAME, "n", bytes(7 * MIB))
    writer.write(1, Topic.FRAME, EVIL, b"")
    assert writer.left_out == 2
    for number in range(100):
        writer.write(number * 3 * 10**9, Topic.FRAME, "n", bytes(range(256)) * 4)
    assert writer.full.is_set()
    writer.close()
    assert path.stat().st_size < 12_000
    assert len(list(read(path))) == writer.written > 0


# -- What the terminal gets ----------------------------------------------------------------------


def shows_no_harm(text: str) -> None:
    """Nothing that a terminal obeys, and no mark that turns the text."""
    for harm in HARM:
        assert harm not in text, repr(text)


def test_diagnose_prints_no_escape_of_a_log() -> None:
    line = f"[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name={EVIL}, lost\n"
    for more in ([], ["--json"]):
        result = CliRunner().invoke(main, ["diagnose", *more, "-"], input=line.encode())
        assert result.exit_code == 2
        shows_no_harm(result.output)
    assert json.loads(result.stdout)["findings"][0]["line"].count(EVIL) == 1, "JSON loses nothing"


def test_errors_print_no_escape_of_a_name_or_a_file(tmp_path: Path) -> None:
    bad = tmp_path / "a.toml"
    bad.write_text('[collector]\n"\\u001b]0;owned\\u0007" = 1\n')
    for arguments in (
        ["diagnose", f"/nowhere/{EVIL}"],
        ["replay", f"/nowhere/{EVIL}"],
        ["config", "check", "--config", str(bad)],
        ["config", "check", "--config", f"/nowhere/{EVIL}"],
        ["rules", "check", f"/nowhere/{EVIL}"],
        [EVIL],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in {3, 64}
        shows_no_harm(result.output)


def test_the_log_is_one_printable_line_an_event_whatever_it_quotes() -> None:
    """In the process as it runs: message, exception and its text."""
    code = (
        "import logging, click\n"
        "from kilowatch.__main__ import main\n"
        "@main.command('speak')\n"
        "def speak():\n"
        f"    evil = {EVIL!r} + '\\nERROR kilowatch: forged'\n"
        "    logging.getLogger('x').error('said %s', evil)\n"
        "    try:\n        raise ValueError(evil)\n"
        "    except ValueError:\n        logging.getLogger('x').exception('failed')\n"
        "main.get_command = lambda ctx, name: main.commands[name]\n"
        "main.resolve_command = lambda ctx, args: ('speak', main.commands['speak'], [])\n"
        "main(['speak'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shows_no_harm(done.stderr)
    events = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert len(events) == 2, done.stderr
    assert "said ?]0;owned??31m???ERROR kilowatch: forged" in events[0]


def test_json_for_a_terminal_has_the_same_values() -> None:
    value = {"a": EVIL + "\U000e0001 é 日本 \U0001f600\x7f"}
    text = printable_json(msgspec.json.encode(value).decode())
    shows_no_harm(text)
    assert "\x7f" not in text
    assert "é 日本" in text
    assert json.loads(text) == value


def test_only_one_module_of_the_commands_writes_to_the_terminal() -> None:
    """So that none forgets to make its text printable."""
    root = Path(__file__).parents[2] / "kilowatch"
    allowed = {"output.py", "__main__.py"}
    wrong = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if str(path.relative_to(root)) not in allowed
        and any(word in path.read_text() for word in ("click.echo", "click.secho", "click.style"))
    ]
    assert not wrong, f"use kilowatch.output.echo: {wrong}"


def test_a_damaged_file_of_several_keeps_the_findings_of_the_others(tmp_path: Path) -> None:
    """Lines before the damage count too."""
    path = tmp_path / "a.gz"
    packed = gzip.compress(LOST.encode() + bytes(range(256)) * 4000, mtime=0)
    path.write_bytes(packed[:400] + b"\xff" * 64 + packed[464:])
    reader = SavedLogReader()
    reader.read(path)
    assert [one.fault for one in reader.incidents()] in (["gpu_lost"], [])
    reader.read(tmp_path / "no")
    damaged, missing = reader.reply().files
    assert damaged.problems
    assert "no such file" in missing.problems[0]


def test_replay_lines_say_what_was_skipped(tmp_path: Path) -> None:
    """For people, too."""
    from aggregator.config import AggregatorConfig
    from alerts.rules.rule import load
    from kilowatch.replay.outcome import replay

    path = recording(tmp_path / "a.kwrec", [0, 10 * DAY])
    outcome = replay(path, read(path), load(), AggregatorConfig(rule_seconds=10.0))
    assert any("without a message skipped" in line for line in replay_lines(outcome))
