"""Evidence of the checks LP9: :mod:`lpkit_conformance.engine` gathers it on a real vLLM, and they judge it."""
