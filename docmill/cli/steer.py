"""`docmill pause`, `resume`, `cancel` and `retry`: what can be asked for about a job.

Only says what can be asked for; the work lies in `docmill.cli.jobs`, loaded when it is called. May
import typer.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from docmill.cli import options
from docmill.cli.exit import PARTS_TABLE, PLAIN_TABLE

CustomIds = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only this document; may be given several times."),
]
FailureCodes = Annotated[
    list[str] | None,
    typer.Option("--code", help="Only failures with this error code; may be given several times."),
]


def pause(
    job: options.JobArgument,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Let a job rest: what runs now still ends, the rest waits for 'docmill resume'.

    docmill pause 20261130-073512-3f9a2c1b
    """
    from docmill.cli import jobs

    target = jobs.Target(redis_url, namespace, state_dir)
    return jobs.pause(target, job, is_paused=True, as_json=as_json)


def resume(
    job: options.JobArgument,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Let a paused job go on.

    docmill resume 20261130-073512-3f9a2c1b
    """
    from docmill.cli import jobs

    target = jobs.Target(redis_url, namespace, state_dir)
    return jobs.pause(target, job, is_paused=False, as_json=as_json)


def cancel(
    job: options.JobArgument,
    custom_ids: CustomIds = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Take a job back, or single documents of it; what is done keeps its answer.

    Cancelled documents are counted and get no result.
    Exit status 1 says that the job has no document of such an id.

    docmill cancel 20261130-073512-3f9a2c1b

    docmill cancel 20261130-073512-3f9a2c1b --id papers/a.txt --id papers/b.txt
    """
    from docmill.cli import jobs

    target = jobs.Target(redis_url, namespace, state_dir)
    return jobs.cancel(target, job, custom_ids or None, as_json=as_json)


def retry(
    job: options.JobArgument,
    codes: FailureCodes = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Run again what failed in a job, and nothing else.

    Refused documents are only counted, because nothing is kept of them.
    Exit status 1 says that not every failure runs again.

        docmill retry 20261130-073512-3f9a2c1b

        docmill retry 20261130-073512-3f9a2c1b --code delivery_limit --code generation_timeout
    """
    from docmill.cli import jobs

    target = jobs.Target(redis_url, namespace, state_dir)
    return jobs.retry(target, job, codes, as_json=as_json)


#: The commands, each with its exit statuses.
COMMANDS: tuple[tuple[Callable[..., int], str], ...] = (
    (pause, PLAIN_TABLE),
    (resume, PLAIN_TABLE),
    (cancel, PARTS_TABLE),
    (retry, PARTS_TABLE),
)
