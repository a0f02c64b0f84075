"""The host's side of the compose test: submits a job through the Python client, checks its answers.

Run as `python -m deploy.compose_client` with the URL, which holds a password, on standard input.
May import docmill alone, as a user's program would.
"""

import sys
from collections.abc import Iterator

from docmill import Client

TIMEOUT_S = 300.0


def documents() -> Iterator[dict[str, str]]:
    """Yield documents of several kinds: ordinary, a duplicate, unusable."""
    yield {"id": "short", "text": "The river Thames flows through London."}
    yield {"id": "long", "text": "The mill grinds one bag of corn after another. " * 100}
    yield {"id": "twin", "text": "The river Thames flows through London."}
    yield {"id": "empty", "text": ""}


def main(url: str) -> int:
    """Submit, wait, compare with what must come back."""
    with Client(url) as client:
        job = client.submit(documents(), prompt="Summarise in one sentence.", max_tokens=24)
        results = {result.custom_id: result for result in job.results(timeout=TIMEOUT_S)}
    for result in results.values():
        said = result.text if result.ok else result.error
        sys.stdout.write(f"{result.custom_id}: {result.outcome} ({result.shared}): {said}\n")
    outcomes = {name: result.outcome for name, result in results.items()}
    expected = dict.fromkeys(("short", "long", "twin"), "succeeded") | {"empty": "failed"}
    if outcomes != expected or results["short"].text != results["twin"].text:
        sys.stderr.write(f"expected {expected}, got {outcomes}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
