"""What a class is written against decides the words of a fix: who writes request-level callables never sees rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from lpkit_conformance.explanation.findings import own_line
from lpkit_conformance.explanation.hazards import CHANGES, Hazard
from lpkit_conformance.explanation.hazards import FIXES as RAW_FIXES
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V2

Style = Literal["raw", "portable", "adapter"]
"""One of vLLM's interfaces, ``lpkit.LogitsProcessor``, or a callable per request."""


def style_of(cls: Any, host: str) -> Style:
    """What the author wrote: the bookkeeping of this host, or what lpkit or vLLM calls from its own."""
    if own_line(cls, HOSTS[host].told_by):
        return "raw"
    if own_line(cls, "new_req_logits_processor"):
        return "adapter"
    return "portable" if any(own_line(cls, name) for name in ("process", "edit", "admit")) else "raw"


_OWN_CALLABLE = (
    "give each callable values of its own: make what it reads and changes in `new_req_logits_processor`, anew for each "
    "request, also for equal arguments"
)
_NO_CALLS = "make the result a function of the request's arguments and of the ids of this call; do not count calls"
_COLUMNS = (
    "keep a request's values in `lpkit.column`, and look them up by its own rows: `self.name[rows]`; what you keep "
    "elsewhere, write for every request, in each `admit`"
)
_NO_STEPS = "make a row a function of its request's parameters and of what `rows` says of it; do not count calls"

FIXES: Final[Mapping[Style, Mapping[Hazard, str]]] = {
    "raw": {},
    "adapter": {
        **dict.fromkeys(("company", "full", "many", *CHANGES), _OWN_CALLABLE),
        **dict.fromkeys(("alone", "idle", "empty"), _NO_CALLS),
        "drafts": "derive everything from the ids of this call: what an earlier call has counted may have been a draft "
        "that was rejected, even if the output is longer now",
        "twins": "make a new callable for each request, also where two share one `SamplingParams` object; key nothing "
        "by `id(params)` or the prompt",
        "resume": "derive everything from the ids of this call: a request that resumes gets a new callable, and its "
        "first call has output tokens",
        "prefill": "do not count calls: a partial prefill is a call without a new token",
    },
    "portable": {
        **dict.fromkeys(("full", "many", *CHANGES), _COLUMNS),
        **dict.fromkeys(("alone", "idle", "empty"), _NO_STEPS),
        "company": "compute per row, and look a row's values up by its own request: `self.name[rows]`. Let nothing "
        "depend on the number of a slot",
        "drafts": "compute each row from its own history: `rows.total_len` and `rows.tokens` include the drafts above "
        "it. Keep nothing of a row whose draft may be rejected",
        "twins": "keep nothing by `id(params)` or the prompt; a request's values belong in `lpkit.column`",
        "resume": "derive state from `rows` in `process`: a request that resumes is admitted again, with output tokens",
        "prefill": "do not count calls of `process`: a partial prefill is a row without a new token",
    },
}
"""Where they differ from what the author of bookkeeping is told."""

READ_FIXES: Final[Mapping[Style, str]] = {
    "adapter": _OWN_CALLABLE,
    "portable": "compute each row from its request's columns, `self.name[rows]`, and what `rows` says of its history; "
    "change nothing in place that several requests share",
}


def drafts_fix(subject: Subject) -> str:
    """What to change where only drafts set a request's treatment apart."""
    return FIXES[style_of(subject.plugin.cls, subject.setup.host)].get("drafts", RAW_FIXES["drafts"][V2])


PLACEHOLDERS: Final = 'the class declares `history = "length"`, and its callable reads what the token ids are'

DECLARE_TOKENS: Final = (
    'declare `history = "tokens"`: the failure is gone with it. With "length" only the number of ids counts on V2: '
    "they may be -1"
)
