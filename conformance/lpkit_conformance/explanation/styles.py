"""The interface that an author writes against, which decides the words of a fix."""

from __future__ import annotations

from typing import Any, Literal

from lpkit_conformance.explanation.findings import own_line
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject

Style = Literal["raw", "portable", "adapter"]
"""One of vLLM's interfaces, ``lpkit.LogitsProcessor``, or a callable per request."""


def style_of(cls: Any, host: str) -> Style:
    """Return what the author wrote: the bookkeeping of this host, or what lpkit or vLLM calls from its own."""
    if own_line(cls, HOSTS[host].told_by):
        return "raw"
    if own_line(cls, "new_req_logits_processor"):
        return "adapter"
    return "portable" if any(own_line(cls, name) for name in ("process", "edit", "admit")) else "raw"


def readers_of(subject: Subject) -> tuple[str, ...]:
    """Return the groups of fixes for the plugin's author: in words of the style, else of the interface."""
    return style_of(subject.plugin.cls, subject.setup.host), subject.setup.interface
