"""LP9, the rules of ``lpkit check --engine vllm``, and the evidence that they judge.

:mod:`lpkit_conformance.engine` gathers it. The rules lie here, below the list of all checks.
"""
