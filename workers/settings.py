"""The service's configuration: the only module that reads the environment.

Every setting is an environment variable `DOCMILL_<NAME>`; command-line options of the entry points
override it. All problems are reported at once, and a `DOCMILL_*` name that is not a setting is
refused, because a typing error must not silently keep a default. `docs/configuration.md` is
generated from the model. Does no I/O.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from docmill.errors import ConfigError, JobRejected
from docmill.rules import Policy, check_policies

PREFIX = "DOCMILL_"


class Settings(BaseSettings):
    """Everything an operator may set; units are in the names."""

    # lists are decoded by a validator here: the library's own failure hides all other problems
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", enable_decoding=False
    )

    redis_url: SecretStr | None = Field(
        None, description="Redis to use; without it the service starts one of its own."
    )
    namespace: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Separates installations that share one Redis.",
    )
    shards: int = Field(
        1,
        ge=1,
        le=1024,
        description="Shards of the namespace. Each has workers of its own, and may be with another "
        "master of a Redis Cluster.",
    )
    shard: int = Field(
        0,
        ge=0,
        description="The shard that a single worker process serves; the service serves them all.",
    )
    model: str = Field(
        "smollm2-135m",
        description="A model directory, a hub name, or `smollm2-135m` (set up on first use).",
    )
    model_name: str | None = Field(None, description="Name the model is served under.")
    engine: Literal["torch", "fake"] = Field(
        "torch", description="`fake` answers without a model, for tests and throughput checks."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Number format of weights and KV; `auto`: the fastest that is sound here.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs.")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads of the engine.")
    max_rows: int = Field(32, ge=1, le=4096, description="Rows in one running batch.")
    max_batch_tokens: int = Field(
        65_536, ge=256, description="Prompt plus output tokens over all rows of a batch."
    )
    max_context_len: int | None = Field(
        None, ge=16, description="Serve at most this many tokens per document; absent: the model's."
    )
    bucket_bounds: tuple[int, ...] = Field(
        (4096, 32_768),
        description="Upper prompt lengths of the length buckets, in tokens; one more is open.",
    )
    max_document_bytes: int = Field(
        16 * 1024 * 1024, ge=1024, description="Larger documents are refused before tokenising."
    )
    rules: dict[str, Policy] = Field(
        {},
        description="Policies of content rules that differ from their own, as a JSON object such "
        'as `{"prompt_injection":"reject"}`; a job may ask for others.',
    )
    max_wait_s: float = Field(
        0.05, ge=0.0, le=60.0, description="How long a shallow bucket may wait for more rows."
    )
    max_deliveries: int = Field(
        5, ge=1, le=1000, description="Deliveries before a document becomes a dead letter."
    )
    heartbeat_ttl_s: float = Field(
        5.0, ge=0.5, le=600.0, description="A worker silent for this long is taken for dead."
    )
    grace_s: float = Field(
        30.0, ge=0.0, le=3600.0, description="How long a stopping worker may finish what it runs."
    )
    result_cache_ttl_s: int = Field(
        86_400, ge=0, description="How long an answer serves later duplicates; 0: not at all."
    )
    result_cache_max_bytes: int = Field(
        256 * 1024**2,
        ge=0,
        description="What all stored answers may take; the least recently used go first.",
    )
    backlog_max_docs: int = Field(
        1_000_000, ge=1, description="Documents accepted and not yet answered."
    )
    backlog_max_bytes: int = Field(
        4 * 1024**3, ge=1024, description="Bytes of documents accepted and not yet answered."
    )
    producer_silence_s: int = Field(
        86_400, ge=1, description="A job is closed when its producer was silent for this long."
    )
    dead_letter_ttl_s: int = Field(30 * 86_400, ge=1, description="How long dead letters are kept.")
    files_dir: Path | None = Field(
        None,
        description="Folder that `docmill ingest` reads below and `docmill export` writes below; "
        "absent: neither.",
    )
    state_dir: Path = Field(
        Path("~/.cache/docmill"), description="Converted models and the embedded Redis' data."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto`: JSON unless standard error is a terminal."
    )

    # of fields, not of the model: an error of the model would show all that was given
    @field_validator("bucket_bounds", mode="before")
    @classmethod
    def _decode_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list):
            raise ValueError("must be a JSON list such as [4096,32768]")
        return found

    @field_validator("rules", mode="before")
    @classmethod
    def _decode_rules(cls, value: Any) -> Any:
        try:
            found = json.loads(value) if isinstance(value, str) else value
            return check_policies(found)
        except (ValueError, RecursionError) as error:
            raise ValueError('must be a JSON object such as {"mojibake":"repair"}') from error
        except JobRejected as error:
            raise ValueError(error.message) from error

    @field_validator("bucket_bounds")
    @classmethod
    def _bounds_ascend(cls, bounds: tuple[int, ...]) -> tuple[int, ...]:
        if list(bounds) != sorted(set(bounds)):
            raise ValueError("must ascend without repeats")
        return bounds

    @field_validator("shard")
    @classmethod
    def _shard_exists(cls, shard: int, info: ValidationInfo) -> int:
        if shard >= (num_shards := info.data.get("shards", shard + 1)):
            raise ValueError(f"must be below {PREFIX}SHARDS, which is {num_shards}")
        return shard

    def known_redis_url(self) -> str:
        """Return the Redis to use.

        Raises:
            ConfigError: None is set; says what to do.
        """
        if self.redis_url is None:
            raise ConfigError(
                f"{PREFIX}REDIS_URL: not set; set it ({PREFIX}REDIS_URL=redis://HOST:6379/0), or "
                "let `docmill up` start everything, its Redis included"
            )
        return self.redis_url.get_secret_value()

    def digest(self) -> str:
        """Return 12 hex digits that change with any setting that may change an answer."""
        elsewhere = {
            "redis_url",
            "namespace",
            "shards",
            "shard",
            "state_dir",
            "log_level",
            "log_format",
        }
        text = self.model_dump_json(exclude=elsewhere)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def environment(self) -> dict[str, str]:
        """Return the settings that differ from the defaults as variables for a child process."""
        variables: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                variables[PREFIX + name.upper()] = _to_text(value)
        return variables


def _to_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple | dict):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def load(**overrides: Any) -> Settings:
    """Read the settings from the environment; `overrides` win, None among them is ignored.

    Raises:
        ConfigError: Every problem, one a line, each with its variable's name.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    problems = [
        f"{name}: no such setting"
        for name in os.environ  # noqa: TID251 - this module is where it is read
        if name.startswith(PREFIX) and name not in known
    ]
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = PREFIX + "_".join(str(part) for part in item["loc"][:1]).upper()
            shown = "" if name == PREFIX + "REDIS_URL" else f" (got {item['input']!r})"
            message = item["msg"].removeprefix("Value error, ")
            problems.append(f"{name.rstrip('_')}: {message}{shown}")
        settings = None
    if problems or settings is None:
        raise ConfigError("\n".join(sorted(problems)))
    return settings


def child_environment(settings: Settings, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process' environment with the settings put in, for a child process."""
    inherited = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 - this module is where it is read
        if not name.startswith(PREFIX)
    }
    return inherited | settings.environment() | dict(extra or {})
