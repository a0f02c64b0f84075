"""What cutting saves, and what it keeps: a part of bench.preprocess.

*semantic_tokens_saved_ratio*: of the workload (bench.workload, repeats included), the longest
quarter of the documents is cut, each to half of its own length; the document tokens that are saved,
over the document tokens of the whole workload; five workloads of 1,000. *…_from_1024*: the same,
when those of 1,024 tokens or more are cut. *semantic_budget_fill*: of the first, the mean share of
the budget that is kept. *key_sentence_recall*: of the key
sentences of bench.planted, the share that is whole in what is left of a document that is cut to
half of its length. May import preprocess and the other files of the bench.
"""

from statistics import fmean
from typing import get_args

from bench import planted
from bench.preparation import Figures, Kit
from bench.report import figure
from bench.workload import Request, requests
from preprocess import truncate
from preprocess.base import Tokens

_LONG_SHARE, _LONG_TOKENS = 0.25, 1_024
#: The share of long documents varies from one workload to the next.
_WORKLOADS, _WORKLOAD_SIZE = 5, 1_000
_POLICIES = tuple(policy for policy in get_args(truncate.Policy) if policy != "refuse")
#: Recall varies with what is asked and where its answers lie.
_PLANTED_PER_RUN, _SEEDS = 40, 3


def measure(kit: Kit) -> Figures:
    """Measure what semantic cuts save and what each policy keeps."""
    return _savings(kit) | _recalls(kit)


def _half(
    kit: Kit, document: str, tokens: Tokens, policy: truncate.Policy, asked: str
) -> truncate.Fit:
    """Cut a document to half of its tokens."""
    budget = len(tokens) // 2
    room = truncate.Room(budget, template_len=0, max_tokens=0)
    fit = truncate.fit(document, tokens, room, policy, asked, kit.tokenizer)
    assert isinstance(fit, truncate.Fit), fit
    return fit


def _encoded(kit: Kit, documents: list[str]) -> list[Tokens]:
    return [tokens for tokens in kit.tokenizer.encode_documents(documents) if tokens is not None]


def _savings(kit: Kit) -> Figures:
    quarters, fills, thousands = [], [], []
    for seed in range(_WORKLOADS):
        workload = list(requests(_WORKLOAD_SIZE, seed=seed))
        encoded = _encoded(kit, [request.document for request in workload])
        by_length = sorted(map(len, encoded), reverse=True)
        ratio, fill = _saved(kit, workload, encoded, by_length[int(_LONG_SHARE * len(by_length))])
        quarters.append(ratio)
        fills.append(fill)
        thousands.append(_saved(kit, workload, encoded, _LONG_TOKENS)[0])
    return {
        "semantic_tokens_saved_ratio": figure(quarters, "share of document tokens"),
        "semantic_tokens_saved_ratio_from_1024": figure(thousands, "share of document tokens"),
        "semantic_budget_fill": figure(fills, "share of budget"),
    }


def _saved(
    kit: Kit, workload: list[Request], encoded: list[Tokens], from_len: int
) -> tuple[float, float]:
    """Return the share of a workload's tokens that is saved, and how full the budgets are."""
    saved = 0
    fills: list[float] = []
    for request, tokens in zip(workload, encoded, strict=True):
        if len(tokens) >= from_len:
            fit = _half(kit, request.document, tokens, "semantic", request.question)
            fills.append(len(fit.tokens) / (len(tokens) // 2))
            saved += len(tokens) - len(fit.tokens)
    return saved / sum(map(len, encoded)), fmean(fills)


def _recalls(kit: Kit) -> Figures:
    recalls: dict[truncate.Policy, list[float]] = {policy: [] for policy in _POLICIES}
    for seed in range(_SEEDS):
        pile = list(planted.documents(_PLANTED_PER_RUN, seed=seed))
        encoded = _encoded(kit, [each.document for each in pile])
        for policy, means in recalls.items():
            kept = [
                _half(kit, each.document, tokens, policy, each.instruction).text
                for each, tokens in zip(pile, encoded, strict=True)
            ]
            means.append(fmean(map(planted.recall, kept, pile)))
    names = {"key_information": "key_sentence_recall"}
    return {
        names.get(policy, f"{policy}_key_sentence_recall"): figure(means, "share of sentences")
        for policy, means in sorted(recalls.items(), key=lambda item: item[0] != "key_information")
    }
