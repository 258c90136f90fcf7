"""Reports: one run, several ways to show it. Computing is elsewhere; these only render."""

from lpkit_conformance.report.github import to_github
from lpkit_conformance.report.junit import to_junit
from lpkit_conformance.report.text import to_text

__all__ = ["to_github", "to_junit", "to_text"]
