"""The path that generated projects import; see ``lpkit_conformance.settings.project``."""

from lpkit_conformance.errors import ProjectError
from lpkit_conformance.settings.project import Project, find

__all__ = ["Project", "ProjectError", "find"]
