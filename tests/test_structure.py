"""The tree is laid out as ARCHITECTURE.md says: rooms, no circles, pages that name files that exist; and no test
depends on the machine's speed."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.assertions import without_assertion
from tests.kit.packages import PACKAGES
from tests.kit.statements import statements

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("telemetry", "present", "power", "alerts", "collector", "aggregator", "tui", "kilowatch")
"""Packages whose modules lie in rooms: at most five may lie at the root."""
CIRCLES: dict[frozenset[str], str] = {}
"""Circles of imports that are allowed, each with its reason."""
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")


def imports(tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    """Yield each of our modules that a file imports, also for types alone or within a function."""
    for node in statements(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            found = name
            while found and found not in modules:
                found = found.rpartition(".")[0]
            if found:
                yield found


@cache
def graph() -> dict[str, set[str]]:
    """Return which module imports which."""
    paths = [path for name in (*PACKAGES, "bench") for path in (ROOT / name).rglob("*.py")]
    modules = {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__"): path for path in paths
    }
    return {
        name: set(imports(ast.parse(path.read_text(encoding="utf-8")), modules)) - {name}
        for name, path in modules.items()
    }


def circles(arrows: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the sets of modules that all reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in arrows[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            cut = stack.index(module)
            if len(stack) - cut > 1:
                found.append(frozenset(stack[cut:]))
            del stack[cut:]

    for module in sorted(arrows):
        if module not in order:
            visit(module)
    return found


def test_circles_are_found() -> None:
    """The search finds a circle behind a chain, and none where there is none."""
    arrows: dict[str, set[str]] = defaultdict(set)
    arrows |= {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}
    assert circles(dict(arrows)) == [frozenset("bcd")]
    assert circles({"a": {"b"}, "b": set(), "c": {"a", "b"}}) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """A circle is one concept in several files, or a border that does not hold."""
    found = [circle for circle in circles(graph()) if circle not in CIRCLES]
    assert not found, "\n".join(", ".join(sorted(circle)) for circle in found)


def folders(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return which folder of a package imports which other of the same package, with what lies below it."""
    inner = {".".join(name.split(".")[:2]) for name in arrows if name.count(".") > 1}

    def folder(module: str) -> str:
        own = ".".join(module.split(".")[:2])
        return own if own in inner else ""

    found: dict[str, set[str]] = {folder(module): set() for module in arrows}
    for module, others in arrows.items():
        here = folder(module)
        package = here.partition(".")[0] + "."
        found[here] |= {there for other in others if (there := folder(other)).startswith(package)}
    return {here: others - {here} for here, others in found.items() if here}


def test_folders_are_read_from_their_modules() -> None:
    """Modules at a package's root and other packages are no folders; a folder within one belongs to it."""
    arrows = {"p": set[str](), "p.root": {"p.a.x"}, "p.a": {"p.b"}, "p.a.x": {"p.root", "p.a", "q.c.z"}}
    arrows |= {"p.b": set(), "p.b.in.y": {"p.a.x"}, "q.c.z": set()}
    assert folders(arrows) == {"p.a": {"p.b"}, "p.b": {"p.a"}, "q.c": set()}


def test_no_folders_of_a_package_import_each_other_in_a_circle() -> None:
    """Folders in a circle are one folder: nobody can read, move or test one without all the others."""
    found = circles(folders(graph()))
    assert not found, "\n".join(", ".join(sorted(circle)) for circle in found)


@pytest.mark.parametrize("package", ROOTS)
def test_modules_lie_in_rooms(package: str) -> None:
    """A folder with thirty loose modules says nothing about what it does."""
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= 5, ", ".join(sorted(loose))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page: str) -> None:
    """Each path in backticks or in a link of a page is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)+[\w.*-]*)`", text) + re.findall(r"\]\(([\w./-]+)\)", text)
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing, ", ".join(missing)
    assert named


LOSING = {
    "wait_for": "on Python 3.11 one that comes together with the result (python/cpython#86296); "
    "write `async with asyncio.timeout(...)`",
    "TaskGroup": "for ever what a task of it loses; take `telemetry.runtime.tasks.TaskGroup`",
}
"""Names of asyncio that no package uses, each with which cancellation it loses."""


def losing(source: str) -> list[tuple[int, str]]:
    """Return line and name of each use of such a name."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name in LOSING:
                found.append((node.lineno, name))
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "asyncio":
                found += [(node.lineno, each.name) for each in names if each.name in LOSING]
    return found


def test_no_package_loses_a_cancellation() -> None:
    """A task group cancels once: with a task that loses it, the group waits for ever."""
    assert losing("import asyncio\nasync def f():\n    await asyncio.wait_for(g(), 1)\n") == [(3, "wait_for")]
    assert losing("from asyncio import sleep, wait_for\n") == [(1, "wait_for")]
    assert losing("async def f(condition):\n    await condition.wait_for(g)\n") == []
    found = [
        f"{path.relative_to(ROOT)}:{line}: asyncio.{name} loses {LOSING[name]}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != ROOT / "telemetry/runtime/tasks.py"  # it has the group that does not
        for source in [path.read_text(encoding="utf-8")]
        if any(name in source for name in LOSING)
        for line, name in losing(source)
    ]
    assert not found, "\n".join(found)


BUILDS = re.compile(r"msgspec\.(convert|(json|msgpack)\.(Decoder|decode))")


def building(source: str) -> list[int]:
    """Return the line of each call by which msgspec builds a decoder of a type."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and BUILDS.fullmatch(name := ast.unparse(node.func))
        if not name.endswith("decode") or any(each.arg == "type" for each in node.keywords)
    ]


def test_decoders_are_built_in_one_place() -> None:
    """Two threads that build them at once end the process."""
    assert building("import msgspec\nmsgspec.json.decode(f(x),\ntype=int)") == [2]
    assert building("import msgspec\nmsgspec.json.decode(x)") == []
    assert building("import msgspec\nx = msgspec.msgpack.Decoder(int)") == [2]
    door = ROOT / "telemetry/text/decoders.py"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for source in [path.read_text(encoding="utf-8")]
        if path != door and BUILDS.search(source)
        for line in building(source)
    ]
    assert building(door.read_text(encoding="utf-8"))
    assert not found, f"use {door.relative_to(ROOT)}: {found}"


# ---- Classes have a size -------------------------------------------------------------------------

MOST_MEMBERS = 25
"""Methods of a class, and attributes that it sets on itself."""
OWN = re.compile(r"\bself\.(\w+)")


def members(node: ast.ClassDef) -> tuple[int, int]:
    """Return how many methods a class has, and how many attributes it sets on itself."""
    methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
    attributes = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return methods, len(attributes)


LARGE: dict[str, tuple[int, int, str]] = {
    "aggregator.alerting.pipeline.AlertPipeline": (30, 24, "joins engine, incidents and journal, in the order of a tick"),
    "aggregator.alerting.service.AlertingService": (30, 30, "delivery, journal and outbox begin, fail and end together"),
    "aggregator.cluster.cluster_view.ClusterView": (32, 25, "answers all of `AggregatorView`"),
    "aggregator.cluster.member.ClusterMember": (31, 20, "one state of groups; split with the cluster's messages"),
    "aggregator.cluster.nats.NatsCoordination": (37, 11, "answers all of `Coordination`"),
    "aggregator.electrical.service.ElectricalService": (25, 28, "the shell of the circuits"),
    "aggregator.evidence.collector.EvidenceCollector": (31, 15, "a method for each source of evidence"),
    "aggregator.influx.store.InfluxStore": (27, 18, "answers all of the store's protocol"),
    "aggregator.ingest.router.MessageRouter": (43, 28, "a method for each kind of message; hot"),
    "aggregator.ingest.sequence.FrameSequence": (34, 14, "all on the account of one node; hot"),
    "aggregator.jobs.usage.UsageMeter": (26, 32, "columns by slot; hot"),
    "aggregator.service.Aggregator": (46, 39, "joins all parts, in the order of begin, tick and end"),
    "aggregator.store.duck.DuckEngine": (30, 8, "a method for each statement"),
    "aggregator.store.executor.StoreExecutor": (27, 11, "the store's protocol on its thread"),
    "aggregator.store.ledger.LedgerStore": (34, 19, "answers all of the store's protocol"),
    "aggregator.store.shared.store.SharedStore": (35, 24, "answers all of the store's protocol"),
    "alerts.engine.engine.RuleEngine": (45, 35, "to be split: the loop, what isolates it, its texts; hot"),
    "alerts.engine.rule_evaluator.RuleEvaluator": (27, 17, "a method for each state of a rule; hot"),
    "alerts.incidents.index.IncidentIndex": (40, 15, "several indexes of one set; hot in a storm"),
    "alerts.incidents.manager.IncidentManager": (30, 14, "a method for each act on an incident"),
    "alerts.journal.journal.Journal": (26, 16, "a method for each kind of record"),
    "collector.host.fabric.Fabric": (23, 26, "a descriptor for each file that it keeps open"),
    "collector.host.machine.Host": (33, 26, "a method for each group of readings"),
    "collector.jobs.service.JobsService": (17, 27, "joins the sources of jobs"),
    "collector.publish.publisher.Publisher": (27, 23, "one connection, its queue and its ring"),
    "collector.sampling.sampler.Sampler": (17, 36, "the state of a tick; hot"),
    "power.live.state.LivePower": (24, 43, "the live state of circuits, in the order of a tick"),
    "tui.app.Top": (42, 16, "Textual's application: a method for each of its events and of the frame's keys"),
}  # fmt: skip
"""Classes with more: methods, attributes, and why. A number may only become less, and no class may come."""


def test_a_class_has_25_methods_and_attributes_at_most() -> None:
    """More of them are several objects under one name, which nobody can test apart."""
    tree = ast.parse("class A:\n def f(self):\n  self.a, b.c = 1, 2\n  self.a += 1\n  self.d: int = self.e\n")
    assert members(next(node for node in tree.body if isinstance(node, ast.ClassDef))) == (1, 2)
    found: dict[str, tuple[int, int]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            source = path.read_text(encoding="utf-8")
            if max(source.count("def "), len(set(OWN.findall(source)))) <= MOST_MEMBERS:
                continue  # no class of the file can have more
            for node in statements(ast.parse(source)):
                if isinstance(node, ast.ClassDef) and max(counts := members(node)) > MOST_MEMBERS:
                    found[f"{module}.{node.name}"] = counts
    wrong = [
        f"{name}: {methods} methods and {attributes} attributes for {LARGE[name][:2] if name in LARGE else MOST_MEMBERS}: "
        "take an object with its own state out of it; where there are less, lower the numbers in LARGE"
        for name, (methods, attributes) in found.items()
        if name not in LARGE or (methods, attributes) != LARGE[name][:2]
    ]
    wrong += [f"{name}: is small enough: strike it from LARGE" for name in LARGE.keys() - found.keys()]
    assert not wrong, "\n".join(wrong)


# ---- Handlers name what they need ---------------------------------------------------------------

LOCATOR = "AggregatorView"
"""Everything of an aggregator that HTTP reads: for what needs many parts of it."""


def locating(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the functions that take everything, need two parts of it at most, and pass it on to nobody; and the parts."""
    for function in statements(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for argument in (*function.args.args, *function.args.kwonlyargs):
            if not isinstance(argument.annotation, ast.Name) or argument.annotation.id != LOCATOR:
                continue
            parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
            uses = [
                parents[id(node)]
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and node.id == argument.arg
            ]
            parts = {use.attr for use in uses if isinstance(use, ast.Attribute)}
            if all(isinstance(use, ast.Attribute) for use in uses) and len(parts) <= 2:
                yield function.name, sorted(parts)


def test_a_function_of_http_takes_the_two_parts_that_it_needs() -> None:
    """With everything in hand nobody sees what it is made of, and its test has to build an aggregator."""
    source = "async def f(view: AggregatorView, n: int):\n    await view.store.size(view.now())\n"
    assert list(locating(ast.parse(source))) == [("f", ["now", "store"])]
    assert not list(locating(ast.parse(source + "    view.fleet\n")))
    assert not list(locating(ast.parse(source + "    g(view)\n")))
    found = [
        f"{path.relative_to(ROOT)}: {name} takes an {LOCATOR} for {', '.join(parts)}"
        for folder in ("http", "web", "assembly")
        for path in sorted((ROOT / "aggregator" / folder).rglob("*.py"))
        for name, parts in locating(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


# ---- Numbers have their units in present -------------------------------------------------------

UNIT = re.compile(r"\s?(W|kW|MW|Wh|kWh|MWh|A|V|GiB|MiB|GB|MB|TB|Gb/s|GB/s|°C|MHz|GHz|%|kg)(?!\w)")
WITH_UNIT = re.compile(rf"\}}(['\"]\s*[fFrR]*['\"])?{UNIT.pattern}|%[}}'\"]")
"""Text of a file that puts a unit behind a number: behind its brace, or at the start of the string that goes on."""


def own_units(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of a file that put a unit behind a number, or write it as a percentage."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, after in zip(node.values, [*node.values[1:], None], strict=True):
            if not isinstance(part, ast.FormattedValue):
                continue
            form = ast.unparse(part.format_spec) if part.format_spec is not None else ""
            behind = str(after.value) if isinstance(after, ast.Constant) else ""
            if UNIT.match(behind) or form.rstrip("'\"").endswith("%"):
                yield node.lineno


OWN_UNITS = {
    "aggregator/register/facts.py": 1,
    "collector/smi/file.py": 1,
    "power/devices/connectors.py": 1,
    "power/site/config.py": 1,
}
"""By file, how many lines do so: a fact that is compared with what people declare, a limit in an error of the collector,
which words nothing else, names of parts, and a setting as it may be written. A number may only become less."""


def test_a_number_has_its_unit_from_present() -> None:
    """Three formats of a percentage were three truths: `present/units.py` has one function a unit."""
    tree = ast.parse("f'{a:.1f} W' f'{b:.0%} of it' f'{c} kWh' f'{d} Watts, {e:.2f} s'")
    assert len(list(own_units(tree))) == 3
    assert all(map(WITH_UNIT.search, ("f'{a:.1f} W'", "f'{a}'\n f' W'", 'f"{b:.0%} of it"')))
    above = PACKAGES[PACKAGES.index("present") + 1 :]
    paths = (path for package in above for path in sorted((ROOT / package).rglob("*.py")))
    found = {
        path.relative_to(ROOT).as_posix(): sorted(set(own_units(ast.parse(source))))
        if WITH_UNIT.search(source := path.read_text("utf-8"))
        else []
        for path in paths
    }
    wrong = [
        f"{name}: {len(lines)} for {OWN_UNITS.get(name, 0)} allowed, lines {', '.join(map(str, lines))}: take a "
        "function of present/units.py; where there are less, lower the number in OWN_UNITS"
        for name, lines in found.items()
        if len(lines) != OWN_UNITS.get(name, 0)
    ]
    wrong += [f"{name}: is gone: strike it from OWN_UNITS" for name in OWN_UNITS.keys() - found.keys()]
    assert not wrong, "\n".join(wrong)


# ---- Tests assert ------------------------------------------------------------------------------


def test_every_test_asserts_something() -> None:
    """A test without an assertion, of its own or of a function that it uses, holds nothing of what its name says."""
    empty = [
        f"{path.relative_to(ROOT)}::{name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in without_assertion(path)
    ]
    assert not empty, "\n".join(empty)


def test_a_test_without_an_assertion_is_found(tmp_path: Path) -> None:
    """A test that asserts by a function or a method, here or in another file, is none."""
    file = tmp_path / "test_some.py"
    file.write_text(
        """
from tests.kit import waiting
from tests.kit.waiting import until
def checked(): assert f()
def through(): return checked()
TABLE = {"a": through}
class Site:
    def check(self): assert self.up
    def close(self): self.up = False
def close(): assert f()
def test_empty(
    site: Site,
):
    "It would assert something:"
    if site.up:
        site.close()
        test_empty(site)
    "assert site.up"
def test_empty_too(): site.close()
def test_itself():
    assert f()
def test_by_the_last_line(): assert f()
def test_by_an_error():
    with pytest.raises(ValueError): f()
def test_by_a_function(): through()
def test_by_a_table(): TABLE["a"]()
def test_by_a_method(site: Site): site.check()
async def test_by_another_file(): await until(f)
async def test_by_another_file_as_a_whole(): await waiting.until(f)
""",
        "utf-8",
    )
    assert without_assertion(file) == ["test_empty", "test_empty_too"]


# ---- Tests wait for conditions ------------------------------------------------------------------

WAIT = re.compile(r"_?(until|wait_until|wait_for|eventually|settled)(_\w+)?")
CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns"}


def own_waits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that define a wait beside that of `tests/kit/waiting.py`."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and WAIT.fullmatch(node.name):
            yield node.lineno


def _is_elapsed(node: ast.AST, names: frozenset[str] = frozenset()) -> bool:
    """Whether an expression has a reading of a real clock less something, or one of the names of such."""
    return any(
        (
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Sub)
            and isinstance(part.left, ast.Call)
            and isinstance(part.left.func, ast.Attribute)
            and part.left.func.attr in CLOCKS
            and not part.left.args
        )
        or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def speed_limits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that assert that something took less real time than a constant."""
    for function in statements(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = frozenset(
            target.id
            for node in statements(function)
            if isinstance(node, ast.Assign) and _is_elapsed(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        )
        for check in statements(function):
            if not isinstance(check, ast.Assert):
                continue
            for compare in ast.walk(check.test):
                if isinstance(compare, ast.Compare):
                    sides = [compare.left, *compare.comparators]
                    for left, operator, right in zip(sides, compare.ops, sides[1:], strict=False):
                        less, more = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
                        ordered = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                        if ordered and _is_elapsed(less, names) and not _is_elapsed(more, names):
                            yield check.lineno


def slept_then_asserted(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of asserts directly behind a sleep of a constant time."""
    fields = ("body", "orelse", "finalbody")
    bodies = (getattr(node, field, None) for node in (tree, *statements(tree)) for field in fields)
    for body in bodies:
        for before, after in pairwise(body if isinstance(body, list) else ()):
            call = before.value if isinstance(before, ast.Expr) else None
            match call.value if isinstance(call, ast.Await) else call:
                case ast.Call(ast.Attribute(attr="sleep" | "pause"), [ast.Constant(int() | float() as seconds)]):
                    if seconds > 0 and isinstance(after, ast.Assert):
                        yield after.lineno
                case _:
                    pass


def fixed_limits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that give something a time that no patience stretches: `asyncio.timeout(5)`, `monotonic() + 5`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("asyncio"), "timeout"), [ast.Constant()]):
                yield node.lineno
            case ast.BinOp(ast.Call(ast.Attribute(attr=clock), []), ast.Add(), ast.Constant()):
                if clock in CLOCKS:
                    yield node.lineno


RACES = {
    own_waits: re.compile(r"def _?(until|wait|eventually|settled)"),
    speed_limits: re.compile(f"({'|'.join(CLOCKS)})\\("),
    slept_then_asserted: re.compile(r"(sleep|pause)\("),
    fixed_limits: re.compile(f"timeout\\(|({'|'.join(CLOCKS)})\\("),
}
"""Rules, each with words that a file has in which it finds anything: to parse all of them takes ten seconds."""
ALLOWED: dict[str, dict[str, int]] = {
    "own_waits": {
        "aggregator/test_http_prometheus.py": 1, "aggregator/test_remote_write.py": 1,
        "aggregator/test_supervision.py": 1, "brokers.py": 1, "cluster/loop.py": 1, "cluster/test_groups.py": 1,
        "collector/nvml_ticks.py": 1, "collector/test_amd_faults.py": 1, "collector/test_fabric.py": 1,
        "collector/test_host_mounts.py": 1, "collector/test_publisher.py": 1, "collector/test_redfish.py": 1,
        "endtoend/node.py": 2, "endtoend/test_deploy_page.py": 1, "endtoend/test_kill.py": 2,
        "endtoend/test_paging_kill.py": 1, "endtoend/watch.py": 1, "faults/plant.py": 3, "faults/power_scene.py": 1,
        "fuzz/campaign.py": 1, "kilowatch/test_init.py": 1, "kilowatch/test_nats_config.py": 1, "slurm/cluster.py": 1,
        "slurm/site.py": 1, "tui/cluster.py": 1, "tui/test_snapshots.py": 1, "web/browser.py": 1,
    },
    "speed_limits": {
        "aggregator/test_service.py": 1, "collector/jobs/test_ray.py": 1, "collector/test_amd_faults.py": 1,
        "collector/test_nvml_faults.py": 2, "collector/test_publisher.py": 2, "endtoend/test_counters.py": 1,
    },
    "slept_then_asserted": {
        "cluster/test_unfenced.py": 1, "faults/test_readers.py": 1, "telemetry/test_systemd.py": 1,
        "tui/test_app.py": 1,
    },
    "fixed_limits": {"aggregator/test_node_register.py": 1},
}  # fmt: skip
"""By rule and file of `tests`, how many there are: those that do more than wait, and what nobody has mended yet.
A number may only become less."""


@pytest.mark.parametrize("rule", RACES, ids=lambda rule: rule.__name__)
def test_a_test_does_not_depend_on_the_machines_speed(rule: Callable[[ast.AST], Iterator[int]]) -> None:
    """A busy machine must not fail a change: wait for a condition, or pass the time in."""
    tests, allowed, wrong = ROOT / "tests", ALLOWED[rule.__name__], []
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests).as_posix()
        text = path.read_text("utf-8")
        looked_at = RACES[rule].search(text) and not name.startswith("kit/")
        lines = set(rule(ast.parse(text))) if looked_at else set()
        most = allowed.get(name, 0)
        if len(lines) > most:
            where = ", ".join(map(str, sorted(lines)))
            wrong.append(f"{name}: {len(lines)} for {most} allowed, lines {where}: see tests/kit/waiting.py")
        elif len(lines) < most:
            wrong.append(f"{name}: {len(lines)} for {most} allowed: lower the number in ALLOWED")
    wrong += [f"{name}: is gone: strike it from ALLOWED" for name in allowed if not (tests / name).is_file()]
    assert not wrong, "\n".join(wrong)


def test_what_depends_on_the_machines_speed_is_found() -> None:
    """Each rule finds its own, and not its mended form."""
    text = """
async def _until(holds):
    began = time.monotonic()
    await asyncio.sleep(0.3)
    assert time.monotonic() - began < 2
    took = loop.time() - began
    assert 0.1 <= took <= 1.0
    if holds:
        pilot.pause(0.1)
        assert holds
    ends = time.monotonic() + 5
    async with asyncio.timeout(10):
        await holds
"""
    assert all(words.search(text) for words in RACES.values())
    found = ast.parse(text)
    assert [sorted(set(rule(found))) for rule in RACES] == [[2], [5, 7], [5, 10], [11, 12]]
    mended = ast.parse(
        """
async def test_it():
    began = time.monotonic()
    await asyncio.sleep(0)
    assert await until(lambda: done)
    assert time.monotonic() - began >= 2
    assert now[0] - began < 2
    ends = end_of_patience(5)
    async with within():
        await holds
"""
    )
    assert [sorted(set(rule(mended))) for rule in RACES] == [[], [], [], []]
