"""The path that generated projects import; see :mod:`lpkit_conformance.settings.cases`."""

from lpkit_conformance.settings.cases import Case, CaseError, make_params

__all__ = ["Case", "CaseError", "make_params"]
