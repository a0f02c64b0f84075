"""The workload has the shape that its documentation states."""

from collections import Counter

import pytest

from bench.workload import (
    CHARS_PER_TOKEN,
    MAX_OUTPUT_TOKENS,
    MAX_TOKENS,
    MIN_OUTPUT_TOKENS,
    instructions,
    requests,
    summary,
)


def test_equal_seeds_give_equal_workloads() -> None:
    """The workload depends on its seed and on nothing else."""
    assert list(requests(40, seed=3)) == list(requests(40, seed=3))
    assert list(requests(40, seed=3)) != list(requests(40, seed=4))


def test_shares_are_exact() -> None:
    """20 % are duplicates, 10 % further questions, and 40 % of the fresh ones have instructions."""
    workload = list(requests(200))
    fresh = [each for each in workload if each.kind == "fresh"]

    assert Counter(fresh=140, duplicate=40, follow_up=20) == Counter(each.kind for each in workload)
    assert 56 == sum(each.instruction is not None for each in fresh)


def test_repeats_repeat_something_earlier() -> None:
    """A duplicate equals an earlier request; a further question shares its document alone."""
    seen: list[tuple[str | None, str, str]] = []
    for each in requests(100, seed=1):
        content = (each.instruction, each.document, each.question)
        assert (each.kind == "duplicate") == (content in seen)
        documents = {document for _, document, _ in seen}
        assert (each.kind == "fresh") == (each.document not in documents)
        seen.append(content)


def test_without_repetition_everything_is_fresh() -> None:
    """No document comes twice and no long instruction is used."""
    workload = list(requests(100, repetition=False))

    assert 100 == len({each.document for each in workload})
    assert all(each.instruction is None for each in workload)


def test_lengths_are_in_their_ranges() -> None:
    """Documents and outputs stay within the stated bounds."""
    for each in requests(100):
        assert len(each.document) <= CHARS_PER_TOKEN * MAX_TOKENS + len("Excerpt 100\n\n")
        assert MIN_OUTPUT_TOKENS <= each.max_tokens <= MAX_OUTPUT_TOKENS


@pytest.mark.parametrize("size", [1, 2, 7])
def test_small_workloads_have_their_size(size: int) -> None:
    """Rounding the shares loses and adds no request."""
    assert size == summary(list(requests(size)))["requests"]


def test_a_chat_is_its_template_with_the_document_in_place() -> None:
    """Pipelines and engines are asked the same."""
    [request] = requests(1)

    assert [role for role, _ in request.template()] == [turn["role"] for turn in request.chat()]
    assert request.document in request.chat()[-1]["content"]
    assert len(set(instructions())) == 4
