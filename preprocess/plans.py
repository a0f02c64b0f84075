"""What is the same for all documents of a request: prompt, room, policies, fingerprints.

Decides when that can be kept: for a day, because a template may write the date. May import
docmill.wire, docmill.errors and the other modules of this package.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from docmill.errors import Reason
from docmill.rules import Policy
from docmill.wire import Failure, Spec
from preprocess import divide, rules, template, truncate
from preprocess.base import TemplateRefusal, Tokenizer, pack
from preprocess.fingerprint import Fingerprints

_MAX_PLANS = 1024


@dataclass(frozen=True, slots=True)
class Served:
    """The model that documents are prepared for, and the service's limits and policies."""

    model_name: str
    model_version: str
    context_len: int
    max_document_bytes: int
    policies: Mapping[str, Policy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What holds for all documents that are asked `spec` for one tenant.

    `scope` names spec and tenant, and the day. `not_combining` says why no answers to the parts of
    a document can be combined, if so.
    """

    spec: Spec
    scope: str
    leading: bytes
    trailing: bytes
    prefix_len: int
    room: truncate.Room
    instruction: str
    policies: Mapping[str, Policy]
    fingerprints: Fingerprints
    not_combining: Failure | None = None


class Plans:
    """The plans for one model that were used last.

    Args:
        tokenizer: The model's.
        served: Which model, and the limits.
    """

    def __init__(self, tokenizer: Tokenizer, served: Served) -> None:
        self._tokenizer = tokenizer
        self._served = served
        self._plans: OrderedDict[tuple[str, str, date], Plan | Failure] = OrderedDict()

    def get(self, spec: Spec, digest: str, tenant: str, moment: datetime) -> Plan | Failure:
        """Return the plan, or why nothing can be asked this way.

        Args:
            spec: What is asked.
            digest: The spec's.
            tenant: Who asks.
            moment: Now.

        Cost: one rendering of the template for a plan that is not kept.
        """
        key = (digest, tenant, moment.date())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make(spec, repr(key), tenant, moment)
            if len(self._plans) > _MAX_PLANS:
                self._plans.popitem(last=False)
        return plan

    def _make(self, spec: Spec, scope: str, tenant: str, moment: datetime) -> Plan | Failure:
        served = self._served
        if spec.model not in (None, served.model_name):
            message = (
                f"unknown model {spec.model!r}; served here: {served.model_name!r} (name it when "
                "submitting, and it is asked whatever the documents name)"
            )
            return Failure(code=Reason.UNKNOWN_MODEL, message=message)
        if unknown := rules.unknown_rules(spec.rules):
            return unknown
        try:
            prompt = template.build(spec, self._tokenizer, moment)
        except TemplateRefusal as error:
            return Failure(code=Reason.BAD_REQUEST, message=str(error))
        room = truncate.Room(
            served.context_len, len(prompt), spec.max_tokens, spec.max_document_tokens
        )
        leading, trailing = pack(prompt.leading), pack(prompt.trailing)
        return room.shortage() or Plan(
            spec=spec,
            scope=scope,
            leading=leading,
            trailing=trailing,
            prefix_len=len(prompt.leading),
            room=room,
            instruction=truncate.instruction_of(spec),
            policies={**served.policies, **spec.rules},
            fingerprints=Fingerprints(spec, served.model_version, tenant, leading, trailing),
            not_combining=self._not_combining(spec, scope, tenant, moment),
        )

    def _not_combining(
        self, spec: Spec, scope: str, tenant: str, moment: datetime
    ) -> Failure | None:
        """Find out before a document is divided: its parts would be answered in vain."""
        if spec.truncate != "split":
            return None
        plan = self._make(divide.combine_spec(spec), scope, tenant, moment)
        if isinstance(plan, Plan):
            return None
        message = f"the answers to the document's parts cannot be combined: {plan.message}"
        return plan.model_copy(update={"message": message})
