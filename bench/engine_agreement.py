"""How near answers are to greedy float32: the model in full precision judges every side alike.

Decides three measures. `identical_ratio` is the share of answers equal to greedy float32's, token
for token; `before_first_difference` the mean share of an answer before it differs for the first
time. Both punish one close call as if all that follows were wrong, so the fairest is the third:
`next_token_agreement`, the share of an answer's tokens that float32 would have chosen too after the
same prompt and the same answer so far. Where float32 would choose a special token, an end of text
for instance, no token counts, because sides keep answers from ending in different ways. May import
torch and transformers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from bench.engine_peers.base import Answers, Prompt


def identical_ratio(answers: Answers, reference: Answers) -> float:
    """Return the share of answers that equal the reference's."""
    same = sum(answers[prompt_id] == expected for prompt_id, expected in reference.items())
    return same / len(reference)


def before_first_difference(answers: Answers, reference: Answers) -> float:
    """Return the mean share of an answer that comes before its first difference."""
    shares = [
        _common(answers[prompt_id], expected) / len(expected)
        for prompt_id, expected in reference.items()
    ]
    return sum(shares) / len(shares)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many leading tokens are the same."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def next_token_agreement(
    model: Any,
    prompts: Sequence[Prompt],
    answers: Mapping[str, Answers],
    special: Collection[int],
) -> dict[str, float]:
    """Return for each side the share of its tokens that the model would have chosen.

    A prompt is computed once; all sides' answers to it continue it in one batch, which needs no
    padding because they are equally long.

    Args:
        model: A transformers model in float32.
        prompts: What was answered.
        answers: Each side's answers.
        special: Tokens that are not counted where the model would choose them.

    Cost: the prompts once, one by one, and every side's answers.
    """
    sides = list(answers)
    agreed = torch.zeros(len(sides), dtype=torch.int64)
    counted = torch.zeros(len(sides), dtype=torch.int64)
    skipped = torch.tensor(sorted(special), dtype=torch.int64)
    for prompt in prompts:
        said = torch.tensor([answers[side][prompt.prompt_id] for side in sides])
        choices = _choices(model, prompt, said)
        counts = ~torch.isin(choices, skipped)
        agreed += ((choices == said) & counts).sum(dim=1)
        counted += counts.sum(dim=1)
    return dict(zip(sides, (agreed / counted.clamp(min=1)).tolist(), strict=True))


def _choices(model: Any, prompt: Prompt, said: torch.Tensor) -> torch.Tensor:
    """Return what the model would have said at each place of each answer.

    Shapes:
        said: [B, T], the answers.   returns: [B, T].
    """
    with torch.inference_mode():
        start = model(input_ids=torch.tensor([prompt.ids]), use_cache=True, logits_to_keep=1)
        first = start.logits[:, -1].argmax(dim=-1)  # [1]
        cache = start.past_key_values
        cache.batch_repeat_interleave(len(said))
        rest = model(input_ids=said, cache=cache, use_cache=True).logits.argmax(dim=-1)
    # after the last token nothing was said
    return torch.cat([first.expand(len(said))[:, None], rest[:, :-1]], dim=1)
