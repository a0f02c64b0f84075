"""The command line: `docmill run`, `up`, `submit`, `status`, `results`, and what steers jobs.

Only says what can be asked for; each command's work lies in a module of its own, loaded when it is
called, so that `docmill --help` is quick. An error of ours becomes one line and an exit status. May
import typer.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from docmill._version import __version__
from docmill.cli import ask, dead, options, steer
from docmill.cli.address import DEFAULT_NAMESPACE
from docmill.cli.exit import (
    CHECK_TABLE,
    PLAIN_TABLE,
    RESULTS_TABLE,
    SUBMIT_TABLE,
    TABLE,
    UP_TABLE,
)
from docmill.cli.group import Commands
from docmill.cli.shared import question, reading, takes

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'docmill COMMAND --help' tells what each command's exit status means.",
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"docmill {__version__}")
        raise typer.Exit


@app.callback()
def docmill(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Answer every document in a large pile with a language model on your own hardware.

    All on this machine, from files to answers:

        docmill run papers/ -o answers.jsonl --prompt "Summarize this."

    What would happen to them, without a model run:

        docmill check papers/ --prompt "Summarize this."

    A service that stays, and jobs for it:

        docmill up

        docmill submit papers/ --prompt "Summarize this." --wait
    """


@app.command(epilog=TABLE)
@takes(question=question, reading=reading)
def run(
    inputs: options.Inputs,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where results go as they come, one JSON line each (OpenAI Batch format); "
            "- is standard output.",
        ),
    ],
    question: dict[str, Any],
    reading: dict[str, str],
    limit: options.Limit = None,
    model: options.ServedModel = None,
    engine: options.EngineName = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    job_id: options.JobId = None,
    name: options.Name = None,
    deadline: options.Deadline = None,
    result_ttl: options.ResultTtl = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    tenant: options.Tenant = "",
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.ServiceDebug = False,
) -> int:
    """Answer documents, all on this machine, and end.

    Starts a Redis (unless one is named), the workers and the model, and ends them all afterwards.
    Results come in order of completion. Run the same command again to go on after an interruption:
    documents with an answer in OUT are skipped, those with an error are tried again.

        docmill run papers/ -o answers.jsonl --prompt "Summarize this in three sentences."

        docmill run questions.jsonl -o answers.jsonl

        docmill run 'notes/**/*.md' -o - --prompt @prompt.txt --max-tokens 64 > answers.jsonl
    """
    from docmill.cli.input import Work
    from docmill.cli.run import run as run_here
    from docmill.cli.session import Request

    to_stdout = str(output) == "-"
    if to_stdout and as_json:
        raise typer.BadParameter("standard output takes either the results or --json")
    request = Request(
        work=Work(
            inputs,
            question,
            reading,
            _terms(name=name, deadline=deadline, result_ttl=result_ttl),
            None if to_stdout else output,
            limit,
        ),
        settings=_settings(
            model=model,
            engine=engine,
            dtype=dtype,
            threads=threads,
            redis_url=redis_url,
            namespace=namespace or DEFAULT_NAMESPACE,
            state_dir=state_dir,
        ),
        state_dir=state_dir,
        job_id=job_id,
        tenant=tenant,
        as_json=as_json,
        is_debug=debug,
    )
    return run_here(request)


@app.command(epilog=CHECK_TABLE)
@takes(question=question, reading=reading)
def check(
    inputs: options.Inputs,
    question: dict[str, Any],
    reading: dict[str, str],
    limit: options.Limit = None,
    model: options.ServedModel = None,
    engine: options.EngineName = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Show what would happen to each document and why, without a model run.

    Says of each document how long it is, whether it fits, what is cut or split, what was found in
    it, and of which one it is a duplicate. Only the model's tokenizer is loaded. Without a prompt
    the documents are taken as they are.

        docmill check papers/ --prompt "Summarize this." --truncate split

        docmill check reviews.csv --column body --json > what-happens.jsonl
    """
    from docmill.cli.check import check as tell
    from docmill.cli.input import Work

    settings = _settings(model=model, engine=engine, state_dir=state_dir)
    work = Work(inputs, question, reading, limit=limit)
    return tell(work, settings, as_json=as_json)


def _terms(**terms: Any) -> dict[str, Any]:
    return {name: value for name, value in terms.items() if value is not None}


def _settings(*, model: str | None, state_dir: Path, **settings: Any) -> dict[str, Any]:
    if model is not None and Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().absolute())  # the service runs in another folder
    named = {"model": model, "state_dir": str(state_dir.expanduser().absolute()), **settings}
    return {name: value for name, value in named.items() if value is not None}


@app.command(epilog=UP_TABLE)
def up(
    model: options.ServedModel = None,
    engine: options.EngineName = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Keep a service running until Ctrl-C.

    Unless a Redis is named, one is started whose data lies in the state directory: what waits is
    kept, and the next 'docmill up' goes on with it. The other commands find it by themselves,
    through the file service.json in the state directory.

        docmill up

        docmill up --model Qwen/Qwen3-0.6B --dtype bfloat16
    """
    from docmill.cli.service import up as serve

    settings = _settings(
        model=model,
        engine=engine,
        dtype=dtype,
        threads=threads,
        redis_url=redis_url,
        namespace=namespace or DEFAULT_NAMESPACE,
        state_dir=state_dir,
    )
    return serve(settings, state_dir, as_json=as_json)


@app.command(epilog=SUBMIT_TABLE)
@takes(question=question, reading=reading)
def submit(
    inputs: options.Inputs,
    question: dict[str, Any],
    reading: dict[str, str],
    limit: options.Limit = None,
    model: options.Model = None,
    tier: options.Tier = "batch",
    job_id: options.JobId = None,
    name: options.Name = None,
    deadline: options.Deadline = None,
    result_ttl: options.ResultTtl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")] = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    tenant: options.Tenant = "",
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Give documents to a running service; prints the job's id.

    docmill submit papers/ --prompt "Summarize this."

    docmill submit papers/ --prompt "Summarize this." --redis-url rediss://me:secret@host:6380
    """
    from docmill.cli.input import Work
    from docmill.cli.jobs import Target
    from docmill.cli.submit import submit as send

    work = Work(
        inputs,
        question | ({"model": model} if model else {}),
        reading,
        _terms(tier=tier, job_id=job_id, name=name, deadline=deadline, result_ttl=result_ttl),
        limit=limit,
    )
    target = Target(redis_url, namespace, state_dir, tenant)
    return send(target, work, waits=wait, as_json=as_json)


@app.command(epilog=PLAIN_TABLE)
def status(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Without it: workers, backlog and latest jobs."),
    ] = None,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Show how far a job is, or what the service does."""
    from docmill.cli.jobs import Target
    from docmill.cli.overview import status as show

    return show(Target(redis_url, namespace, state_dir), job, as_json=as_json)


@app.command(epilog=RESULTS_TABLE)
def results(
    job: options.JobArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="OUT", help="- (default) is standard output."),
    ] = Path("-"),
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only what is there; do not wait for the rest.")
    ] = False,
    redis_url: options.RedisUrl = None,
    namespace: options.Namespace = None,
    state_dir: options.StateDir = options.DEFAULT_STATE_DIR,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Write a job's results as they come, until it ends.

    Into a file, only those that it does not have yet are added. Answers in it are kept; a failure
    in it is replaced by the document's result of now.

        docmill results 20261130-073512-3f9a2c1b -o answers.jsonl
    """
    from docmill.cli import jobs

    target = jobs.Target(redis_url, namespace, state_dir)
    path = None if str(output) == "-" else output
    return jobs.results(target, job, path, waits=not no_wait, as_json=as_json)


for command, table in (*steer.COMMANDS, *ask.COMMANDS):
    app.command(epilog=table)(command)
app.add_typer(dead.app, name="dead")


def main() -> None:
    """Run the command line."""
    app()
