"""`make demo`: real documents, a real small model, the real command line.

Writes 48 documents out of the language reference that every CPython carries (50 to 3,000 tokens,
three instructions, five of them exact repeats), runs `docmill run` on them and shows three
answers. Decides nothing about the service. May import the standard library, rich and docmill.
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-not-found, unused-ignore]
from typing import Any

from rich.console import Console
from rich.markup import escape

from docmill.results import Result

FOLDER = Path("build/demo")
NUM_DIFFERENT = 43
#: So often the document before is asked about again, word for word: five times in all.
REPEAT_EVERY = 8
#: In characters: with this model's tokenizer about 50 and 3,000 tokens.
SHORTEST, LONGEST = 200, 12_000

#: The instruction and the longest answer, in tokens. A model of this size follows what it reads
#: last, so the document comes first.
INSTRUCTIONS = (
    ("{document}\n\nSummarize the text above in two sentences.", 64),
    ("{document}\n\nWhat is the topic of the text above? Answer in one short sentence.", 32),
    ("{document}\n\nWrite one question that the text above answers.", 32),
)


def documents() -> Iterator[dict[str, Any]]:
    """Yield the lines of the input file: evenly spread lengths, instructions in turn."""
    fitting = sorted(
        (name for name, text in topics.items() if SHORTEST <= len(text) <= LONGEST),
        key=lambda name: (len(topics[name]), name),
    )
    names = [fitting[at * len(fitting) // NUM_DIFFERENT] for at in range(NUM_DIFFERENT)]
    lines = [_line(name, *INSTRUCTIONS[at % 3]) for at, name in enumerate(names)]
    for at, line in enumerate(lines):
        yield line
        if at % REPEAT_EVERY == REPEAT_EVERY - 1:
            yield line | {"id": f"{line['id']}-again"}


def _line(name: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, "max_tokens": max_tokens, "text": topics[name]}


def show(console: Console, lines: list[dict[str, Any]], answers: dict[str, Result]) -> None:
    """Print one answer to each instruction, for documents of modest length."""
    for prompt, _ in INSTRUCTIONS:
        asked = [line for line in lines if line["prompt"] == prompt and line["id"] in answers]
        if not asked:
            continue
        line = asked[len(asked) // 3]
        result = answers[line["id"]]
        console.rule(style="dim")
        question = prompt.removeprefix("{document}").strip()
        beginning = textwrap.shorten(line["text"].replace("*", ""), 140, placeholder=" …")
        tokens = f"{result.usage.prompt_tokens:,} tokens"
        console.print(f"[bold]Question[/]  {escape(question)}")
        console.print(f"[bold]Document[/]  {escape(beginning)} [dim]({tokens})[/]")
        console.print(f"[bold]Answer[/]    {escape(result.text or '')}", highlight=False)
    console.rule(style="dim")


def main() -> int:
    """Run the demo and return the exit status of `docmill run`."""
    console = Console()
    FOLDER.mkdir(parents=True, exist_ok=True)
    source, target = FOLDER / "documents.jsonl", FOLDER / "answers.jsonl"
    lines = list(documents())
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    target.unlink(missing_ok=True)  # a demo starts afresh; docmill itself would resume
    command = ["run", str(source), "--output", str(target)]
    console.print(f"[bold]$ docmill {' '.join(command)}[/]", highlight=False)
    status = subprocess.run([sys.executable, "-m", "docmill.cli", *command], check=False).returncode
    if not target.exists():
        return status
    records = target.read_text(encoding="utf-8").split("\n")
    results = [Result.from_openai(json.loads(record)) for record in records if record]
    show(console, lines, {result.custom_id: result for result in results if result.ok})
    console.print(f"All {len(results)} records: [bold]{target}[/] (OpenAI Batch result format)")
    return status


if __name__ == "__main__":
    sys.exit(main())
