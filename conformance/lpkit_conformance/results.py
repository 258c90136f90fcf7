"""Results of a run of the suite: plain data, rendered elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

SCHEMA = "lpkit.check/1"

DOCUMENTATION = "https://vllm-lpkit.readthedocs.io/en/latest/"
"""The published documentation; ``[project.urls]`` names the same address."""

Status = Literal["passed", "failed", "expected", "unexpected_pass", "skipped", "blocked", "advice", "error"]
Verdict = Literal["pass", "fail", "error"]

BAD: frozenset[Status] = frozenset({"failed", "unexpected_pass"})
"""Statuses that make a verdict ``fail``."""


@dataclass(frozen=True)
class StageView:
    """The distribution after a stage of ``lpkit show``, or of a row in a finding.

    Attributes:
        name: of the processor or the built-in stage; ``model`` for the raw logits.
        processor: index of the processor; None for a built-in stage.
        moved: total variation between the distributions before and after the stage, 0 to 1.
        entropy: in bits.
        banned: number of tokens that the stage made impossible.
        examples: the most likely of these tokens.
        probabilities: of the step's tokens.
        ranks: of the step's tokens, 1 for the most likely; 0 for an impossible token.
    """

    name: str
    processor: int | None
    moved: float
    entropy: float
    banned: int
    examples: tuple[str, ...]
    probabilities: tuple[float, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class StepView:
    """One token of the reply in ``lpkit show``, or of the request whose row differs.

    Attributes:
        token: the chosen token.
        plain: the token that the same random numbers choose without any processor, after the same tokens.
        without: for each processor, the token that they choose without it.
        tokens: the tokens of the stages' ``probabilities``; the chosen token comes first.
        stages: the model, then the stages that changed something and all processors, in the engine's order.
        forced: True if the token was impossible without the processors.
        prevented: True if the processors made the token impossible that would have been chosen without them.
        batch: of a finding: the step, the request's row, the other requests, and what happened right before. The stages
            are then the model, the row alone, and the row in the batch, whose ``moved`` is from the row alone.
    """

    token: str
    plain: str
    without: tuple[str, ...]
    tokens: tuple[str, ...]
    stages: tuple[StageView, ...]
    forced: bool = False
    prevented: bool = False
    batch: str = ""

    @property
    def moved(self) -> float:
        """The largest ``moved`` of a processor; 0 without one."""
        return max((stage.moved for stage in self.stages if stage.processor is not None), default=0.0)

    def of(self, processor: int) -> StageView | None:
        """Return the stage of a processor; None if the engine did not call it."""
        return next((stage for stage in self.stages if stage.processor == processor), None)


@dataclass(frozen=True)
class Finding:
    """Evidence of a defect, in the author's terms.

    Attributes:
        summary: the defect in one sentence.
        where: request, row, step and similar facts, as label -> text.
        expected, got: the rule's expectation and the actual result.
        operations: operations on the batch until then, one line each.
        cause, fix: the likely mistake and its correction.
        location: ``file:line`` of the method at fault, if known.
        picture: the batch over these operations, as a small table.
        timeline: the same as data, see :func:`lpkit_conformance.explanation.timeline.timeline`.
        logits: of the tokens that differ most: the model's, alone and in the batch, as texts.
        steps: the tokens of the request whose row differs, up to that row.
        scenario: input for `lpkit replay`, without target, check and host.
        saved: the file that holds it for `lpkit replay`, once it is saved.
        exception: the type of the plugin's exception, if the exception is the defect.
        state: the attribute or variable at fault, as the author writes it, if an experiment proved it.
        written: the lines that wrote it in these operations, the last ones, in their order.
        vague: True if the cause says what is wrong, and not why: findings that do come before it.
    """

    summary: str
    where: dict[str, str] = field(default_factory=dict)
    expected: str = ""
    got: str = ""
    operations: tuple[str, ...] = ()
    cause: str = ""
    fix: str = ""
    location: str = ""
    picture: tuple[str, ...] = ()
    timeline: dict[str, Any] | None = None
    logits: dict[str, Any] | None = None
    steps: tuple[StepView, ...] = ()
    scenario: dict[str, Any] | None = None
    saved: str = ""
    exception: str = ""
    state: str = ""
    written: tuple[str, ...] = ()
    vague: bool = False

    @property
    def root(self) -> tuple[str, str] | None:
        """The exception or the state, and its line. Equal values have one cause, independent of the check."""
        what = self.exception or self.state.partition("[")[0]
        return (what, self.location) if what and self.location else None

    @property
    def of_stranger(self) -> bool:
        """True if the row at fault is of a request of a program that does not use the plugin."""
        ops = ((self.scenario or {}).get("program") or {}).get("operations", ())
        arrivals = [op for op in ops if op.get("op") == "arrive" and op.get("request") == self.where.get("request")]
        return bool(arrivals) and arrivals[0].get("variant") is None

    @property
    def rank(self) -> tuple[bool, bool]:
        """Rank among findings: everyday requests before odd arguments, findings with a reason before vague ones."""
        return "argument" in self.where, self.vague

    @property
    def replayable(self) -> str:
        """The saved file, unless its operations do not fail each time they are run."""
        return self.saved if (self.scenario or {}).get("repeats", True) else ""


class Failed(Exception):
    """The rule is broken; carries the evidence.

    Args:
        finding: the evidence, or its summary; the other arguments are then the rest of a :class:`Finding`.
        advice: True for evidence that is worth knowing and fails no plugin; None: the check's tier decides.
    """

    def __init__(
        self,
        finding: Finding | str,
        where: dict[str, str] | None = None,
        expected: str = "",
        got: str = "",
        *,
        cause: str = "",
        fix: str = "",
        location: str = "",
        state: str = "",
        advice: bool | None = None,
    ) -> None:
        if isinstance(finding, str):
            finding = Finding(finding, where or {}, expected, got, (), cause, fix, location, state=state)
        super().__init__(finding.summary)
        self.finding, self.advice = finding, advice


class Skipped(Exception):
    """The check has no verdict on this plugin; the reason is shown."""


NEEDS = "needs "
"""Start of a blocked check's message; the labels or codes of the blocking checks follow."""

NOTHING_PROVEN = "passes, which proves nothing: "
"""Start of a replayed check's message if it passes and has no verdict; the reason follows."""

IN_PYTHON = "on a GPU its Python runs in each step, because "
"""Start of LP221's note about a class whose step lpkit cannot record; the reason follows."""


class Blocked(BaseException):
    """The check needs a method of the plugin that did not return when ``label``, another check, called it.

    Handlers of a plugin's exceptions let it through, as they let ``KeyboardInterrupt`` through.
    """

    def __init__(self, label: str) -> None:
        super().__init__(NEEDS + label)


class NeverActive(Skipped):
    """The plugin changed no logit in the whole check."""

    def __init__(self) -> None:
        super().__init__("never active: the plugin changed no logit of any request")


def label_of(code: str, host: str) -> str:
    """The label ``LP203[v1]``; a check without a host has no brackets."""
    return f"{code}[{host}]" if host else code


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check on one host.

    Attributes:
        never_active: skipped because the plugin changed no logit; the report explains it.
    """

    code: str
    name: str
    host: str
    status: Status
    message: str = ""
    finding: Finding | None = None
    seconds: float = 0.0
    never_active: bool = False

    @property
    def label(self) -> str:
        return label_of(self.code, self.host)

    @property
    def roots(self) -> set[str]:
        """The codes of the failed checks that its outcome is due to: of what blocks it, else its own."""
        if self.status != "blocked":
            return {self.code}
        return {label.partition("[")[0] for label in self.message.removeprefix(NEEDS).split(", ")}

    @property
    def said(self) -> tuple[str, str, str]:
        """The content of the result, independent of the host: equal contents are one finding."""
        return self.code, self.status, self.finding.location if self.finding else self.message

    def to_json(self) -> dict[str, Any]:
        """Its part of ``lpkit.check/1``."""
        data = {key: value for key, value in asdict(self).items() if key != "never_active"}
        if self.finding is not None:
            data["finding"] = {**data["finding"], "documentation": check_page(self.code)}
            del data["finding"]["vague"]
        return data


class GroupedResult(NamedTuple):
    """One finding: a check's result on each of these hosts, with the evidence of the first."""

    check: CheckResult
    hosts: tuple[str, ...]

    @property
    def label(self) -> str:
        """``LP203[v1, v2]``."""
        return label_of(self.check.code, ", ".join(self.hosts))

    def to_json(self) -> dict[str, Any]:
        """Its part of ``lpkit.check/1``; the evidence stands with the first of the checks it names."""
        check = self.check
        return {
            "code": check.code,
            "status": check.status,
            "hosts": list(self.hosts),
            "checks": [label_of(check.code, host) for host in self.hosts or ("",)],
            "message": check.message,
            "location": check.finding.location if check.finding else "",
        }


@dataclass(frozen=True)
class TargetResult:
    """All results about one plugin.

    Attributes:
        settings: the settings that reproduce this result: seed, cases, selected and ignored checks, versions.
    """

    target: str
    hosts: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    interface: str = ""
    judged_with: str = ""
    error: str = ""
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """``error`` when the suite could not run, or when nothing that needs an active plugin ran."""
        if any(check.status in BAD for check in self.checks):
            return "fail"
        if self.error or not any(check.status in ("passed", "expected", "advice") for check in self.checks):
            return "error"
        if any(check.status == "error" for check in self.checks):
            return "error"
        return "pass"

    @property
    def said(self) -> str:
        """The verdict for readers; a quick run's is marked."""
        return self.verdict.upper() + (" (quick)" if self.settings.get("quick") else "")

    def count(self, *statuses: Status) -> int:
        return sum(check.status in statuses for check in self.checks)

    def together(self, *statuses: Status) -> list[GroupedResult]:
        """Return the results of these statuses, by the rank of their findings; equal ones of several hosts are one."""
        groups: dict[tuple[str, str, str], GroupedResult] = {}
        for check in self.checks:
            if check.status in statuses:
                first = groups.setdefault(check.said, GroupedResult(check, ()))
                groups[check.said] = GroupedResult(first.check, (*first.hosts, check.host) if check.host else ())
        return sorted(
            groups.values(), key=lambda group: group.check.finding.rank if group.check.finding else (False,) * 2
        )


@dataclass(frozen=True)
class Report:
    """A whole run."""

    targets: tuple[TargetResult, ...]

    @property
    def verdict(self) -> Verdict:
        verdicts = [target.verdict for target in self.targets]
        if not verdicts or "error" in verdicts:
            return "fail" if "fail" in verdicts else "error"
        return "fail" if "fail" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        return {"pass": 0, "fail": 1, "error": 2}[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """``lpkit.check/1``."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "targets": [
                {
                    "target": target.target,
                    "verdict": target.verdict,
                    "hosts": list(target.hosts),
                    "interface": target.interface,
                    "against": target.judged_with,
                    "error": target.error,
                    "notes": list(target.notes),
                    "settings": target.settings,
                    "checks": [check.to_json() for check in target.checks],
                    "findings": [entry.to_json() for entry in target.together("failed", "unexpected_pass", "advice")],
                }
                for target in self.targets
            ],
        }


def check_page(code: str) -> str:
    """The address of a check's page."""
    return f"{DOCUMENTATION}checks/{code}/"
