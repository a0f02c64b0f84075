"""The command line's options: their names, help and checks, shared by its commands.

What is asked and how files are read lies in docmill.cli.document_options. May import typer.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

#: Where the context's `meta` says whether tracebacks are wanted.
DEBUG = "docmill.debug"

_ASK = "What is asked"
_READ = "How files are read"
_WHERE = "Where it runs"


def _note_debug(ctx: typer.Context, is_wanted: bool) -> bool:
    ctx.meta[DEBUG] = is_wanted
    return is_wanted


#: What the service's settings of the same names take.
ENGINES = ("torch", "fake")
DTYPES = ("auto", "float32", "bfloat16", "float16")


def _one_of(names: tuple[str, ...]) -> Callable[[str | None], str | None]:
    """Make a check that refuses other values before a service is started."""

    def check(value: str | None) -> str | None:
        if value is None or value in names:
            return value
        raise typer.BadParameter(f"{value!r} is none of {', '.join(names)}")

    return check


def _is_typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_empty(ctx: typer.Context, value: str) -> str:
    """Refuse a tenant that a shell left out, which would share answers with everybody's."""
    if not value and _is_typed(ctx, "tenant"):
        raise typer.BadParameter("it is empty: name a tenant, or leave the option out")
    return value


def _refuse_unused(ctx: typer.Context, value: str | None) -> str | None:
    """Refuse a model that is named beside the engine that has none."""
    if value is not None and _is_typed(ctx, "model") and ctx.params.get("engine") == "fake":
        raise typer.BadParameter("the fake engine answers without a model: leave one of them out")
    return value


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """Return an age in seconds, given as 90s, 30m, 2h, 7d or 2w."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", text)
    if not found:
        raise typer.BadParameter(f"{text!r} is no age: 90s, 30m, 2h, 7d and 2w are")
    return float(found[1]) * _SECONDS[found[2]]


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="IN…",
        help="Files, folders and quoted globs: .txt, .md, .html, .pdf, .docx; .csv and .tsv (a "
        'document a row); .jsonl (one a line: {"id": …, "text": …} or the OpenAI Batch format); '
        ".gz and .zst of these.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="The model to ask: the service's own by default.",
        rich_help_panel=_ASK,
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Take the first N documents only, to try a sample.",
        rich_help_panel=_READ,
    ),
]
Tenant = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=_refuse_empty,
        help="On whose behalf; no answer is shared between tenants.",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]
Tier = Annotated[str, typer.Option(metavar="batch|interactive", help="interactive goes first.")]
JobId = Annotated[
    str | None,
    typer.Option(
        help="The job's id. Submitting to the same one again adds only what is new.",
        rich_help_panel=_WHERE,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(help="A name for people; status shows it.", rich_help_panel=_WHERE),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        parser=parse_age,
        metavar="AGE",
        help="What has no answer after 90s, 30m, 2h, 7d … is not answered any more.",
        rich_help_panel=_WHERE,
    ),
]
ResultTtl = Annotated[
    float | None,
    typer.Option(
        parser=parse_age,
        metavar="AGE",
        help="How long results are kept after the job's end (default 7d).",
        rich_help_panel=_WHERE,
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="DOCMILL_REDIS_URL",
        metavar="URL",
        help="redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://…",
        rich_help_panel=_WHERE,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        envvar="DOCMILL_NAMESPACE",
        help="Separates installations that share one Redis: by default that of the service found, "
        "or 'default'.",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]
StateDir = Annotated[
    Path,
    typer.Option(
        envvar="DOCMILL_STATE_DIR",
        help="Set-up models, logs, and what 'docmill up' keeps.",
        rich_help_panel=_WHERE,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON, for programs.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_note_debug, help="Show tracebacks."),
]
ServiceDebug = Annotated[
    bool,
    typer.Option(
        "--debug", callback=_note_debug, help="Show tracebacks, and the service's log as it comes."
    ),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The id that submit printed.")]

DEFAULT_STATE_DIR = Path("~/.cache/docmill")


# Settings of the service; they stand on the commands that start one.
ServedModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="DOCMILL_MODEL",
        callback=_refuse_unused,
        help="A model directory, a hub name, or smollm2-135m (default; set up on first use).",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        envvar="DOCMILL_ENGINE",
        is_eager=True,  # the model's check asks for it
        metavar="|".join(ENGINES),
        callback=_one_of(ENGINES),
        help="fake answers without a model, for trying things out.",
        rich_help_panel=_WHERE,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        envvar="DOCMILL_DTYPE",
        metavar="FORMAT",
        callback=_one_of(DTYPES),
        help="Number format of weights and KV: auto (default), float32, bfloat16 or float16.",
        rich_help_panel=_WHERE,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        envvar="DOCMILL_THREADS",
        help="CPU threads of the engine.",
        rich_help_panel=_WHERE,
    ),
]
