"""The blame for a failure: the line at fault, with cause and fix by the first experiment that is proven."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.culprit import scenes_alone
from lpkit_conformance.explanation.experiments import EXPERIMENTS, RETURNS, Experiment
from lpkit_conformance.explanation.findings import readers_of, returning_line
from lpkit_conformance.explanation.following import with_history
from lpkit_conformance.explanation.hazards import CHANGES
from lpkit_conformance.explanation.instances import in_its_place
from lpkit_conformance.explanation.reproduction import Reproduction, played
from lpkit_conformance.explanation.row_values import Apart
from lpkit_conformance.explanation.scenes import Culprit, Scene
from lpkit_conformance.explanation.writes import is_test, key_at
from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.instruments.trails import set_by
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.results import Finding


class _Proof(NamedTuple):
    """The proven experiment, if there is one, and what it leaves of the other clues.

    Attributes:
        line, state: ``file:line`` and the name of the state that it blames; empty if unknown.
        sign: key of what that line does, in place of the experiment's cause and fix.
        culprit, apart: the case's, without what the experiment explains better.
    """

    experiment: Experiment | None
    line: str
    state: str
    sign: str
    culprit: Culprit | None
    apart: Apart | None


class _Named(NamedTuple):
    """The line at fault, the state, causes, and the key of a fix; each may be empty."""

    line: str
    state: str
    causes: tuple[str, ...] = ()
    fix: str = ""


def blamed(case: Reproduction, passes: Callable[[Reproduction], bool]) -> tuple[Finding, bool]:
    """Return the finding with the line at fault, and with cause and fix where an experiment proves them; then True."""
    if case.apart and case.apart.mixes and case.culprit and not case.culprit.holder and "[" not in case.culprit.name:
        case = replace(case, culprit=None)  # a table of the rows that mix: without the others, any row is right
    if case.culprit and _is_own_list(case, case.culprit.name):
        behind = filter(None, (scene.search() for scene in scenes_alone(*case.at)))
        case = replace(case, culprit=next(behind, None))
    proof = _proof(case, passes)
    experiment, culprit = proof.experiment, proof.culprit
    line, state, causes, key = _named(case, proof)
    finding, readers = case.finding, readers_of(case.subject)
    proven, made = (experiment.cause, experiment.fix) if experiment else ("", "")
    made = proven if made is None else made
    says_as_much = made == "single" and key in ("common", "scratch")  # the fix for one value says as much
    if proven and not says_as_much and not (proof.apart and proof.apart.kind == "padded"):
        causes = (*causes, advice.cause(proof.sign or proven))
    if experiment and experiment.alone:
        summary = f"request {case.request} does not follow its output: it got other logits once it had resumed"
        finding = replace(finding, summary=summary, expected=finding.got, got=finding.expected)
    if made and not (made == "single" and culprit and culprit.common):
        key = proof.sign or made
    text = advice.text_at(line or case.line).strip()
    if culprit and "replace" in case.hazards and text in ("return", "return None", "return False"):
        causes = (*causes, advice.cause("left out"))
    cause, fix = "; ".join(causes) or finding.cause, advice.fix(key, *readers) if key else finding.fix
    vague = len(causes) < 2 and not proven and not (culprit and (culprit.holder or culprit.how == "carried"))
    state = state or proof.state
    finding = replace(finding, location=line or case.line, cause=cause, fix=fix, state=state, vague=vague)
    what = [experiment.field] if experiment and experiment.field else case.unequal
    finding = _neutral(case, finding) if cause == advice.cause("stray") else _worded(finding, case, what)
    finding = replace(finding, location=_inner_line(finding.location, finding.state))
    is_proven = bool(experiment and (proof.line if experiment.rules else proven))
    return with_history(finding, *case.at, proven=is_proven), is_proven


def _is_own_list(case: Reproduction, name: str) -> bool:
    """Return True if the name is that of the request's own output list, which the engine fills."""
    with contextlib.suppress(Exception):  # whatever the plugin or its objects raise: the name is no list then
        host = played(case, case.make_host)
        return eval(name, {"self": host.processor}) is host.pool.requests[case.request].request.output_token_ids
    return False


def _proof(case: Reproduction, passes: Callable[[Reproduction], bool]) -> _Proof:
    """Return the first experiment that is proven, with the line that it blames."""
    experiment = next((experiment for experiment in EXPERIMENTS if _proven(experiment, case, passes)), None)
    culprit, apart = case.culprit, case.apart
    if experiment is None:
        return _Proof(None, "", "", "", culprit, apart)
    cause, sign = experiment.cause, ""
    line, state = experiment.blames(case)
    if experiment.rules and cause and line:
        culprit, apart = None if state else culprit, None
    if cause in advice.SIGNS:
        sign = advice.sign(cause, apart.line if apart else line)
        fills = "" if sign or cause not in ("padding", "histories") else advice.signed("filled", case.line)
        if fills:
            return _Proof(experiment, fills, set_by(fills), "filled", culprit, None)
        if apart and not sign:
            apart = next(iter(apart.padded), apart)
    return _Proof(experiment, line, state, sign, culprit, apart)


def _named(case: Reproduction, proof: _Proof) -> _Named:
    """Return what names the fault best: a look-up, the state, or the first difference from the solo run."""
    culprit, apart = proof.culprit, proof.apart
    names_entry = culprit and ("[" in culprit.name or culprit.how)
    if apart and apart.kind == "asked" and case.uses and not names_entry:
        return _Named(_key_line(case, apart.line), apart.name, (apart.cause,), "cache")
    if culprit:
        return _of_state(case, culprit, proof)
    if apart and (case.uses or apart.kind not in ("asked", "all")):
        key = {"held": "scratch", "padded": "padding", "all": "all"}.get(apart.kind, "")
        return _Named(proof.line or apart.line, apart.state, (apart.cause,), key)
    return _Named(proof.line, "")


def _of_state(case: Reproduction, culprit: Culprit, proof: _Proof) -> _Named:
    """Return line, causes and fix for the state at fault."""
    experiment, causes = proof.experiment, list[str]()
    line = (proof.line if experiment and experiment.rules else "") or _key_line(case, culprit.line) or proof.line
    alone = experiment is not None and experiment.alone
    only = sum(isinstance(op, Arrive) for op in case.ops) == 1
    shown = (
        replace(culprit, value="", right="") if only and culprit.value == culprit.right else culprit
    )  # nobody shares it
    causes.append(advice.cause("copied", "culprit") if alone else shown.cause(case.request))
    changed = case.hazards & (CHANGES | RETURNS | {"idle", "alone"})
    single = culprit.common and (culprit.holder or (experiment and experiment.fix == "single"))
    single = single or (culprit.common and not culprit.table and not changed and not culprit.how)
    if culprit.how == "pinned":
        return _Named(line, culprit.name, tuple(causes), "scratch")
    first = culprit.how == "carried" or (single and experiment and experiment.cause == "first")
    stays = case.style == "raw" and "replace" in case.hazards and not culprit.keyed
    cache = "cache" if culprit.keyed or not culprit.opaque or "[" in culprit.name else "one object"
    key = ("replace" if stays else cache) if first else "common" if single else ""
    if culprit.of_class:
        key = "of-class"
        causes.append(advice.cause(key))
    if _optional(case):
        key = "optional"
    if culprit.unwritten and not changed:
        key = "unwritten"
        causes.append(advice.cause(key))
    if key == "common":
        causes.append(advice.cause(key))
    return _Named(line, culprit.name, tuple(causes), key)


def _key_line(case: Reproduction, line: str) -> str:
    """Return the line that makes the key: of a method of the author's, if the line calls one; else the line itself."""
    call = re.search(r"= (?:self|cls)\.(\w+)\(", advice.text_at(line)) if case.keyed else None
    return (returning_line(case.subject.plugin.cls, call[1]) if call else "") or line


def _inner_line(place: str, state: str) -> str:
    """Return the line of a longer statement at ``file:line`` that gives the state its value, by a keyword; else the
    place itself."""
    file, _, number = place.rpartition(":")
    for node in ast.walk(syntax_of(file)):
        if isinstance(node, ast.Assign) and str(node.lineno) == number:
            keywords = [part for part in ast.walk(node) if isinstance(part, ast.keyword)]
            return next((f"{file}:{part.lineno}" for part in keywords if part.arg == state.rpartition(".")[2]), place)
    return place


def _optional(case: Reproduction) -> bool:
    """True if the state is left to the next request because a condition on the arguments does not hold."""
    culprit = case.culprit
    if not culprit or not culprit.line or "replace" not in case.hazards or case.hazards & {"swap", "move"}:
        return False
    test = advice.text_at(culprit.line)
    return case.uses and is_test(test) and culprit.name.partition("[")[0] not in test


def _worded(finding: Finding, case: Reproduction, what: Sequence[str]) -> Finding:
    """Return the finding with its placeholders in braces filled in; ``what``: the arguments that differ."""
    key = key_at(finding.location, finding.state) if case.keyed else ""
    words = {
        "name": finding.state or (case.apart.name if case.apart else ""),
        "table": finding.state.partition("[")[0],
        "request": case.request,
        "call": case.apart.mixes if case.apart else "",
        "what": "` and `".join(what),
        "key": f", `{key}`," if key else "",
        "line": str(case.changed_inside.number) if case.changed_inside else "",
        "other": case.displaced.request if case.displaced else "",
        "there": str(case.displaced.row) if case.displaced else "",
        "here": str(case.mismatch.row),
    }
    cause, fix = finding.cause, finding.fix
    for word, text in words.items():
        cause, fix = cause.replace(f"{{{word}}}", text), fix.replace(f"{{{word}}}", text)
    return replace(finding, cause=cause, fix=fix)


def _neutral(case: Reproduction, finding: Finding) -> Finding:
    """Return the finding with the number in a table that leaves the row as it was, if there is one."""
    if entry := Scene(*case.at, in_its_place, lambda host, seen, row: seen.before[row]).neutral():
        words = dict(zip(("name", "value", "number"), entry, strict=True))
        cause, fix = (text("neutral").format(**words) for text in (advice.cause, advice.fix))
        return replace(finding, cause=cause, fix=fix, state=entry[0])
    return finding


def _proven(experiment: Experiment, case: Reproduction, passes: Callable[[Reproduction], bool]) -> bool:
    if not experiment.applies(case):
        return False
    if experiment.change is None:
        return True
    runs = experiment.change(case)
    return bool(runs) and all(map(passes, runs)) and not passes(case)
