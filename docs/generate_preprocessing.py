"""Writes the rules into docs/preprocessing.md, so that the page cannot go stale.

Run as `python -m docs.generate_preprocessing` (`make docs`); a test compares the page with
`page()`. The rest of the page is written by hand. May import docmill.rules, preprocess.rules and
bench.rules_quality.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.rules_quality import Quality, measure, rows
from docmill.rules import policies_of
from preprocess.rules import RULES, Rule

TARGET = Path(__file__).with_name("preprocessing.md")
_BEGIN, _END = "<!-- rules: written by make docs -->\n", "<!-- end of rules -->\n"


def page() -> str:
    """Return the page with the generated part as the code has it."""
    before, _, rest = TARGET.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}{_section()}{_END}{rest.partition(_END)[2]}"


def _section() -> str:
    quality = measure()
    rules = "".join(_rule(rule) for rule in RULES.values())
    legitimate = rows("legitimate")
    reasons = {row["id"]: row.get("note", row["id"]) for row in legitimate}
    figures = "".join(_figures(rule, quality[rule], reasons) for rule in RULES)
    num_attacks = len(rows("attacks"))
    num_kinds = len({row["script"] for row in legitimate})
    return f"""\
| rule | severity | policies, the default first | finds | repair |
|---|---|---|---|---|
{rules}
### How well they find

Measured by `python -m bench.rules_quality` on the labelled set in `tests/data/rules`:
{num_attacks} attacks, and {len(legitimate)} legitimate texts of {num_kinds} scripts and kinds. What
is missed is in the set on purpose: paraphrases, ciphers and other things that cannot be found by
letters and wording alone. The false alarms are those that are known; a test fails on any other.

| rule | recall | of attacks | known false alarms |
|---|---|---|---|
{figures}"""


def _rule(rule: Rule) -> str:
    others = [policy for policy in policies_of(rule.id) if policy != rule.default]
    policies = ", ".join((f"**{rule.default}**", *others))
    cells = (f"`{rule.id}`", rule.severity, policies, rule.summary, rule.repair_summary or "none")
    return _row(*cells)


def _figures(rule: str, quality: Quality, reasons: Mapping[str, str]) -> str:
    alarms = "; ".join(f"a text that {reasons[name]}" for name in quality.false_alarms) or "none"
    return _row(f"`{rule}`", f"{quality.recall:.2f}", str(quality.num_attacks), alarms)


def _row(*cells: str) -> str:
    # < would begin a tag on some renderers, and a bar the next cell
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return "| " + " | ".join(escaped) + " |\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
