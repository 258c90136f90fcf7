"""The path that generated projects import; see ``lpkit_conformance.settings.cases``."""

from lpkit_conformance.errors import CaseError
from lpkit_conformance.settings.cases import Case, make_params

__all__ = ["Case", "CaseError", "make_params"]
