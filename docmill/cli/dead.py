"""`docmill dead list|show|retry|drop`: what can be asked for about dead letters.

Only says what can be asked for; the work lies in `docmill.cli.letters`, loaded when it is called.
May import typer.
"""

from pathlib import Path
from typing import Annotated

import typer

from docmill.cli import options
from docmill.cli.exit import PARTS_TABLE, PLAIN_TABLE

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", epilog=PARTS_TABLE)

_WHICH = "Which letters"

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID…", help="Letters, as list shows them.", show_default=False),
]
JobFilter = Annotated[
    str | None, typer.Option("--job", help="Only of this job.", rich_help_panel=_WHICH)
]
Codes = Annotated[
    list[str] | None,
    typer.Option(
        "--code",
        help="Only with this error code; may be given several times.",
        rich_help_panel=_WHICH,
    ),
]
Older = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        parser=options.parse_age,
        metavar="AGE",
        help="Only those given up longer ago than 30m, 2h, 7d …",
        rich_help_panel=_WHICH,
    ),
]
Newer = Annotated[
    float | None,
    typer.Option(
        "--newer-than",
        parser=options.parse_age,
        metavar="AGE",
        help="Only those given up since then.",
        rich_help_panel=_WHICH,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every letter there is.", rich_help_panel=_WHICH)]


@app.callback()
def dead() -> None:
    """Look at documents that were given up, try them again, or forget them.

    A document that is given up gets a failed result; its entry is kept here.
    'docmill retry JOB' tries all failures of a job again.

        docmill dead list --code delivery_limit --newer-than 2h

        docmill dead show 1796024866123-0 --payload document.txt

        docmill dead retry 1796024866123-0

        docmill dead drop --older-than 7d --yes
    """


@app.command("list", epilog=PLAIN_TABLE)
def list_(
    job: JobFilter = None,
    codes: Codes = None,
    older_than: Older = None,
    newer_than: Newer = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """List dead letters, the oldest first, and count them by error code.

    With --json, one line for each.

        docmill dead list

        docmill dead list --job 20261130-073512-3f9a2c1b --json
    """
    from docmill.cli import letters
    from docmill.cli.jobs import Target

    which = letters.Which(job, tuple(codes or ()), older_than, newer_than)
    return letters.show_all(Target(redis_url, namespace, state_dir), which, as_json=as_json)


@app.command(epilog=PLAIN_TABLE)
def show(
    letter: Annotated[str, typer.Argument(metavar="ID", help="A letter, as list shows it.")],
    payload: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the document's bytes there (or the prepared record, if it had been "
            "prepared); - is standard output, which then gets nothing else.",
        ),
    ] = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Show everything that is known of one dead letter.

    docmill dead show 1796024866123-0

    docmill dead show 1796024866123-0 --payload - | less
    """
    from docmill.cli import letters
    from docmill.cli.jobs import Target

    target = Target(redis_url, namespace, state_dir)
    return letters.show_one(target, letter, payload, as_json=as_json)


@app.command(epilog=PARTS_TABLE)
def retry(
    ids: Ids = None,
    job: JobFilter = None,
    codes: Codes = None,
    older_than: Older = None,
    newer_than: Newer = None,
    is_all: All = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Put dead letters back to where they came from, with all their deliveries before them.

    Their jobs run again, and their failed results are gone.
    Exit status 1 says that some could not be put back.

        docmill dead retry 1796024866123-0 1796024866124-0

        docmill dead retry --code generation_timeout --newer-than 1d
    """
    from docmill.cli import letters
    from docmill.cli.jobs import Target

    which = letters.Which(job, tuple(codes or ()), older_than, newer_than, ids or (), is_all)
    return letters.retry(Target(redis_url, namespace, state_dir), which, as_json=as_json)


@app.command(epilog=PARTS_TABLE)
def drop(
    ids: Ids = None,
    job: JobFilter = None,
    codes: Codes = None,
    older_than: Older = None,
    newer_than: Newer = None,
    is_all: All = False,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Needed where letters are not named by id.")
    ] = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Forget dead letters for good; the failed results of their documents stay.

    docmill dead drop 1796024866123-0

    docmill dead drop --older-than 7d --yes
    """
    from docmill.cli import letters
    from docmill.cli.jobs import Target

    which = letters.Which(job, tuple(codes or ()), older_than, newer_than, ids or (), is_all)
    target = Target(redis_url, namespace, state_dir)
    return letters.drop(target, which, is_sure=is_sure, as_json=as_json)
