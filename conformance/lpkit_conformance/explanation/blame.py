"""The blame for a failure: the line at fault, with cause and fix by the first experiment that is proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.experiments import EXPERIMENTS, RETURNS, Experiment
from lpkit_conformance.explanation.findings import declaration, made_anew, readers_of
from lpkit_conformance.explanation.hazards import CHANGES
from lpkit_conformance.explanation.history import with_history
from lpkit_conformance.explanation.instances import in_its_place
from lpkit_conformance.explanation.reproduction import Reproduction
from lpkit_conformance.explanation.scenes import Scene
from lpkit_conformance.explanation.writes import is_test, key_at
from lpkit_conformance.instruments.trails import set_by
from lpkit_conformance.results import Finding


def blamed(case: Reproduction, passes: Callable[[Reproduction], bool]) -> Finding:
    """Return the finding with the line at fault, and with cause and fix where an experiment proves them."""
    if case.apart and case.apart.mixes and case.culprit and not case.culprit.holder and "[" not in case.culprit.name:
        case = replace(case, culprit=None)  # a table of the rows that mix: without the others, any row is right
    proven = next((experiment for experiment in EXPERIMENTS if _proven(experiment, case, passes)), None)
    finding, culprit, readers, cls = case.finding, case.culprit, readers_of(case.subject), case.subject.plugin.cls
    line, state = proven.blames(case) if proven else ("", "")
    if proven and proven.cause == "used":
        line = declaration(cls, state.removeprefix("self.")) or line  # where the default stands
    apart, causes = case.apart, list[str]()
    if proven and proven.rules and proven.cause and line:
        culprit, apart = None if state else culprit, None
    key = sign = ""
    if proven and proven.cause in advice.SIGNS:
        sign = advice.sign(proven.cause, apart.line if apart else line)
        padded = proven.cause in ("padding", "histories") and not sign
        if padded and (fills := advice.signed("filled", case.line)):
            line, state, sign, apart = fills, set_by(fills), "filled", None
        if apart and not sign and proven.cause != "size":
            apart = next(iter(apart.padded), apart)
    named = culprit and ("[" in culprit.name or culprit.how)
    if apart is not None and apart.kind == "asked" and case.uses and not named:
        line, causes = apart.line, [apart.cause]
        finding = replace(finding, state=apart.name, fix=advice.fix("cache"))
    elif culprit is not None:
        line = (line if proven and proven.rules else "") or culprit.line or line
        copied = bool(proven and proven.alone)
        causes.append(advice.cause("copied", "culprit") if copied else culprit.cause(case.request))
        finding = replace(finding, state=culprit.name)
        changed = case.hazards & (CHANGES | RETURNS | {"idle", "alone"})
        single = culprit.common and (culprit.holder or (proven and proven.fix == "single"))
        single = single or (culprit.common and not culprit.table and not changed and not culprit.how)
        first = culprit.how == "carried" or (single and proven and proven.cause == "first")
        stays = case.style == "raw" and "replace" in case.hazards and not culprit.keyed
        kept = ("replace" if stays else "cache") if first else "common" if single else ""
        key = "optional" if _optional(case) else kept
        if culprit.unwritten and not changed:
            key = "unwritten"
            causes.append(advice.cause(key))
        derived = culprit.table or is_test(advice.text_at(line))
        if derived and case.hazards & CHANGES and case.style == "raw" and made_anew(cls, culprit.name):
            key = "derived"
        if culprit.tensor and "swap" in case.hazards and (swaps := advice.signed("swap", line)):
            key, line = "views", swaps
        if key in ("common", "views"):
            causes.append(advice.cause(key))
        if key:
            finding = replace(finding, fix=advice.fix(key, *readers))
    elif apart is not None and (case.uses or apart.kind != "asked"):
        line, causes = line or apart.line, [apart.cause]
        finding = replace(finding, state=apart.state)
        if fix := {"held": "scratch", "padded": "padding"}.get(apart.kind):
            finding = replace(finding, fix=advice.fix(fix))
    made = proven and (proven.cause if proven.fix is None else proven.fix)
    told = key == "common" and made in ("single", "company")  # the fix for one value says as much
    if proven is not None and proven.cause and not told and not (apart is not None and apart.kind == "padded"):
        causes.append(advice.cause(sign or proven.cause))
    if proven is not None and proven.alone:
        summary = f"request {case.request} does not follow its output: it got other logits once it had resumed"
        finding = replace(finding, summary=summary, expected=finding.got, got=finding.expected)
    if made and not (culprit and culprit.common and made in ("single", "company")):
        finding = replace(finding, fix=advice.fix(sign or made, *readers))
    returns = advice.text_at(line or case.line).strip().startswith("return")
    if culprit is not None and "replace" in case.hazards and returns:
        causes.append(advice.cause("left out"))
    cause = "; ".join(causes) or finding.cause
    vague = len(causes) < 2 and not (proven and proven.cause) and not (culprit and culprit.holder)
    finding = replace(finding, location=line or case.line, cause=cause, state=finding.state or state, vague=vague)
    finding = _neutral(case, finding) if cause == advice.cause("stray") else _worded(finding, case)
    return with_history(finding, *case.at, proven=bool(proven and (proven.cause or proven.rules)))


def _optional(case: Reproduction) -> bool:
    """True if the state is left to the next request because a condition on the arguments does not hold."""
    culprit = case.culprit
    if not culprit or not culprit.line or "replace" not in case.hazards or case.hazards & {"swap", "move"}:
        return False
    test = advice.text_at(culprit.line)
    return case.uses and is_test(test) and culprit.name.partition("[")[0] not in test


def _worded(finding: Finding, case: Reproduction) -> Finding:
    """Return the finding with names in place of those in braces."""
    key = key_at(finding.location, finding.state) if case.keyed else ""
    words = {
        "name": finding.state or (case.apart.name if case.apart else ""),
        "request": case.request,
        "call": case.apart.mixes if case.apart else "",
        "what": "` and `".join(case.unequal),
        "object": case.shared,
        "key": f", `{key}`," if key else "",
        "line": str(case.changed_inside.number) if case.changed_inside else "",
    }
    cause, fix = finding.cause, finding.fix
    for word, text in words.items():
        cause, fix = cause.replace(f"{{{word}}}", text), fix.replace(f"{{{word}}}", text)
    return replace(finding, cause=cause, fix=fix)


def _neutral(case: Reproduction, finding: Finding) -> Finding:
    """Return the finding with the number in a table that leaves the row as it was, if there is one."""
    if found := Scene(*case.at, in_its_place, lambda host, seen, row: seen.before[row]).neutral():
        words = dict(zip(("name", "value", "number"), found, strict=True))
        cause, fix = (text("neutral").format(**words) for text in (advice.cause, advice.fix))
        return replace(finding, cause=cause, fix=fix, state=found[0])
    return finding


def _proven(experiment: Experiment, case: Reproduction, passes: Callable[[Reproduction], bool]) -> bool:
    if not experiment.applies(case):
        return False
    if experiment.change is None:
        return True
    runs = experiment.change(case)
    return bool(runs) and all(map(passes, runs)) and not passes(case)
