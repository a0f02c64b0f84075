"""Build the kernels ahead: `python -m engine.native [--shipped]`.

Says where they are, or why this machine has none; that is no failure, docmill works without.
"""

import argparse
import sys
from pathlib import Path

from engine.native.build import SHIPPED, Unavailable, library


def main() -> None:
    """Build, and say where."""
    parser = argparse.ArgumentParser(prog="python -m engine.native", description=__doc__)
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="build beside the sources, whatever this processor can do: for images",
    )
    options = parser.parse_args()
    into: Path | None = SHIPPED if options.shipped else None
    try:
        found = f"CPU kernels: {library(into)}"
    except Unavailable as reason:
        found = f"no CPU kernels: {reason}"
    sys.stdout.write(found + "\n")


if __name__ == "__main__":
    main()
