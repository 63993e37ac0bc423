"""Write the dashboards: `python -m grafana.build`; with `--check`, report what has drifted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana.influx import DASHBOARDS as INFLUX_DASHBOARDS
from grafana.prometheus import DASHBOARDS

FOLDER = Path(__file__).parent / "dashboards"


def files() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {
        FOLDER / f"{dashboard.uid}.json": json.dumps(dashboard.json(), indent=1, ensure_ascii=False) + "\n"
        for dashboard in (*DASHBOARDS, *INFLUX_DASHBOARDS)
    }


def main(arguments: list[str]) -> int:
    """Write all files, or compare them; returns the exit code."""
    wanted = files()
    stale = [path for path in FOLDER.glob("*.json") if path not in wanted]
    if "--check" in arguments:
        drifted = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
        for path in [*drifted, *stale]:
            sys.stderr.write(f"{path.name} has drifted. Run: python -m grafana.build\n")
        return 1 if drifted or stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
