"""The path that generated projects import; see ``lpkit_conformance.vllm_api.stub``."""

from lpkit_conformance.vllm_api.stub import install, is_installed

__all__ = ["install", "is_installed"]
