"""Write deploy/prometheus: `python -m kilowatch.prometheus`; with `--check`, report what drifted."""

from __future__ import annotations

import sys
from pathlib import Path

from alerts.rules.rule import load
from kilowatch.prometheus.rules import RUNBOOK_URL
from kilowatch.prometheus.self_alerts import group
from kilowatch.prometheus.text import alertmanager_file, rule_file

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
MADE_BY = "python -m kilowatch.prometheus"


def files() -> dict[str, str]:
    """Return the text of every generated file by its name."""
    rules = load()
    devices = [rule for rule in rules if rule.table.snapshot_kind is None]
    power = [rule for rule in rules if rule.table.snapshot_kind is not None]
    return {
        "kilowatch.rules.yml": rule_file(devices, RUNBOOK_URL, MADE_BY, [group(RUNBOOK_URL)]),
        "kilowatch-power.rules.yml": rule_file(power, RUNBOOK_URL, MADE_BY),
        "alertmanager.yml": alertmanager_file(rules, MADE_BY),
    }


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    """Write the files, or compare them; returns the exit code."""
    drifted = 0
    for name, text in files().items():
        path = folder / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        drifted += 1
        if "--check" in arguments:
            sys.stderr.write(f"{path.name} has drifted. Run: {MADE_BY}\n")
        else:
            path.write_text(text, "utf-8")
    return 1 if drifted and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
