"""Output of `dcgmi diag -j`, and of `dcgmi health` as a table or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule
from alerts.xid.catalogue import XidSeverity
from kilowatch.saved_logs.part import Part

_ISOLATE = 2
"""Severity of a DCGM error with which a GPU must not work on (dcgm_errors.h)."""
_DEPTH = 24
_MOST = 4096


def part_of(text: str) -> Part | None:
    """Return what an output of `dcgmi` says; None for a text that is none."""
    if '"DCGM ' in text[:65536]:
        return _of_diag(text)
    if _TABLE.search(text) is not None:
        return _of_results("dcgmi diag", list(_rows_of_diag(text)), {})
    if "Overall Health" in text or "Health Monitor Report" in text:
        return _of_health(text)
    if "ealth watches not enabled" in text:
        return Part(
            "dcgmi health",
            broken=True,
            problem="no health watches are enabled: `dcgmi health -s a`, then ask again a minute later",
        )
    return None


def _json(text: str) -> Any:
    begin, end = text.find("{"), text.rfind("}") + 1
    try:
        return json.loads(text[begin:end]) if begin >= 0 else None
    except (ValueError, RecursionError):
        return None


# The diagnostics: a status for each test and GPU.


def _of_diag(text: str) -> Part:
    part = Part("dcgmi diag -j", of_driver=True)
    part.lacks = ["XIDs", "faults that come only under the load of a job"]
    body = _json(text)
    report = (
        next((value for key, value in body.items() if key.startswith("DCGM ")), None)
        if isinstance(body, dict)
        else None
    )
    if not isinstance(report, dict):
        part.problem, part.broken = "it is cut off, or no JSON", True
        return part
    part = _of_results("dcgmi diag -j", list(_results(report)), _entities(body))
    failed = report.get("runtime_error") or report.get("runtimeError")
    if failed:
        part.problem, part.broken = f"the diagnostics did not run: {str(failed)[:200]}", True
    return part


def _of_results(form: str, results: list[tuple[str, dict[str, Any]]], serials: dict[int, str]) -> Part:
    """Return what the statuses of tests say; `serials`: those of GPUs by their number."""
    part = Part(form, of_driver=True)
    part.lacks = ["XIDs", "faults that come only under the load of a job"]
    passed: list[str] = []
    skipped: list[str] = []
    bad: set[str] = set()
    for name, result in results:
        status = str(result.get("status", "")).lower()
        gpus = [_completed(gpu, serials) for gpu in _gpus(result)]
        part.gpus += [gpu for gpu in gpus if gpu not in part.gpus][:_MOST]
        if status == "pass":
            passed.append(name)
        elif status.startswith(("fail", "warn")):
            if status.startswith("fail"):
                bad.add(name)
            part.findings.append(_of_result(name, status, result, gpus))
        else:
            skipped.append(name)
    passed = [name for name in dict.fromkeys(passed) if name not in bad]
    if passed:
        part.shows = [f"diagnostics passed: {', '.join(passed)}"]
        part.lacks += [f"{name}, which was skipped" for name in dict.fromkeys(skipped) if name not in passed]
    elif not part.findings:
        part.problem, part.broken = "no test of it has run", True
    return part


_TABLE = re.compile(r"^\| Diagnostic\s{1,60}\| Result", re.MULTILINE)
_STATUS = re.compile(r"(Pass|Fail|Warn|Skip)\b(?: - GPUs?: ([\d, ]{1,200}))?")


def _rows_of_diag(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the statuses of the table that `dcgmi diag` prints without `-j`."""
    name = ""
    for test, shown in _table_rows(text):
        name = test or name
        if (status := _STATUS.match(shown)) is not None:
            gpus = {"gpu_ids": status[2]} if status[2] else {}
            yield name[:100], {"status": status[1], "info": shown, **gpus}


def _results(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for category in _list(report.get("test_categories"))[:_MOST]:
        for test in _list(_of(category, "tests"))[:_MOST]:
            results = _list(_of(test, "results"))[:_MOST] or [_of(test, "test_summary")]
            for result in results:
                if isinstance(result, dict):
                    yield str(_of(test, "name") or "a test")[:100], result


def _gpus(result: dict[str, Any]) -> list[FindingGpu]:
    if result.get("entity_group") not in {None, "GPU"}:
        return []
    words = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", "")))
    words = words if isinstance(words, list) else str(words).split(",")
    numbers = [str(word).strip() for word in words]
    return [FindingGpu(index=int(word)) for word in numbers if word.isascii() and word.isdigit() and len(word) < 4]


def _entities(body: dict[str, Any]) -> dict[int, str]:
    """Return the serial of each GPU, where the output has it (DCGM 4)."""
    found = {}
    for group in _list(body.get("entity_groups")):
        for entity in _list(_of(group, "entities")) if _of(group, "entity_group") == "GPU" else []:
            number, serial = _of(entity, "entity_id"), _of(entity, "serial_num")
            if isinstance(number, int) and isinstance(serial, str) and serial:
                found[number] = serial
    return found


def _completed(gpu: FindingGpu, serials: dict[int, str]) -> FindingGpu:
    return FindingGpu(index=gpu.index, serial=serials.get(-1 if gpu.index is None else gpu.index))


def _of_result(name: str, status: str, result: dict[str, Any], gpus: list[FindingGpu]) -> Finding:
    warnings = [
        each if isinstance(each, dict) else {"warning": each}
        for each in _list(result.get("warnings") or result.get("warning"))
    ]
    lines = [str(each.get("warning", ""))[:500] for each in warnings] or [str(result.get("info", ""))[:500]]
    isolate = any(each.get("error_severity") == _ISOLATE for each in warnings)
    if status.startswith("warn"):
        severity = XidSeverity.TICKET if isolate else XidSeverity.INFO
    else:
        severity = XidSeverity.PAGE if isolate else XidSeverity.TICKET
    action = (
        "DCGM says that this GPU must not work on. Drain it, and open a case with the maker."
        if isolate
        else "A test of DCGM failed. Drain the GPU, reset it and repeat the test; if it fails again, "
        "run the field diagnostics."
    )
    if severity is XidSeverity.INFO:
        action = "DCGM warns; read the line."
    lines = [f"{name}: {each}" for each in lines]
    one = Finding(severity=severity, fault="diagnostics_failed", line=lines[0], lines=lines[:12], action=action)
    return with_rule(of_gpus(one, gpus))


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


# The health watches: a word for all, one for each GPU, and the messages of each watch.

_CELLS = re.compile(r"^\|\s?(.{1,40}?)\s*\|\s?(.{0,200}?)\s*\|\s*$")
_GPU = re.compile(r"(?:GPU(?: ID)?:?\s*|->\s*)?(\d{1,3})$")
_WORDS = {"healthy": None, "warning": XidSeverity.TICKET, "failure": XidSeverity.PAGE,
          "fail": XidSeverity.PAGE, "unhealthy": XidSeverity.PAGE, "warn": XidSeverity.TICKET}  # fmt: skip


def _of_health(text: str) -> Part:
    part = Part("dcgmi health", of_driver=True)
    part.lacks = ["errors of before the watches were enabled", "XIDs"]
    body = _json(text) if text.lstrip().startswith("{") else None
    rows = list(_json_rows(body)) if body is not None else list(_table_rows(text))
    overall = next((value for key, value in rows if key == "Overall Health"), "").strip(" .").lower()
    if overall not in _WORDS:
        part.problem, part.broken = ("it has no overall health: it is cut off, or no watch is set", True)
        return part
    severity = _WORDS[overall]
    if severity is None:
        part.shows = ["the health watches of DCGM"]
        return part
    for gpu, state, messages in _health_of_gpus(rows):
        own = _WORDS.get(state.lower(), severity) or severity
        lines = messages or [f"GPU {gpu}: {state}"]
        part.findings.append(_of_watch(own, lines, [FindingGpu(index=gpu)]))
    if not part.findings:
        messages = [value for _, value in rows if len(value.split()) > 2]
        part.findings = [_of_watch(severity, messages or [f"Overall Health: {overall}"], [])]
    part.gpus = [gpu for one in part.findings for gpu in one.gpus]
    return part


def _of_watch(severity: XidSeverity, lines: list[str], gpus: list[FindingGpu]) -> Finding:
    lines = [line[:500] for line in lines]
    action = (
        "A health watch of DCGM reports a failure. Move the work away, and look for its cause in the "
        "kernel log and `nvidia-smi -q`."
        if severity is XidSeverity.PAGE
        else "A health watch of DCGM warns. Look for its cause in the kernel log and `nvidia-smi -q`."
    )
    one = Finding(severity=severity, fault="health_watch", line=lines[0], lines=lines[:12], action=action)
    return with_rule(of_gpus(one, gpus))


def _table_rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n")[:_MOST]:
        cells = _CELLS.match(line)
        if cells is not None:
            yield cells[1].strip(), cells[2].strip()


def _json_rows(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield keys and values of the JSON form, in its order, as the table has them."""
    if depth > _DEPTH or not isinstance(value, dict):
        return
    for key, inner in list(value.items())[:_MOST]:
        if isinstance(inner, dict):
            own = inner.get("value")
            yield str(key), "" if own is None else str(own)
            yield from _json_rows({k: v for k, v in inner.items() if k != "value"}, depth + 1)
        elif isinstance(inner, str | int | float):
            yield str(key), str(inner)


def _health_of_gpus(rows: list[tuple[str, str]]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number, word and messages of each GPU that is not healthy."""
    found: list[tuple[int, str, list[str]]] = []
    goes_on = False
    for key, value in rows:
        number = _GPU.match(key.strip())
        word = value.split(" ")[0].strip(".")
        if number is not None and (not value or word.lower() in _WORDS):
            found.append((int(number[1]), word, []))
        elif found and goes_on and not key and value:
            found[-1][2][-1] += f" {value}"
            continue
        elif found and len(value.split()) > 2:
            found[-1][2].append(value)
            goes_on = True
            continue
        goes_on = False
    for gpu, state, messages in found:
        if state.lower() != "healthy":
            yield gpu, state or "Warning", messages
