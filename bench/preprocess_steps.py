"""What each step of preparing a document costs, by size: a part of bench.preprocess.

Each step is timed by calling its module as preprocess.pipeline does, a batch at a time; the whole
is the pipeline itself, by turns with them. `other` is what is left of it: plans, verdicts, looking
for what was seen. May import preprocess and the other files of the bench.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median

from bench.preparation import Figures, Kit, batches, timed
from bench.report import figure
from bench.texts import prose
from preprocess import checks, rules, truncate
from preprocess.base import Submission, Tokens, pack
from preprocess.near import NearIndex
from preprocess.pipeline import Preprocessor
from preprocess.plans import Plan, Plans

#: Kilobytes of a document -> how many documents a run.
_SIZES = {1: 1_024, 8: 256, 64: 32, 512: 8}
_QUICK_DIVISOR = 4
_NEAR_DOCUMENTS = 16_384

Seconds = dict[str, float]


class Steps:
    """The steps that documents go through, batch after batch."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        spec = kit.spec
        plan = Plans(kit.tokenizer, kit.served).get(spec, spec.digest(), "", datetime.now(UTC))
        assert isinstance(plan, Plan), plan
        self._plan = plan
        self._near = NearIndex(_NEAR_DOCUMENTS)
        self._documents: list[bytes] = []
        self._texts: list[str] = []
        self._tokens: list[Tokens] = []
        self._fits: list[truncate.Fit] = []
        self._fingerprints: list[str] = []

    def run(self, documents: list[bytes]) -> Seconds:
        """Take a batch through each step; return what each took."""
        for made in (self._texts, self._tokens, self._fits, self._fingerprints):
            made.clear()
        self._documents = documents
        steps: dict[str, Callable[[], None]] = {
            "checks": self._check,
            "rules": self._inspect,
            "tokenising": self._tokenise,
            "truncation": self._truncate,
            "fingerprint": self._fingerprint,
            "near_duplicates": self._look_for_near,
        }
        return {name: timed(step)[0] for name, step in steps.items()}

    def _check(self) -> None:
        limit = self._kit.served.max_document_bytes
        for document in self._documents:
            text = checks.read(document, "utf-8", limit)
            assert isinstance(text, checks.Text), text
            self._texts.append(text.text)

    def _inspect(self) -> None:
        for text in self._texts:
            rules.inspect(text, {}, self._kit.tokenizer.spells_control_token)

    def _tokenise(self) -> None:
        for tokens in self._kit.tokenizer.encode_documents(self._texts):
            assert tokens is not None
            self._tokens.append(tokens)

    def _truncate(self) -> None:
        plan, tokenizer = self._plan, self._kit.tokenizer
        for text, tokens in zip(self._texts, self._tokens, strict=True):
            fit = truncate.fit(text, tokens, plan.room, "semantic", plan.instruction, tokenizer)
            assert isinstance(fit, truncate.Fit), fit
            self._fits.append(fit)

    def _fingerprint(self) -> None:
        for text, fit in zip(self._texts, self._fits, strict=True):
            whole = None if fit.truncation else text
            self._fingerprints.append(self._plan.fingerprints.of(pack(fit.tokens), whole))

    def _look_for_near(self) -> None:
        for fit, own in zip(self._fits, self._fingerprints, strict=True):
            self._near.look(self._plan.scope, fit.text, own, "bench", own)


def measure(kit: Kit, runs: int, *, is_quick: bool) -> Figures:
    """Measure documents of each size, and the share of each step in what they take."""
    figures: Figures = {}
    for kilobytes, count in _SIZES.items():
        size = max(4, count // _QUICK_DIVISOR) if is_quick else count
        figures |= _measure_size(kit, kilobytes, size, runs)
    return figures


def _measure_size(kit: Kit, kilobytes: int, size: int, runs: int) -> Figures:
    submissions = kit.submissions(prose([kilobytes * 1024] * size * (runs + 1)))
    preprocessor, steps = kit.preprocessor(), Steps(kit)
    wholes: list[float] = []
    shares: dict[str, list[float]] = {}
    for run in range(runs + 1):
        fresh = submissions[run * size : (run + 1) * size]
        whole, spent = _run(kit, preprocessor, steps, fresh)
        if run == 0:
            continue  # warms up
        wholes.append(whole)
        for name, seconds in spent.items():
            shares.setdefault(name, []).append(seconds / whole)
    line = ", ".join(f"{name} {median(each):.0%}" for name, each in shares.items())
    print(f"{kilobytes:3} KB: {size / median(wholes):8,.1f} documents/s a core: {line}", flush=True)
    name = f"pipeline_{kilobytes}kb"
    return {
        f"{name}_docs_per_s": figure([size / each for each in wholes], "documents/s a core"),
        **{f"{name}_{step}_share": figure(each, "share") for step, each in shares.items()},
    }


def _run(
    kit: Kit, preprocessor: Preprocessor, steps: Steps, submissions: list[Submission]
) -> tuple[float, Seconds]:
    """Return what the whole took, and what each step did; by turns, batch by batch."""
    whole = 0.0
    spent: Seconds = defaultdict(float)
    for first, end in batches([len(each.document) for each in submissions]):
        batch = submissions[first:end]
        whole += timed(kit.prepare, preprocessor, batch)[0]
        for name, seconds in steps.run([each.document for each in batch]).items():
            spent[name] += seconds
    return whole, {**spent, "other": whole - sum(spent.values())}
