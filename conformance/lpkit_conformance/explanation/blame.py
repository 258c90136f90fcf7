"""What is at fault in a small failing program: the line, and a cause where small changes of the run prove one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from lpkit_conformance.explanation.experiments import (
    ADDRESS_FIX,
    BY_ADDRESS,
    EARLY_FIX,
    PREFILL,
    PREFILL_FIX,
    TOO_EARLY,
    MakeHost,
    declaring_tokens,
    hiding_outputs,
    keeping_objects,
    reads_too_early,
)
from lpkit_conformance.explanation.fault import Fault
from lpkit_conformance.explanation.findings import READ, method_location, own_line
from lpkit_conformance.explanation.hazards import CHANGES, READ_FIXES, hazards, may_be_read
from lpkit_conformance.explanation.shared_arguments import same_arguments, shared_by_argument
from lpkit_conformance.explanation.styles import DECLARE_TOKENS, PLACEHOLDERS, style_of
from lpkit_conformance.explanation.styles import FIXES as FIXES_BY_STYLE
from lpkit_conformance.explanation.styles import READ_FIXES as READ_FIXES_BY_STYLE
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Program, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V2


class Mends(Protocol):
    """Whether a failing program passes with another subject, on another host or with other operations, and still fails
    as it is."""

    def __call__(self, other: Subject = ..., host: MakeHost = ..., changed: Sequence[Op] = ...) -> bool: ...


def blamed(
    subject: Subject, finding: Finding, small: Program, fault: Fault, make_host: MakeHost, mends: Mends
) -> Finding:
    """The finding with the line at fault, and with cause and fix where a second look leaves no doubt about them."""
    found = hazards(small.ops, subject.setup.interface, small.max_num_seqs)
    style = style_of(subject.plugin.cls, subject.setup.host)
    declaring = declaring_tokens(subject) if style == "adapter" else None
    if declaring is not None and mends(declaring):
        return replace(finding, cause=PLACEHOLDERS, fix=DECLARE_TOKENS, location=fault.line)
    finishes = any(isinstance(op, Finish) for op in small.ops)
    if finishes and mends(host=keeping_objects(make_host)):
        return replace(finding, cause=BY_ADDRESS, fix=ADDRESS_FIX, location=fault.line)
    request = finding.where["request"]
    if style == "raw" and subject.setup.interface == V2:
        told = method_location(subject.plugin.cls, HOSTS[subject.setup.host].told_by)
        arrived = next(op for op in small.ops if isinstance(op, Arrive) and op.request == request)
        if reads_too_early(subject, arrived):
            return replace(finding, cause=TOO_EARLY, fix=EARLY_FIX, location=told)
        if "resume" in found and mends(host=hiding_outputs(make_host)):
            return replace(finding, cause=PREFILL, fix=PREFILL_FIX, location=told)
    shared = same_arguments(subject, small.ops, request, lambda ops: mends(changed=ops))
    if shared:
        return shared_by_argument(
            finding, shared, method_location(subject.plugin.cls, HOSTS[subject.setup.host].told_by)
        )
    if fault.read and may_be_read(found):
        read = READ_FIXES_BY_STYLE.get(style, READ_FIXES[subject.setup.interface])
        return replace(finding, cause=READ, fix=read, location=fault.line)
    if not own_line(subject.plugin.cls, HOSTS[subject.setup.host].told_by):  # lpkit keeps the books
        admits = own_line(subject.plugin.cls, "admit") or own_line(subject.plugin.cls, "new_req_logits_processor")
        if admits and not fault.read and found & CHANGES:
            return replace(finding, fix=FIXES_BY_STYLE[style]["replace"], location=admits)
        return replace(finding, location=fault.line)
    # Where nobody left or moved, the fault is in what edits the logits; so it is where all that is read there is new.
    if all(isinstance(op, Arrive | Step) for op in small.ops) or (fault.read and subject.setup.interface == V2):
        return replace(finding, location=fault.line)
    return finding
