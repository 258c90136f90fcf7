"""Reasons why a target does not load, and their results in a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lpkit_conformance.results import CheckResult, Finding


@dataclass(frozen=True)
class LoadFailure:
    """A target that does not load.

    Attributes:
        problem, remedy: for the author.
        location: ``file:line`` of the author's that raised, if it is known.
        broken: the target exists and is at fault, which is a failed check; otherwise there is nothing to check.
    """

    problem: str
    remedy: str = ""
    location: str = ""
    broken: bool = True

    def __str__(self) -> str:
        return ". ".join(part for part in (self.problem, self.remedy) if part)

    def result(self, code: str = "LP001", name: str = "is-a-processor") -> CheckResult:
        """The failed check of a broken target."""
        finding = Finding(self.problem, fix=self.remedy, location=self.location)
        return CheckResult(code, name, "", "failed", self.problem, finding)


def load_failure(target: str, error: Any, uses_standin: bool) -> LoadFailure:
    """Explain a ``LoadError``; ``uses_standin``: the target may need parts of vLLM that the stand-in lacks."""
    from lpkit.loading import ImportFailedError, WrongInterfaceError

    from lpkit_conformance.instruments.author_lines import location_of
    from lpkit_conformance.vllm_api.parts import lacking

    cause = error.__cause__
    location = location_of(cause) if cause is not None else ""
    if uses_standin and (beyond := lacking(cause)):
        return LoadFailure(beyond, "", location, broken=False)
    module = target.partition(":")[0]
    absent = (
        isinstance(cause, ModuleNotFoundError)
        and cause.name is not None
        and (module == cause.name or module.startswith(f"{cause.name}."))
    )
    broken = isinstance(error, WrongInterfaceError) or (isinstance(error, ImportFailedError) and not absent)
    return LoadFailure(error.problem, error.remedy, location, broken)
