"""`docmill ingest`, `export` and `tasks` on a real Redis: what they refuse and show."""

import json
from typing import Any

import pytest

from docmill import Client
from docmill.keys import Keys
from tests.integration.docmill.conftest import Command


@pytest.mark.parametrize("paths", [["a.csv"], ["a.txt", "*.md"]], ids=" ".join)
def test_files_without_a_prompt_are_refused_at_once(
    docmill: Command, redis_client: Any, keys: Keys, paths: list[str]
) -> None:
    """Nothing is asked of the service where no line can bring a prompt of its own."""
    finished = docmill("ingest", *paths)

    assert 2 == finished.exit_code
    assert f"there is no prompt for {paths[0]}: say what to ask with --prompt" in finished.stderr
    assert 0 == redis_client.hlen(keys.tasks)


@pytest.mark.parametrize("path", ["in.jsonl", "in.jsonl.gz", "2026/*", "papers/"])
def test_lines_may_bring_prompts_of_their_own(docmill: Command, path: str) -> None:
    """What may be, or hold, a file of such lines is left to the service to look at."""
    assert 0 == docmill("ingest", path, "--job-id", "own").exit_code


def test_a_job_that_is_not_there_is_not_exported(
    docmill: Command, client: Client, redis_client: Any, keys: Keys
) -> None:
    """It is refused at once, unless a task that was asked for will fill it, or it is there."""
    client.submit(["text"], prompt="Say", job_id="there")
    refused = docmill("export", "filled", "out.jsonl")
    docmill("ingest", "in.jsonl", "--job-id", "filled")

    assert 2 == refused.exit_code
    assert "there is no job 'filled'" in refused.stderr
    assert 0 == docmill("export", "filled", "out.jsonl").exit_code
    assert 0 == docmill("export", "there", "out.jsonl").exit_code
    assert 3 == redis_client.hlen(keys.tasks)


def test_one_task_is_shown(docmill: Command, client: Client) -> None:
    """By the id that asking for it printed; one that is not there is named."""
    client.submit(["text"], prompt="Say", job_id="there")
    asked = docmill("export", "there", "out.jsonl")
    docmill("export", "there", "other.jsonl")
    task_id = asked.stdout.strip()

    shown = docmill("tasks", task_id)

    assert f"'docmill tasks {task_id}' shows how far it is" in asked.stderr
    assert f"{task_id}  export of there: queued, out.jsonl\n" == shown.stdout
    assert task_id == json.loads(docmill("tasks", task_id, "--json").stdout)["task_id"]
    unknown = docmill("tasks", "never")
    assert 2 == unknown.exit_code
    assert "there is no task 'never'" in unknown.stderr
