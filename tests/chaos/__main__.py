"""`python -m tests.chaos`: a storm of a thousand kills, or how fast the dead are noticed.

Prints the seed first and the counts last; ends with status 1 when a promise was broken. May import
the harness.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.piles import DELIVERIES
from tests.chaos.redelivery import under_load, when_idle
from tests.chaos.report import figures, new_seed, shown
from tests.chaos.storm import Plan, Storm, Tally
from tests.chaos.watch import quantile

#: From SIGKILL until a dead worker's entries are others'.
MAX_REDELIVERY_S = 10.0


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--kills", type=int, help="how many processes to kill: 1,000, or 20 to measure on each side"
    )
    parser.add_argument("--round", type=int, default=100, help="kills between two audits")
    parser.add_argument(
        "--redelivery", action="store_true", help="measure how fast the dead are noticed instead"
    )
    options = parser.parse_args()
    seed = new_seed()
    say(f"CHAOS_SEED={seed}")
    folder = Path(tempfile.mkdtemp(prefix="dm-chaos-"))
    if options.redelivery:
        is_sound = measure(seed, options.kills or 20)
    else:
        is_sound = rage(folder, seed, options.kills or 1000, options.round)
    if is_sound:
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    say(f"logs and Redis' data: {folder}")
    return 1


def rage(folder: Path, seed: str, num_kills: int, round_kills: int) -> bool:
    """Run a mild storm and a harsh one; return whether every promise was kept."""
    total, shares = Tally(), {"mild": num_kills - num_kills // 4, "harsh": num_kills // 4}
    for temper in DELIVERIES:
        say(f"{temper}: {DELIVERIES[temper]} deliveries to a document")
        (folder / temper).mkdir()
        plan = Plan(seed, shares[temper], temper, round_kills)
        total.add(Storm(plan, folder / temper, say).run())
        if not total.verdict.is_clean:
            break
    for line in shown(total, folder):
        say(line)
    return total.verdict.is_clean


def measure(seed: str, num_kills: int) -> bool:
    """Measure redelivery at the default settings; return whether it is fast enough."""
    found = {
        "idle": when_idle(seed, num_kills),
        "load": under_load(seed, num_kills),
    }
    for name, times_s in found.items():
        say(f"redelivery_s ({name}): {figures(times_s)}")
    worst = max(quantile(times_s, 0.99) for times_s in found.values())
    say(f"redelivery_p99_s {worst:.2f} (limit {MAX_REDELIVERY_S:g})")
    return worst <= MAX_REDELIVERY_S


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
