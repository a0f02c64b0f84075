"""What becomes of documents on their way to the model: real processes, and a real Redis."""

import json
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from docmill import Client, Result
from tests.support.command import docmill
from tests.support.processes import running
from tests.support.redis_server import running_redis

#: More than anybody needs, in sentences that all differ.
LONG = " ".join(f"Sentence number {number} tells of valve {number}." for number in range(2_000))


def _results(path: Path) -> dict[str, Result]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    results = [Result.from_openai(json.loads(line)) for line in lines]
    assert len(results) == len({result.custom_id for result in results})
    return {result.custom_id: result for result in results}


def test_a_long_document_is_answered_in_parts(tmp_path: Path) -> None:
    """It has one result, which says how many parts it had; a short one beside it has none."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    texts = {"long": LONG, "short": LONG[:200], "longer": f"{LONG} And this."}
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    source.write_text("\n".join(lines), encoding="utf-8")
    finished = docmill(
        *("run", source, "-o", target, "-p", "Sum up.", "--max-tokens", "32"),
        *("--truncate", "split", "--engine", "fake"),
        DOCMILL_MAX_CONTEXT_LEN="1500",
    )
    results = _results(target)
    division = results["long"].division

    assert finished.status == 0, finished.stderr
    assert set(texts) == set(results)
    assert all(result.ok for result in results.values())
    assert division is not None
    assert division.parts > 10
    assert division.completion_tokens >= division.parts
    assert results["short"].division is None
    assert results["long"].truncation is None
    assert "2 documents answered in" in finished.stderr


def test_copies_that_arrive_at_once_run_once() -> None:
    """Two clients, two preprocessing workers and two engines: no text is computed twice."""
    texts = [f"Document {number} of the pile." for number in range(300)]
    with ExitStack() as stack:
        url = stack.enter_context(running_redis()).url
        settings = {"redis_url": url, "engine": "fake", "log_level": "warning"}
        for role in ("preprocess_worker", "engine_worker") * 2:
            stack.enter_context(running(f"workers.{role}", **settings))
        answers: list[Result] = []

        def ask() -> None:
            with Client(url) as client:
                job = client.submit(texts, prompt="Sum up.")
                answers.extend(job.results(timeout=60))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert Counter(result.ok for result in answers) == {True: 600}
    assert sum(result.shared == "run" for result in answers) == 300
