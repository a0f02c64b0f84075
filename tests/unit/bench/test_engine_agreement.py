"""How near answers are to greedy float32."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.engine_agreement import before_first_difference, identical_ratio, next_token_agreement
from bench.engine_peers.base import Prompt
from bench.engine_peers.transformers_engine import generate
from tests.support.tiny_model import tiny_llama

PROMPTS = [Prompt("a", tuple(range(10, 30)), 6), Prompt("b", tuple(range(40, 47)), 4)]


@pytest.fixture(scope="module")
def model() -> Any:
    """A tiny model in float32 in which no token ends a text."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(tiny_llama(), dtype=torch.float32).eval()
    loaded.generation_config.eos_token_id = None
    loaded.generation_config.pad_token_id = 0
    return loaded


def test_answers_are_compared_token_for_token() -> None:
    """One is equal, one differs in its third of four tokens."""
    answers = {"a": [1, 2], "b": [1, 2, 9, 4]}
    reference = {"a": [1, 2], "b": [1, 2, 3, 4]}

    assert identical_ratio(answers, reference) == 0.5
    assert before_first_difference(answers, reference) == 0.75


def test_greedy_float32_agrees_with_itself_and_a_slip_counts_once(model: Any) -> None:
    """After a slip the model judges what follows by what was said, right or wrong."""
    own = generate(model, PROMPTS, 1)
    slipped = {name: list(tokens) for name, tokens in own.items()}
    slipped["a"][-1] = (slipped["a"][-1] + 1) % 300

    agreement = next_token_agreement(model, PROMPTS, {"own": own, "slipped": slipped}, special=())

    assert {"own": 1.0, "slipped": pytest.approx(0.9)} == agreement


def test_places_where_a_special_token_would_stand_do_not_count(model: Any) -> None:
    """A side that bans end of text has nothing else to say there."""
    own = generate(model, PROMPTS, 1)
    special = own["a"][0]
    banned = {name: [300 if token == special else token for token in own[name]] for name in own}
    first_alone = {name: tokens[:1] for name, tokens in banned.items()}

    agreement = next_token_agreement(model, PROMPTS[:1], {"banned": first_alone}, special=[special])

    assert {"banned": 0.0} == agreement  # nothing counted, nothing agreed
    assert 1.0 == next_token_agreement(model, PROMPTS[:1], {"own": own}, special=())["own"]
