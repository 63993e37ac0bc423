"""Injection of an exception into any function of the running process, and the functions that run.

A function's code is replaced, so that every reference to it raises: those of other modules, and bound
methods that were stored long ago.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import pkgutil
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

Condition = Callable[[types.FrameType], bool]
"""Whether a call raises, by the frame of the function."""


OURS = frozenset({"aggregator", "alerts", "power", "present", "telemetry"})
"""Packages between the border and the receiver of a page."""


class InjectedError(Exception):
    """An exception of the test's own."""


def functions(packages: tuple[str, ...]) -> dict[types.CodeType, tuple[str, types.FunctionType]]:
    """Return every function and method of some packages by its code, with its name."""
    found: dict[types.CodeType, tuple[str, types.FunctionType]] = {}
    for package in packages:
        root = importlib.import_module(package)
        paths = getattr(root, "__path__", None)
        for info in pkgutil.walk_packages(paths, f"{package}.") if paths else ():
            if not info.name.endswith("__main__"):
                importlib.import_module(info.name)
    for name, module in list(sys.modules.items()):
        if any(f"{name}.".startswith(f"{one}.") for one in packages):
            _collect(found, name, vars(module), name)
    return found


def _collect(found: dict[types.CodeType, tuple[str, types.FunctionType]], path: str, names: Any, module: str) -> None:
    for name, value in list(names.items()):
        for function in _unwrapped(value):
            if function.__module__ == module and not function.__code__.co_filename.startswith("<"):
                found.setdefault(function.__code__, (f"{path}.{name}", function))
        if isinstance(value, type) and value.__module__ == module:
            _collect(found, f"{path}.{name}", vars(value), module)


def _unwrapped(value: Any) -> Iterator[types.FunctionType]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, functools.cached_property):
        value = value.func
    parts = [value.fget, value.fset] if isinstance(value, property) else [value]
    for part in parts:
        function = inspect.unwrap(part) if callable(part) else part
        if isinstance(function, types.FunctionType):
            yield function


@contextlib.contextmanager
def recorded(codes: dict[types.CodeType, Any]) -> Iterator[set[types.CodeType]]:
    """Collect which of some codes run in any thread that is started, and in this one."""
    ran: set[types.CodeType] = set()

    def profile(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            ran.add(frame.f_code)

    threading.setprofile_all_threads(profile) if hasattr(threading, "setprofile_all_threads") else threading.setprofile(
        profile
    )
    sys.setprofile(profile)
    try:
        yield ran
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Injection:
    """A function that raises while the injection is armed."""

    def __init__(self, name: str, function: types.FunctionType, condition: Condition) -> None:
        self.name = name
        self.marker = f"injected into {name}"
        self.raised = 0
        self.most: int | None = None
        """How often it raises; None: always."""
        self._function = function
        self._condition = condition

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Raise in calls that meet the condition, in the block."""
        function, code = self._function, self._function.__code__
        whole = types.FunctionType(
            code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        whole.__kwdefaults__ = function.__kwdefaults__

        def call(args: tuple[Any, ...], kwargs: dict[str, Any], frame: types.FrameType) -> Any:
            if _of_the_scene(frame):
                return whole(*args, **kwargs)
            if (self.most is None or self.raised < self.most) and self._condition(frame):
                self.raised += 1
                raise InjectedError(self.marker)
            return whole(*args, **kwargs)

        function.__globals__["__injected__"] = call
        function.__globals__["__frame__"] = sys._getframe
        function.__code__ = _trampoline(code)
        try:
            yield
        finally:
            function.__code__ = code
            del function.__globals__["__injected__"], function.__globals__["__frame__"]


ENTRANCE = "bring"
"""The one function of the scene that brings something to the product."""


def _of_the_scene(frame: types.FrameType) -> bool:
    """Return whether a call comes from a node of the scene or from the audit."""
    at = frame.f_back
    while at is not None and at.f_globals.get("__name__", "").split(".")[0] in OURS:
        at = at.f_back
    if at is None or not at.f_globals.get("__name__", "").startswith("tests."):
        return False
    return at.f_code.co_name != ENTRANCE


def _trampoline(code: types.CodeType) -> types.CodeType:
    """Return a code that calls `__injected__`, with as many free variables as another code."""
    free = code.co_freevars
    lines = ["def outer():"]
    lines += [f"    {' = '.join(free)} = None"] if free else []
    lines += ["    def trampoline(*args, **kwargs):"]
    lines += [f"        ({', '.join(free)},)"] if free else []
    lines += ["        return __injected__(args, kwargs, __frame__())", "    return trampoline"]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    made: types.CodeType = space["outer"]().__code__
    return made.replace(co_name=code.co_name, co_filename=code.co_filename)


def mentioned(frame: types.FrameType, victims: tuple[str, ...], others: Callable[[str], bool]) -> bool:
    """Return whether the nearest of the callers that concerns single things concerns a victim.

    The arguments of a call are looked at first, then the variables of its callers.
    """
    at: types.FrameType | None = frame
    while at is not None and at.f_globals.get("__name__", "").split(".")[0] in OURS:
        texts: list[str] = []
        for value in list(at.f_locals.values()):
            _texts(value, texts, 3)
        if any(victim in text for text in texts for victim in victims):
            return True
        if any(others(text) for text in texts):
            return False
        at = at.f_back
    return False


_FIELDS = ("name", "node", "key", "part", "rule", "inventory", "alert", "event", "record", "target", "channel", "fleet_node", "incident", "notice", "meter", "group", "delivery", "frame", "arrival", "labels")  # fmt: skip


def _texts(value: Any, found: list[str], depth: int) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, bytes):
        found.append(value[:4096].decode("latin-1"))
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for one in list(value)[:64]:
            _texts(one, found, depth - 1)
    elif depth and isinstance(value, dict):
        for one in list(value)[:64]:
            _texts(one, found, depth - 1)
            _texts(value.get(one), found, depth - 2 if depth > 1 else 0)
    elif depth and type(value).__module__.split(".", maxsplit=1)[0] in {*OURS, "api"}:
        for name in _FIELDS:
            try:
                _texts(getattr(value, name, None), found, depth - 1)
            except Exception:  # noqa: BLE001 - a property that needs more than it has
                continue
