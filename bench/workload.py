"""A mixed workload of real prose, the same wherever Python is the same: `python -m bench.workload`.

Decides what the benches ask: pieces of CPython's own language reference (`pydoc_data.topics`, which
ships with Python) of log-normal length, part of them behind one of four long instructions, part
repeated exactly, part asked about again. Nothing depends on a tokenizer; lengths in tokens are
estimates from characters. May import the standard library alone.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pydoc_data import topics
from typing import Literal

#: Characters per token of this prose, measured with SmolLM2's tokenizer.
CHARS_PER_TOKEN = 4.1

MIN_TOKENS, MAX_TOKENS = 50, 3_000
#: Log-normal lengths: the median, and the spread that puts one in a hundred near the maximum.
MEDIAN_TOKENS, SIGMA = 350, 0.9

LONG_INSTRUCTION_SHARE, DUPLICATE_SHARE, FOLLOW_UP_SHARE = 0.4, 0.2, 0.1
MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS = 32, 64

Kind = Literal["fresh", "duplicate", "follow_up"]

QUESTIONS = (
    "Summarize the text above in three sentences.",
    "Which three terms does the text above define, and how?",
    "Who should read the text above, and what will they learn?",
    "What does the text above warn against? Name each warning.",
    "Write one quiz question about the text above, with its answer.",
)

TASKS = (
    "You are a technical editor who writes abstracts for a reference library.",
    "You are a teacher who prepares reading notes for first-year students.",
    "You are an auditor who lists every rule that a specification states.",
    "You are a translator who first restates a text in the plainest English.",
)

_RULES = (
    "Use only what the text says; when it is silent on a point, say that it is silent.",
    "Keep every name of a function, a class or a keyword exactly as it is written.",
    "Never quote more than ten words in a row, and mark what you quote as a quotation.",
    "Write in the present tense and in the active voice, in sentences of at most twenty words.",
    "Explain a term the first time it appears, in half a sentence, and never explain it again.",
    "Leave out examples unless a statement cannot be understood without its example.",
    "If two parts of the text seem to disagree, name both and do not decide between them.",
    "Say how certain a statement is whenever the text itself calls it likely or typical.",
    "Numbers, versions and dates are copied digit by digit and are never rounded.",
    "Do not address the reader, do not apologize, and do not announce what comes next.",
    "Prefer the order of the text to an order of your own, even where it seems less natural.",
    "Mention deprecated features only together with what has replaced them.",
    "A list has at most five entries, each of them a complete sentence with a full stop.",
    "When the text refers to another section, give the name of that section in brackets.",
    "End with one sentence that names the most important consequence for daily work.",
    "Treat code in the text as an illustration; describe what it does and do not reproduce it.",
    "Do not compare the text with other books, other languages or other versions of itself.",
    "Answer in plain text without headings, tables, bold type or any other markup.",
)


@dataclass(frozen=True, slots=True)
class Request:
    """One question about one document; `kind` says how it relates to earlier requests."""

    custom_id: str
    instruction: str | None
    document: str
    question: str
    max_tokens: int
    kind: Kind

    def template(self) -> tuple[tuple[str, tuple[str | None, ...]], ...]:
        """Return (role, content) turns with None where the document goes, as `wire.Message` is."""
        user = ("user", (None, f"\n\n{self.question}"))
        return (user,) if self.instruction is None else (("system", (self.instruction,)), user)

    def chat(self) -> list[dict[str, str]]:
        """Return the turns with the document in its place, as chat templates take them."""
        return [
            {
                "role": role,
                "content": "".join(self.document if part is None else part for part in content),
            }
            for role, content in self.template()
        ]


def requests(size: int, *, seed: int = 0, repetition: bool = True) -> Iterator[Request]:
    """Yield a workload.

    Args:
        size: How many requests.
        seed: Equal seeds give equal workloads.
        repetition: Whether documents and instructions repeat; without it every request is fresh
            and no long instruction is used.
    """
    choose = random.Random(seed)
    prose = "\n\n".join(topics.topics[name].strip() for name in sorted(topics.topics))
    starts = [index + 2 for index in range(len(prose) - 1) if prose.startswith("\n\n", index)]
    earlier: list[Request] = []
    kinds = _kinds(choose, size, repetition)
    long = _drawn(choose, kinds.count("fresh"), LONG_INSTRUCTION_SHARE if repetition else 0.0)
    for number, kind in enumerate(kinds):
        if kind == "fresh":
            document = _document(choose, prose, starts, number)
            instruction = choose.choice(instructions()) if long.pop() else None
            question = choose.choice(QUESTIONS)
            max_tokens = choose.randint(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
        else:
            old = choose.choice(earlier)
            document, instruction, max_tokens = old.document, old.instruction, old.max_tokens
            question = old.question
            if kind == "follow_up":
                question = choose.choice([each for each in QUESTIONS if each != old.question])
        request = Request(f"r{number}", instruction, document, question, max_tokens, kind)
        if kind == "fresh":
            earlier.append(request)
        yield request


def instructions() -> tuple[str, ...]:
    """Return the four long instructions, about 400 tokens each, alike only in their rules."""
    return tuple(
        "\n".join((task, "Follow these rules:", *_rotated(_RULES, 4 * index)))
        for index, task in enumerate(TASKS)
    )


def _rotated(rules: tuple[str, ...], by: int) -> list[str]:
    order = rules[by:] + rules[:by]
    return [f"{number}. {rule}" for number, rule in enumerate(order, start=1)]


def _kinds(choose: random.Random, size: int, repetition: bool) -> list[Kind]:
    """Return kinds in their exact shares; the first is fresh, as there is nothing to repeat yet."""
    duplicates = round(size * DUPLICATE_SHARE) if repetition else 0
    follow_ups = round(size * FOLLOW_UP_SHARE) if repetition else 0
    fresh = size - duplicates - follow_ups - 1
    counts: tuple[tuple[Kind, int], ...] = (
        ("duplicate", duplicates),
        ("follow_up", follow_ups),
        ("fresh", fresh),
    )
    kinds = [kind for kind, count in counts for _ in range(count)]
    choose.shuffle(kinds)
    return ["fresh", *kinds][:size]


def _drawn(choose: random.Random, size: int, share: float) -> list[bool]:
    drawn = [index < round(size * share) for index in range(size)]
    choose.shuffle(drawn)
    return drawn


def _document(choose: random.Random, prose: str, starts: list[int], number: int) -> str:
    """Cut a piece of prose at a paragraph; its title makes it unlike every other piece."""
    tokens = choose.lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS
    length = int(CHARS_PER_TOKEN * min(max(tokens, MIN_TOKENS), MAX_TOKENS))
    start = choose.choice([start for start in starts if start + length <= len(prose)])
    return f"Excerpt {number + 1}\n\n{prose[start : start + length].strip()}"


def summary(workload: list[Request]) -> dict[str, object]:
    """Describe a workload in counts and estimated tokens."""
    lengths = sorted(int(len(each.document) / CHARS_PER_TOKEN) for each in workload)
    kinds = Counter(each.kind for each in workload)
    return {
        "requests": len(workload),
        "kinds": {kind: kinds[kind] for kind in ("fresh", "duplicate", "follow_up")},
        "behind_a_long_instruction": sum(each.instruction is not None for each in workload),
        "document_tokens": {
            "min": lengths[0],
            "median": lengths[len(lengths) // 2],
            "max": lengths[-1],
            "total": sum(lengths),
        },
        "max_output_tokens": sum(each.max_tokens for each in workload),
    }


def main() -> None:
    """Print a summary, or the requests themselves as JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m bench.workload", description=__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-repetition", action="store_true")
    parser.add_argument("--jsonl", action="store_true", help="print the requests")
    options = parser.parse_args()
    workload = list(requests(options.size, seed=options.seed, repetition=not options.no_repetition))
    if options.jsonl:
        for request in workload:
            print(json.dumps(asdict(request)))
    else:
        print(json.dumps(summary(workload), indent=2))


if __name__ == "__main__":
    main()
