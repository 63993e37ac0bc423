"""Tasks, threads and child processes are started in known places alone, each with what notices its end."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.kit.packages import PACKAGES

ROOT = Path(__file__).parents[2]
STARTERS = {
    "create_task", "ensure_future", "Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor",
    "Popen", "Process", "posix_spawn", "fork", "create_subprocess_exec", "create_subprocess_shell",
    "start_new_thread",
}  # fmt: skip
SUPERVISED = "a Supervisor runs each"
PLACES = {
    "aggregator/alerting/service.py": SUPERVISED,
    "aggregator/electrical/service.py": SUPERVISED,
    "aggregator/meters/feed.py": "looks five times a second whether it lives, and begins it anew",
    "aggregator/meters/hub.py": SUPERVISED,
    "aggregator/meters/mqtt.py": SUPERVISED,
    "aggregator/service.py": SUPERVISED,
    "alerts/delivery/outbox.py": SUPERVISED,
    "collector/commands/recorder.py": "awaited at once; the reader of the kernel log is supervised",
    "collector/service.py": SUPERVISED + "; the source's end is awaited",
    "telemetry/runtime/supervision.py": "a thread whose end is awaited",
    "telemetry/runtime/worker_threads.py": "a pool that is watched",
    "telemetry/wire/mqtt.py": "pings: without them the connection ends, which whoever has it is told",
    "telemetry/runtime/systemd.py": "without it the watchdog starves, and systemd starts the process again",
    "collector/publish/publisher.py": "a group of `unending` tasks: the end of one fails the publisher",
    "collector/host/kernel_log.py": "for tests; the service runs it supervised",
    "collector/host/fabric.py": "each round looks whether it lives",
    "collector/host/storage_clients.py": "its answer grows old, and is a gap `timed_out`",
    "collector/host/program_thread.py": "each tick looks whether it lives; its old answers are gaps `timed_out`",
    "collector/http/request.py": "a timer that ends a request: without it the request has no limit",
    "aggregator/cluster/cluster_view.py": "awaited by all who ask for the present, and begun anew a second later",
    "aggregator/cluster/nats.py": "answers one request; what it raises is logged, and who asked has a limit",
    "aggregator/site/incident_candidate.py": "awaited at once",
    "aggregator/cluster/member.py": "a group: the end of one is that of the member, which is supervised",
    "aggregator/scheduler/command.py": "awaited with a limit, then ended with its process group",
    "kilowatch/check/measurements.py": "awaited with a limit",
    "collector/host/mounts.py": "each slow tick looks at its result",
    "collector/sampling/known_devices.py": "short: it writes one file",
    "collector/jobs/service.py": "each look takes the results that have come",
    "collector/amd/library.py": "its answers grow old, and are gaps `timed_out`",
    "collector/probed/probe_supervisor.py": "each tick looks at its result",
    "collector/probe/parent.py": "collector.probed.probe_supervisor looks at it at each tick",
    "collector/probe/watchdog.py": "one that does not return is abandoned, and another started",
    "collector/probe/child.py": "reports its fault to the collector, which starts another process",
    "collector/smi/command_source.py": "each tick looks at it",
    "aggregator/evidence/collector.py": "a group of `unending` tasks: the end of one fails the collector",
    "aggregator/homeassistant/publisher.py": "each update looks whether it lives",
    "aggregator/influx/sender.py": "each status of the store looks whether it lives",
    "aggregator/mqtt/client.py": "awaited at once",
    "aggregator/assembly/http_server.py": SUPERVISED,
    "aggregator/web/made_once.py": "awaited by all who ask for the same, and made anew where it failed",
    "aggregator/http/listener.py": "a handshake: its end is that of the connection",
    "aggregator/store/duck.py": "a timer that cancels a query: without it the query has no limit",
    "aggregator/http/stream.py": "a viewer: its end is that of the viewer's connection",
    "aggregator/http/stream_hub.py": "awaited by the viewers that want its result",
    "alerts/delivery/worker.py": "a request: awaited by its channel",
    "alerts/notifiers/apprise.py": "a request: awaited with a limit",
    "kilowatch/stack/collectors.py": "a group: the end of one is that of the command",
    "kilowatch/stack/foreground.py": "the end of the child's output is that of the thread, and the dashboard looks at the child",
    "kilowatch/stack/parent.py": "the kernel ends a child whose parent has ended; the parent looks at the child",
    "kilowatch/stack/simulators.py": "short: the process ends with them, and the parent looks at the process",
    "kilowatch/stack/stack.py": "a group: the end of one is that of the command",
    "kilowatch/clients/tap.py": "awaited at once",
    "kilowatch/recovery/hooks.py": "awaited with a limit, then ended with its process group",
}
"""Files that start something, and what notices its end."""


def starters(path: Path) -> set[str]:
    """The names of all calls in a file that start a task, a thread or a process."""
    found: set[str] = set()
    source = path.read_text("utf-8")
    if not any(name in source for name in STARTERS):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in STARTERS:
                found.add(name)
    return found


def test_whatever_starts_something_says_who_notices_its_end() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in set(PACKAGES) - {"tui"}
        for path in (ROOT / package).rglob("*.py")
        if starters(path)
    }
    assert found - PLACES.keys() == set(), "new: name it in PLACES, with what notices its end"
    assert PLACES.keys() - found == set(), "gone: remove it from PLACES"


def test_a_place_that_starts_something_is_found(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text("import threading\nthreading.Thread(target=print).start()\n")
    assert starters(path) == {"Thread"}
