"""`python -m tests.chaos`: a storm of a thousand kills, or how fast the dead are noticed.

Prints the seed first and the counts last; ends with status 1 when a promise was broken. May import
the harness.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import new_seed, shown
from tests.chaos.storm import Plan, Storm


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--round", type=int, default=100, help="kills between two audits")
    options = parser.parse_args()
    seed = new_seed()
    say(f"CHAOS_SEED={seed}")
    folder = Path(tempfile.mkdtemp(prefix="dm-chaos-"))
    plan = Plan(seed, options.kills, round_kills=options.round)
    storm = Storm(plan, folder, say)
    tally = storm.run()
    for line in shown(tally, storm.watch.times_s, folder):
        say(line)
    if not tally.verdict.is_clean:
        say(f"logs and Redis' data: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
