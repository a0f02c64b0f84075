"""The options that say what is asked about documents, and how files are read.

Used by docmill.cli.shared, which makes groups of them. May import typer and docmill.rules.
"""

from typing import Annotated

import typer

from docmill.rules import RULES

_ASK = "What is asked"
_LONG = "What becomes of a document"
_READ = "How files are read"


def parse_separator(text: str) -> str:
    """Return the character that separates columns; a tab may be spelled out."""
    from docmill.errors import IntakeError
    from docmill.intake.tables import check_separator

    separator = "\t" if text in ("tab", r"\t") else text
    try:
        check_separator(separator)
    except IntakeError as error:
        raise typer.BadParameter(error.message) from error
    return separator


Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        "-p",
        metavar="TEXT|@FILE",
        help="What to ask about each document. {document} marks its place; without it the document "
        "follows the prompt. Lines of a .jsonl file may bring their own.",
        rich_help_panel=_ASK,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="The longest answer, in tokens (default 256).", rich_help_panel=_ASK),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=10.0,
        help="0 (default) always takes the likeliest token; above, answers vary.",
        rich_help_panel=_ASK,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Choose among the likeliest tokens that make up this share, above 0 to 1.",
        rich_help_panel=_ASK,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help="End the answer before this text; may be given several times.", rich_help_panel=_ASK
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="With a temperature: the same seed, the same answer.", rich_help_panel=_ASK
    ),
]
Truncate = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Where a document is too long: semantic (default) keeps its beginning up to the end "
        "of a paragraph or sentence; head, tail and middle keep that part to the token; "
        "key_information keeps what matters most for the prompt; split answers it in parts and "
        "combines their answers; refuse fails it.",
        rich_help_panel=_LONG,
    ),
]
MaxDocumentTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="A document with more tokens is too long, even if it fits the model.",
        rich_help_panel=_LONG,
    ),
]
CombinePrompt = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE",
        help="With --truncate split: what to ask about the parts' answers; {document} marks their "
        "place. By default made of the prompt.",
        rich_help_panel=_LONG,
    ),
]
Rule = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE=POLICY",
        help="What to do where a rule finds something: allow, flag, repair or reject it; may be "
        f"given several times. The rules: {', '.join(RULES)}. docs/preprocessing.md says what each "
        "looks for, and what may be done about it.",
        rich_help_panel=_LONG,
    ),
]
Dedup = Annotated[
    str | None,
    typer.Option(
        metavar="text|exact|off",
        help="Documents that share an answer: those of the same text (default), of the same "
        "tokens, or none.",
        rich_help_panel=_LONG,
    ),
]
NearThreshold = Annotated[
    float | None,
    typer.Option(
        metavar="SIMILARITY",
        help="Let almost equal documents share an answer from this similarity on, 0.5 to 1, unless "
        "a number, name or date differs (default: never).",
        rich_help_panel=_LONG,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of text files: utf-8 (default), utf-16, cp1252, shift_jis …; never guessed.",
        rich_help_panel=_READ,
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of .csv and .tsv files: the column with the text (default: 'text', or the only one).",
        rich_help_panel=_READ,
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of .csv and .tsv files: the column with the ids (default: 'id' or 'custom_id', or "
        "the rows' numbers).",
        rich_help_panel=_READ,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        parser=parse_separator,
        metavar="CHARACTER",
        help="Of .csv and .tsv files: what separates the columns, 'tab' for the tab (default: a "
        "comma, or a semicolon where the header has those alone; a tab in .tsv).",
        rich_help_panel=_READ,
    ),
]
