"""Every Redis key docmill uses, in one place.

All keys of a shard carry the hash tag `{dm:<namespace>:<shard>}`, so that a shard is one cluster
slot and a Lua script may touch any of its keys. `lua/_lib.lua` builds the same names from the
shard's prefix; `tests/unit/docmill/test_keys.py` holds the two together. May import nothing but the
standard library.
"""

from dataclasses import dataclass
from zlib import crc32

#: The one consumer group on every stream that workers share.
GROUP = "workers"

#: Tiers in the order in which they are served.
TIERS = ("interactive", "batch")


def shard_of(job_id: str, num_shards: int) -> int:
    """Return the shard in which a job of this id lies: the same one in every process, for ever."""
    return crc32(job_id.encode()) % num_shards


def parts_job(job_id: str, request_id: str, rounds: int) -> str:
    """Name the job that a document's parts make up; no caller's job has such a name.

    Args:
        job_id: The document's job.
        request_id: The document's.
        rounds: How often answers to its parts were combined before.
    """
    return f"{job_id}~{request_id}" + (f"~{rounds}" if rounds else "")


def is_parts_job(job_id: str) -> bool:
    """Whether a job was named by `parts_job`."""
    return "~" in job_id


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one shard.

    Stream entries and their lifetimes are described in docs/wire-format.md.
    """

    namespace: str = "default"
    shard: int = 0

    @property
    def prefix(self) -> str:
        """The shard's prefix; scripts get it as `KEYS[1]`."""
        return f"{{dm:{self.namespace}:{self.shard}}}"

    def intake(self, tier: str) -> str:
        """Stream: documents as submitted, waiting for preprocessing."""
        return f"{self.prefix}:intake:{tier}"

    def ready(self, model_version: str, tier: str, bucket: int) -> str:
        """Stream: prepared documents of one model version, tier and length bucket."""
        return f"{self.prefix}:ready:{model_version}:{tier}:{bucket}"

    def job(self, job_id: str) -> str:
        """Hash: the job's counters and state."""
        return f"{self.prefix}:job:{job_id}"

    def custom_ids(self, job_id: str) -> str:
        """Set: custom ids already accepted by the job."""
        return f"{self.prefix}:job:{job_id}:ids"

    def specs(self, job_id: str) -> str:
        """Hash: digest -> request spec, what all documents with that digest are asked."""
        return f"{self.prefix}:job:{job_id}:specs"

    def results(self, job_id: str) -> str:
        """Stream: one entry per finished document, in completion order."""
        return f"{self.prefix}:job:{job_id}:results"

    def bodies(self, job_id: str) -> str:
        """Hash: fingerprint -> a result body that several results of the job share."""
        return f"{self.prefix}:job:{job_id}:bodies"

    def cancelled(self, job_id: str) -> str:
        """Set: custom ids of the job that were cancelled singly."""
        return f"{self.prefix}:job:{job_id}:cancelled"

    def history(self, job_id: str) -> str:
        """Hash: request id -> its earlier dead letters, one line each."""
        return f"{self.prefix}:job:{job_id}:history"

    def parked(self, job_id: str) -> str:
        """Stream: the job's ready entries while it is paused."""
        return f"{self.prefix}:job:{job_id}:parked"

    def splits(self, job_id: str) -> str:
        """Hash: custom id -> the job of its parts, while they are answered."""
        return f"{self.prefix}:job:{job_id}:splits"

    def whole(self, job_id: str) -> str:
        """Hash: of a job of parts, the entry of the document that they are parts of."""
        return f"{self.prefix}:job:{job_id}:whole"

    @property
    def parked_jobs(self) -> str:
        """Set: ids of the jobs that have parked entries."""
        return f"{self.prefix}:parked"

    @property
    def open_jobs(self) -> str:
        """Sorted set: unsealed jobs by when their producer last did something."""
        return f"{self.prefix}:open"

    @property
    def later(self) -> str:
        """Sorted set: request ids that wait for another try, by when it is due."""
        return f"{self.prefix}:later"

    def later_entry(self, request_id: str) -> str:
        """Hash: the fields of an entry that waits for another try, and its stream."""
        return f"{self.prefix}:later:{request_id}"

    @property
    def jobs(self) -> str:
        """Sorted set: the latest 10,000 job ids by the time they were opened."""
        return f"{self.prefix}:jobs"

    @property
    def backlog(self) -> str:
        """Hash: `docs` and `bytes` accepted and not yet finished, with their limits."""
        return f"{self.prefix}:backlog"

    @property
    def running(self) -> str:
        """Sorted set: request ids in an engine now, by start time."""
        return f"{self.prefix}:running"

    @property
    def dead(self) -> str:
        """Stream: entries given up, with all their fields."""
        return f"{self.prefix}:dead"

    def leader(self, fingerprint: str) -> str:
        """String: the request id that is computing this fingerprint."""
        return f"{self.prefix}:lead:{fingerprint}"

    def followers(self, fingerprint: str) -> str:
        """List: those waiting for the leader, eight items each; see lua/_lib.lua."""
        return f"{self.prefix}:followers:{fingerprint}"

    def cached_result(self, fingerprint: str) -> str:
        """String with expiry: the result body for this fingerprint."""
        return f"{self.prefix}:result:{fingerprint}"

    @property
    def answers(self) -> str:
        """Sorted set: fingerprints of the stored result bodies, by when they were last used."""
        return f"{self.prefix}:answers"

    @property
    def answer_bytes(self) -> str:
        """Hash: fingerprint -> bytes, of the stored result bodies."""
        return f"{self.prefix}:answers:bytes"

    @property
    def sharing(self) -> str:
        """Hash: figures of how answers are shared; see lua/_lib.lua."""
        return f"{self.prefix}:sharing"

    def heartbeat(self, consumer: str) -> str:
        """String with expiry: present while the consumer lives."""
        return f"{self.prefix}:heartbeat:{consumer}"

    def absent(self, consumer: str) -> str:
        """String with expiry: set when the consumer's heartbeat was first missed."""
        return f"{self.prefix}:absent:{consumer}"

    def alone(self, consumer: str) -> str:
        """String with expiry: the one entry that a preprocessing worker works on alone."""
        return f"{self.prefix}:alone:{consumer}"

    @property
    def consumers(self) -> str:
        """Hash: consumer -> what it is and does (JSON), removed when it is gone."""
        return f"{self.prefix}:consumers"

    @property
    def models(self) -> str:
        """Hash: model version -> name, context length and bucket bounds (msgpack)."""
        return f"{self.prefix}:models"

    @property
    def reaper(self) -> str:
        """String with expiry: token and holder, of the reaper at work on this shard."""
        return f"{self.prefix}:reaper"

    @property
    def tasks(self) -> str:
        """Hash: task id -> record (msgpack), of the tasks that have not ended."""
        return f"{self.prefix}:tasks"

    @property
    def tasks_ended(self) -> str:
        """Hash with expiry: task id -> record, of the latest tasks that have ended."""
        return f"{self.prefix}:tasks:ended"

    @property
    def shards(self) -> str:
        """String, in shard 0 alone: how many shards the namespace has; absent: 1."""
        return f"{self.prefix}:shards"
