"""What rules found in a pile of documents, counted and told in a few lines.

Pure. May import docmill.progress and docmill.report.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from docmill.progress import counted
from docmill.report import Action

#: What is said of a finding, by what was done about it.
DONE: Mapping[Action, str] = {"flag": "flagged", "repair": "repaired", "reject": "rejected"}


@dataclass(slots=True)
class FindingCounts:
    """Counts documents: by what was done about something in them, and there by rule."""

    _documents: Counter[Action] = field(default_factory=Counter)
    _by_rule: dict[Action, Counter[str]] = field(default_factory=dict)

    def add(self, findings: Iterable[tuple[str, Action]]) -> None:
        """Count one document, whose findings are pairs of a rule and what was done."""
        found = set(findings)
        self._documents.update({action for _, action in found})
        for rule, action in found:
            self._by_rule.setdefault(action, Counter())[rule] += 1

    def lines(self) -> Iterator[str]:
        """Tell a person, a line for each thing that was done."""
        for action, word in DONE.items():
            if count := self._documents[action]:
                rules = ", ".join(
                    f"{rule} {times:,}" for rule, times in self._by_rule[action].most_common()
                )
                yield f"{word:<11} {counted(count, 'document')}: {rules}"

    def to_dict(self) -> dict[str, int | dict[str, int]]:
        """Tell a program: documents by what was done, and findings by rule."""
        rules: Counter[str] = Counter()
        for counts in self._by_rule.values():
            rules.update(counts)
        documents = {word: self._documents[action] for action, word in DONE.items()}
        return {**documents, "findings": dict(rules.most_common())}
