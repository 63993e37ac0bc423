"""`python -m tests.fuzz`: a million changed inputs over a real broker, one input again, or a search.

python -m tests.fuzz                                   a million over mosquitto, then a million messages without
                                                       it, beside a twin that is not attacked (`make fuzz`)
python -m tests.fuzz --inputs 20000 --seed 7           fewer of them, the same each time
python -m tests.fuzz --here --inputs 20000             all kinds, without a broker
python -m tests.fuzz --kind frame --seed 7 --first 123 --count 1
python -m tests.fuzz --search 600 [tests/telemetry]    Hypothesis with fresh seeds, for 600 s
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.fuzz import search
from tests.fuzz.inputs import BUS, KINDS
from tests.fuzz.run import Outcome, plan, run_in_parts, shares_of


def main() -> int:
    """Run what the command line says; return 1 when a fault was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="[a fresh one, which is printed]")
    parser.add_argument("--here", action="store_true", help="all kinds, without a broker")
    parser.add_argument("--kind", choices=[*KINDS], help="one kind, without a broker")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--search", "--seconds", type=float, metavar="SECONDS", help="the property tests")
    parser.add_argument("tests", nargs="*", help="files or folders of --search [tests]")
    given = parser.parse_args()
    if given.search is not None:
        return search.search(given.search, given.tests or ["tests"])
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"-- seed {seed}", flush=True)
    if given.kind or given.here:
        return _here(
            seed,
            [(given.kind, given.first + number) for number in range(given.count)]
            if given.kind
            else plan(shares_of(given.inputs)),
        )
    from tests.fuzz.campaign import campaign  # starts processes: not needed for one input

    found = campaign(seed, given.inputs)
    return _here(seed, plan(shares_of(given.inputs, BUS))) or found


def _here(seed: int, wanted: list[tuple[str, int]]) -> int:
    """Run inputs, and say after each part what was found so far; return 1 when a fault was."""
    found = Outcome()
    for part in run_in_parts(seed, wanted):
        for fault in part.faults:
            print(fault, "\n")
        found.faults += part.faults
        found.inputs += part.inputs
        found.audited += part.audited
        found.compared += part.compared
        print(
            f"{found.inputs:,} inputs, {len(found.faults)} faults, {found.audited:,} values audited, "
            f"{found.compared:,} parts of pages, pushes, alerts, notices and stored rows as those of the twin",
            flush=True,
        )
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
