"""How well the rules tell attacks from text: recall and false alarms for each, on a labelled set.

Run as `python -m bench.rules_quality [--json FILE]`. The set lies in tests/data/rules: attacks with
the rules that should find them, and legitimate text in some fifty scripts and kinds with the false
alarms that are known. May import preprocess.rules and bench.report.
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import ROOT, figure, report
from preprocess.rules import RULES, inspect

DATA = ROOT / "tests" / "data" / "rules"
#: The control tokens that the set was labelled for.
_CONTROL_TOKENS = re.compile(r"<\|im_(?:start|end)\|>|<\|endoftext\|>|<filename>|<repo_name>")


@dataclass(frozen=True, slots=True)
class Quality:
    """What a rule found of what it should find, and in which legitimate texts it was wrong."""

    num_attacks: int
    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]

    @property
    def recall(self) -> float:
        """The share of its attacks that the rule found."""
        return 1 - len(self.missed) / self.num_attacks


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of the set."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def found_in(text: str) -> set[str]:
    """Return the rules that find something, at their default policies."""
    inspection = inspect(text, {}, lambda part: _CONTROL_TOKENS.search(part) is not None)
    return {finding.rule for finding in inspection.findings}


def measure() -> dict[str, Quality]:
    """Return the quality of each rule."""
    attacks = [(row["id"], set(row["rules"]), found_in(row["text"])) for row in rows("attacks")]
    legitimate = [(row["id"], found_in(row["text"])) for row in rows("legitimate")]
    return {
        rule: Quality(
            num_attacks=sum(rule in expected for _, expected, _ in attacks),
            missed=tuple(
                name for name, expected, found in attacks if rule in expected and rule not in found
            ),
            false_alarms=tuple(name for name, found in legitimate if rule in found),
        )
        for rule in RULES
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print recall and false alarms of each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures: dict[str, dict[str, Any]] = {}
    for rule, quality in measure().items():
        figures[f"{rule}_recall"] = figure([quality.recall], f"of {quality.num_attacks} attacks")
        figures[f"{rule}_false_alarms"] = figure([len(quality.false_alarms)], "texts")
    report("rules_quality", figures, options.json)


if __name__ == "__main__":
    main()
