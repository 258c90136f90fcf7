"""Explains why the cases never, or too rarely, triggered the plugin."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from lpkit._nearest import did_you_mean

from lpkit_conformance.activity.acting import activity
from lpkit_conformance.activity.admission import keys_read
from lpkit_conformance.activity.declined import admitted
from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.instruments.author_lines import home_of, is_authors, location_of, syntax_of
from lpkit_conformance.settings.cases import MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases, guessed_cases
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.subject.worlds import World
from lpkit_conformance.suite.agenda import SILENT


def silence(case: Case) -> str:
    """Return the note about a case that never makes the plugin act, while others, or its relatives, do."""
    given = {**case.fields, **(case.fields.get("extra_args") or {})}
    falsy = [f"`{name}` is {value!r}" for name, value in given.items() if name != "extra_args" and not value]
    why = f". {' and '.join(falsy)}: `if value` is False for it, `if value is not None` is not" if falsy else ""
    return f"case {case.text} {SILENT}: if it should not, leave it out{why}"


def alike(subject: Subject) -> str:
    """Return the note about a case whose requests all have its arguments; empty if there are others."""
    if not subject.setup.case.fields.get("extra_args") or len(subject.cases) > 1:
        return ""
    return (
        f"all requests had the arguments of {subject.setup.case.text}: the plugin accepted none of the others that "
        "lpkit tried. A second case shows whether requests get each other's arguments"
    )


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
        if declined := _declined(subject):
            return f"no case made the plugin change a logit: {declined}"
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
    text += "" if lengths else _surroundings(subjects[-1])
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
    if suggestion and (declined := _declined(subjects[-1].having(case=suggestion))):
        text, suggestion = f"{text}. {declined}", None
    example = f": --case '{suggestion.text}', or" if suggestion else " with --case, or"
    return f"{text}. Give a case that switches it on{example} cases in [tool.lpkit]."


def _surroundings(subject: Subject) -> str:
    """Return what the class asks for that is missing: a field of the configuration, an environment variable, a GPU."""
    text, lacking = "", dict[str, str]()
    watching = World("a configuration whose missing fields are noted", partial(_note_missing, lacking))
    if subject.setup.host:
        with contextlib.suppress(PluginError, StandinError), subject.as_imported():
            drive(subject.having(world=watching))
    for field, line in lacking.items():
        of_model = field.startswith("hf_config.")
        how = "set it in `model` of [tool.lpkit]" if of_model else "check a subclass whose constructor is given it"
        text += f". It looked for `{field}` ({line}), which lpkit's configuration lacks: {how}"
    home = home_of(subject.plugin.cls)
    for variable, number in _variables(subject.plugin.cls, home).items():
        if variable not in os.environ:
            text += f". Line {number} of {Path(home).name} reads the environment variable {variable}, which is not set"
            text += f': set it in pyproject.toml, `[tool.lpkit] environment = {{ {variable} = "value" }}`'
    asked = [node.lineno for node in ast.walk(syntax_of(home)) if _asks_for_gpu(node)]
    if asked and subject.setup.device.type == "cpu":
        text += f". Line {asked[0]} compares a device: if the class acts on a GPU only, use --device cuda"
    return text


def _note_missing(lacking: dict[str, str], config: Any) -> None:
    """Let a configuration note the fields that an author's line asks for and that it lacks."""

    def watched(part: Any, name: str) -> Any:
        def missing(_: Any, field: str) -> Any:
            code, line = sys._getframe(1).f_code, sys._getframe(1).f_lineno
            if is_authors(code.co_filename) and not field.startswith("__"):
                lacking.setdefault(f"{name}.{field}", f"{Path(code.co_filename).name}:{line}")
            raise AttributeError(field)

        kind: Any = type(type(part).__name__, (type(part),), {"__getattr__": missing})
        copied = kind.__new__(kind)  # as it is, but for what it says of a field that it lacks
        vars(copied).update(vars(part))
        return copied

    model = config.model_config
    model.hf_config = watched(model.hf_config, "hf_config")
    config.__class__ = type(watched(config, "vllm_config"))


def _variables(cls: Any, file: str) -> dict[str, int]:
    """Return the environment variables that a class's file reads for it, by a constant name, and the first line."""
    tree, variables = syntax_of(file), dict[str, int]()
    bases = [base.__name__ for base in getattr(cls, "__mro__", ())]
    parts = [part for part in tree.body if not isinstance(part, ast.ClassDef) or part.name in bases]
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in chain.from_iterable(map(ast.walk, parts)):
        if isinstance(node, ast.Call) and node.args and re.search(r"\b(environ\.get|getenv)$", ast.unparse(node.func)):
            name = node.args[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            name = node.slice
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("environ"):
            name = node.left
        else:
            continue
        name = named.get(name.id, name) if isinstance(name, ast.Name) else name
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            variables.setdefault(name.value, node.lineno)
    return variables


def _asks_for_gpu(node: ast.AST) -> TypeGuard[ast.Compare]:
    return isinstance(node, ast.Compare) and any(
        isinstance(part, ast.Constant) and part.value in ("cuda", "cpu") for part in (node.left, *node.comparators)
    )


def _declined(subject: Subject) -> str:
    """Return why a request of the case is not admitted: an exception, such as that of a word without a token."""
    error, answers = admitted(subject) if subject.setup.host else (None, [])
    if error is not None:
        by_sdk = not isinstance(error, PluginError)
        said, line = f"{type(error).__name__}: {error}" if by_sdk else str(error), getattr(error, "location", "")
        line = Path(line or location_of(error)).name
        how = "is declined" if by_sdk else "fails"
        return f"{subject.setup.case.text} {how} at admission ({said[:300]}{line and f', {line}'})"
    if answers and not any(answers):
        return f"{subject.setup.case.text} is declined at admission (`admit` returned {answers[0]!r})"
    return ""


def suggested(subject: Subject, keys: Sequence[str]) -> Case | None:
    """A case with these arguments that the plugin's own validation accepts, if one comes to mind."""
    accepts = subject.plugin.accepts
    cases = chain(derived_cases(subject.plugin.cls, accepts), guessed_cases(keys))
    return next((case for case in cases if accepts(case.params())), None)
