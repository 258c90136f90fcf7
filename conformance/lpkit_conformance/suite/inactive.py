"""Explains why the cases never, or too rarely, triggered the plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain

from lpkit._nearest import did_you_mean

from lpkit_conformance.activity.acting import activity
from lpkit_conformance.activity.admission import keys_read
from lpkit_conformance.checks.declined import watched
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases, guessed_cases
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.agenda import SILENT


def silence(case: Case) -> str:
    """Return the note about a case that never makes the plugin act, while others, or its relatives, do."""
    given = {**case.fields, **(case.fields.get("extra_args") or {})}
    falsy = [f"`{name}` is {value!r}" for name, value in given.items() if name != "extra_args" and not value]
    why = f". {' and '.join(falsy)}: `if value` is False for it, `if value is not None` is not" if falsy else ""
    return f"case {case.text} {SILENT}: if it should not, leave it out{why}"


def why_inactive(subjects: Sequence[Subject]) -> str:
    """Explain why the plugin changed no logit of these requests, or few, and what to try.

    ``subjects``: the plugin on each host and with each case.
    """
    for subject in subjects:
        error = subject.plugin.refusal(subject.setup.case.params())
        if error is not None:
            said = f"{type(error).__name__}: {error}"[:300]
            return f"no case made the plugin change a logit: validate_params refuses {subject.setup.case.text} ({said})"
    for subject in subjects:
        error = _declined(subject) if subject.setup.host else None
        if error is not None:
            said = f"{type(error).__name__}: {error}"[:300]
            return (
                f"no case made the plugin change a logit: {subject.setup.case.text} is declined at admission ({said})"
            )
    lengths = [length for subject in subjects if subject.setup.host for length in activity(subject).lengths]
    text = "no case made the plugin change a logit"
    if lengths:
        text = "the plugin changed logits in too few checks to judge its bookkeeping"
        text += f": first after {min(lengths)} output tokens, {len(lengths)} times in the longest run"
    given = sorted({key for subject in subjects for key in subject.setup.case.fields.get("extra_args") or {}})
    looked = sorted(set().union(*(keys_read(subject) for subject in subjects)))
    if looked:
        text += f"; it looked at extra_args {', '.join(map(repr, looked))}"
    if given:
        text += f", the cases give {', '.join(map(repr, given))}"
    for key in given:
        near = did_you_mean(key, looked) if key not in looked else ""
        text += f" ({key!r}: {near})" if near else ""
    missing = [key for key in looked if key not in given]
    if looked and not missing:
        late = min(lengths, default=0) > MOST_GENERATED
        length = '{"generated": N} for a length, or {"max_tokens": N} for what happens shortly before the end'
        wait = "with a smaller threshold" if late else length
        return (
            f'{text}. Give other values, or what it waits for: {{"output_token_ids": [...]}} is what its requests '
            f'generate, {{"prompt_token_ids": [...]}} what their prompts end with, {wait}.'
        )
    suggestion = suggested(subjects[0], missing)
    example = f": --case '{suggestion.text}', or" if suggestion else " with --case, or"
    return f"{text}. Give a case that switches it on{example} cases in [tool.lpkit]."


def _declined(subject: Subject) -> BaseException | None:
    """Return the SDK's reason to decline a request of the case, such as a word without a token."""
    with contextlib.suppress(PluginError), watched(anyones=True) as errors:
        drive(subject).begin(entering=[make_active(subject, Arrive("declined", 0)).request])
        return next(iter(errors), None)
    return None


def suggested(subject: Subject, keys: Sequence[str]) -> Case | None:
    """A case with these arguments that the plugin's own validation accepts, if one comes to mind."""
    accepts = subject.plugin.accepts
    cases = chain(derived_cases(subject.plugin.cls, accepts), guessed_cases(keys))
    return next((case for case in cases if accepts(case.params())), None)
