"""`docmill ingest`, `export` and `tasks`: what the service can be asked to do with its own files.

Only says what can be asked for; the work lies in `docmill.cli.tasks`, loaded when it is called. May
import typer.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from docmill.cli import options
from docmill.cli.exit import PARTS_TABLE, PLAIN_TABLE
from docmill.cli.shared import question, reading, takes

ServicePaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        help="Files, folders and quoted globs, as submit takes them, but on the service's side: "
        "below its DOCMILL_FILES_DIR.",
        show_default=False,
    ),
]
ServiceOutput = Annotated[
    str,
    typer.Argument(
        metavar="OUT",
        help="A file below the service's DOCMILL_FILES_DIR; one with results is replaced, any "
        "other is left alone.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the service has done it.")]


@takes(question=question, reading=reading)
def ingest(
    paths: ServicePaths,
    question: dict[str, Any],
    reading: dict[str, str],
    model: options.Model = None,
    tier: options.Tier = "batch",
    job_id: options.JobId = None,
    wait: Wait = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    tenant: options.Tenant = "",
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Let the service read its own files into a job; prints the job's id.

    For piles that lie where the service runs. Asking again with the same job id adds what is new.

        docmill ingest papers/ --prompt "Summarize this." --job-id papers

        docmill ingest '2026/**/*.jsonl' --prompt @prompt.txt --wait
    """
    from docmill.cli import jobs, tasks

    asked = question | ({"model": model} if model else {})
    target = jobs.Target(redis_url, namespace, state_dir, tenant)
    return tasks.ingest(
        target, paths, asked, reading, tier=tier, job_id=job_id, waits=wait, as_json=as_json
    )


def export(
    job: options.JobArgument,
    output: ServiceOutput,
    now: Annotated[
        bool,
        typer.Option("--now", help="Only what is there now; do not wait for the job's end."),
    ] = False,
    wait: Wait = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Let the service write a job's results to a file of its own; prints the task's id.

    Written once the job has ended, one JSON line each (OpenAI Batch format). The file takes its
    place when it is whole; what it had of other documents stays.

        docmill export papers answers/papers.jsonl

        docmill export papers answers/so-far.jsonl --now --wait
    """
    from docmill.cli import jobs, tasks

    target = jobs.Target(redis_url, namespace, state_dir)
    return tasks.export(target, job, output, is_partial=now, waits=wait, as_json=as_json)


def tasks(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="Only this one; without it: all.")
    ] = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Show what the service was asked to do with its files, and how far it is.

    docmill tasks

    docmill tasks 20261130-073512-3f9a2c
    """
    from docmill.cli import jobs
    from docmill.cli import tasks as work

    return work.show(jobs.Target(redis_url, namespace, state_dir), task, as_json=as_json)


#: The commands, each with its exit statuses.
COMMANDS: tuple[tuple[Callable[..., int], str], ...] = (
    (ingest, PARTS_TABLE),
    (export, PARTS_TABLE),
    (tasks, PLAIN_TABLE),
)
