"""The client: submit documents, come back to jobs.

The light face of the package: importing it loads neither redis nor pydantic, which the first use
does. Decides only how arguments become a submission. May import everything in docmill at run time.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from docmill.tenant import check_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from docmill.dead import DeadLetters
    from docmill.intake import Document, Refusal
    from docmill.job import Job
    from docmill.link import Link
    from docmill.rules import Policy
    from docmill.shards import Shards
    from docmill.submission import Counts
    from docmill.wire import Dedup, Truncate

    #: What can be submitted; see `Client.submit`.
    DocumentLike = (
        str
        | bytes
        | tuple[str, str | bytes]
        | Mapping[str, Any]
        | PathLike[str]
        | Document
        | Refusal
    )
    #: What holds documents: an iterable of them, or one path.
    Documents = Iterable[DocumentLike] | PathLike[str]

DEFAULT_URL = "redis://127.0.0.1:6379/0"
DEFAULT_RESULT_TTL_S = 7 * 24 * 3600


class Client:
    """Submits documents to a docmill service and reads its answers; thread-safe.

    Nothing is connected before the first call. A Redis that goes away for a while is sat out.

    Args:
        url: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://; see
            `docmill.connection`.
        namespace: Separates installations that share one Redis.
        reconnect_s: How long a connection that worked before may be away.
        max_document_bytes: Larger documents become error records without being sent.
        tenant: On whose behalf documents are submitted; no answer is shared between tenants. It is
            what this client says of itself: those who must not see each other's documents get
            namespaces and Redis users of their own.

    Raises:
        JobRejected: The tenant is no text, or longer than 128 bytes.
        ConfigError: On first use: the URL or the namespace cannot be used.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        namespace: str = "default",
        *,
        reconnect_s: float = 60.0,
        max_document_bytes: int = 16 * 1024 * 1024,
        tenant: str = "",
    ) -> None:
        self._url = url
        self._namespace = namespace
        self._reconnect_s = reconnect_s
        self._max_document_bytes = max_document_bytes
        self._tenant = check_tenant(tenant)
        self._lock = threading.Lock()
        self._made_shards: Shards | None = None

    @property
    def _shards(self) -> Shards:
        from docmill.shards import Shards

        with self._lock:
            if self._made_shards is None:
                self._made_shards = Shards(self._url, self._namespace, self._reconnect_s)
        return self._made_shards

    @property
    def _link(self) -> Link:
        return self._shards.first

    def submit(
        self,
        documents: Documents,
        *,
        prompt: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        tier: Literal["interactive", "batch"] = "batch",
        deadline: float | timedelta | datetime | None = None,
        truncate: Truncate = "semantic",
        max_document_tokens: int | None = None,
        combine_prompt: str | None = None,
        rules: Mapping[str, Policy] | None = None,
        dedup: Dedup = "text",
        near_threshold: float | None = None,
        job_id: str | None = None,
        name: str | None = None,
        result_ttl: float | timedelta = DEFAULT_RESULT_TTL_S,
        on_full: Literal["wait", "raise"] = "wait",
        progress: bool = False,
        on_open: Callable[[Job], None] | None = None,
        on_progress: Callable[[Counts], None] | None = None,
    ) -> Job:
        """Submit documents as one job, streaming them: only a chunk is held at a time.

        A document is a text, its bytes, a pair of custom id and text, a mapping (`{"id": …,
        "text": …}` with its own prompt, max_tokens … if it likes, or an OpenAI Batch request), a
        path, or a `docmill.Document`. Those without an id are named by their place. Whatever cannot
        be used becomes an error record, and the rest runs; so does the later of two documents with
        the same custom id. What a document asks for itself takes precedence, except that a `model`
        given here is the one used.

        Submitting again with the same job id adds what the job does not have yet, by custom id; so
        an interrupted submission is finished by repeating it. Prompt and parameters have to be the
        same again; documents may bring others, and those that the job has keep what they had.

        Args:
            documents: Any iterable of documents, or one path (file, folder or .jsonl).
            prompt: What to ask. `{document}` marks the document's place; without it the document
                follows after a blank line.
            messages: Chat messages instead of a prompt, with the same mark; without it the document
                follows the last user message.
            model: The model to use; None takes whatever the service serves.
            max_tokens: The longest answer, in tokens.
            temperature: 0 always takes the likeliest token.
            top_p: Share of probability to sample from.
            stop: Strings that end an answer; they are not part of it.
            seed: Makes sampling repeatable.
            tier: "interactive" goes before "batch".
            deadline: Seconds from now, or a moment (a datetime with a zone), after which answers
                are not wanted any more.
            truncate: What becomes of a document that is too long for the model. "semantic" keeps
                its beginning, up to the end of a paragraph or sentence; "head", "tail" and "middle"
                keep that part, exact to the token; "key_information" keeps title, headings and the
                sentences that matter most for the prompt; "split" answers it in parts, then
                combines their answers into one; "refuse" fails it. The result's `truncation` or
                `division` tells what was done.
            max_document_tokens: A document with more tokens counts as too long, whatever fits.
            combine_prompt: What to ask about the answers to the parts of a document that was split;
                `{document}` marks their place. By default derived from the prompt.
            rules: What to do about findings in a document, by the rule's id: "allow", "flag",
                "repair" or "reject"; docs/preprocessing.md lists the rules and their defaults.
            dedup: Which documents may share an answer, if all that is asked is the same as well:
                those of the same "text" (up to its Unicode normal form, line ends and trailing line
                breaks), those that are "exact" copies to the model's token, or "off".
            near_threshold: From which similarity on, 0.5 to 1, an almost equal earlier document's
                answer may be taken, unless the two differ in a number, a name or a date. By default
                never; the result's `near` names the earlier document all the same.
            job_id: Names the job, for coming back to it; made up if not given.
            name: For people.
            result_ttl: How long results are kept after the job ended, in seconds.
            on_full: What to do while the service has too much to do: "wait", or "raise" QueueFull.
            progress: Show how many documents have been sent, on standard error.
            on_open: Called with the job before its first document is sent, to follow it meanwhile.
            on_progress: Called after each chunk with how many documents were accepted, were in the
                job before, and were refused.

        Returns:
            The job, sealed: it ends when its last document does.

        Raises:
            JobRejected: A parameter cannot be used, or the job was submitted with another prompt,
                with other parameters or for another tenant before; nothing was sent.
            IntakeError: The input cannot be read at all, or there are no documents.
            QueueFull: The backlog is full, or Redis is out of memory; what was accepted stays,
                submit again to go on.
            JobCancelled: The job was cancelled and takes no more documents.
            BrokerUnavailable: Redis cannot be reached, or was away for too long.
        """
        from docmill.envelope import Terms
        from docmill.errors import JobRejected
        from docmill.intake.values import items_of
        from docmill.job import Job
        from docmill.progress import show_progress
        from docmill.request import (
            SpecBook,
            check_job_id,
            check_name,
            check_tier,
            deadline_at,
            seconds,
        )
        from docmill.submission import Submission

        now = datetime.now(UTC)
        if on_full not in ("wait", "raise"):
            raise JobRejected(f"on_full must be 'wait' or 'raise', got {on_full!r}")
        specs = SpecBook(
            {
                "prompt": prompt,
                "messages": messages,
                "model": model,
                "max_tokens": max_tokens,
                "temperature": temperature,
                "top_p": top_p,
                "stop": stop,
                "seed": seed,
                "truncate": truncate,
                "max_document_tokens": max_document_tokens,
                "combine_prompt": combine_prompt,
                "rules": rules,
                "dedup": dedup,
                "near_threshold": near_threshold,
            }
        )
        terms = Terms(
            job_id=new_job_id(now) if job_id is None else check_job_id(job_id),
            tier=check_tier(tier),
            deadline_at=deadline_at(deadline, now),
            result_ttl_s=max(1, round(seconds(result_ttl, "result_ttl"))),
            name=check_name(name),
            waits_when_full=on_full == "wait",
            max_document_bytes=self._max_document_bytes,
            tenant=self._tenant,
        )
        items = items_of(documents, self._max_document_bytes)
        # a job that was named may be there already, in the shard where it was begun
        find = self._shards.of if job_id is None else self._shards.holding
        link = find(terms.job_id)
        job = Job(link, terms.job_id)
        with show_progress(is_shown=progress) as reporter:

            def tell(counts: Counts) -> None:
                reporter.update(counts.total, None, num_failed=counts.refused)
                if on_progress:
                    on_progress(counts)

            opened = (lambda: on_open(job)) if on_open else None
            Submission(link, terms, specs, on_open=opened, on_progress=tell).run(items)
        return job

    def job(self, job_id: str) -> Job:
        """Come back to a job.

        Raises:
            JobNotFound: There is no such job.
            ResultExpired: It ended and was kept for its lifetime.
            BrokerUnavailable: Redis cannot be reached.
        """
        from docmill.errors import JobNotFound, ResultExpired
        from docmill.job import Job

        problem: JobNotFound | ResultExpired | None = None
        for link in self._shards.where(job_id):
            job = Job(link, job_id)
            try:
                job.status()
            except JobNotFound as error:
                problem = problem or error
            except ResultExpired as error:
                problem = error
            else:
                return job
        assert problem is not None
        raise problem

    def dead_letters(self) -> DeadLetters:
        """Return what was given up for good, of all jobs: to look at, retry or drop.

        Raises:
            BrokerUnavailable: Redis cannot be reached.

        Cost: One round trip.
        """
        from docmill.dead import DeadLetters

        return DeadLetters(*self._shards.all())

    def ping(self) -> None:
        """Make sure that Redis answers.

        Raises:
            BrokerUnavailable: It does not; the message says what to do.
        """
        link = self._link
        # with a key, so that a node of a cluster shows that it is one
        link.run(lambda: link.client.exists(link.keys.shards))

    def close(self) -> None:
        """Close the connections. Jobs of this client cannot be used afterwards."""
        if self._made_shards is not None:
            self._made_shards.close()

    def __enter__(self) -> Self:
        """Return the client; it is closed at the block's end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()


def new_job_id(now: datetime) -> str:
    """Make up a job id that sorts by time and can be typed: 20261130-073512-3f9a2c1b."""
    import secrets

    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
