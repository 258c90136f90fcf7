"""The kinds of targets that ``lpkit new --wrap`` can bridge, and its errors for other targets."""

from __future__ import annotations

from typing import Final, Literal

from lpkit_conformance.discovery.interfaces import BOTH, V1, V2
from lpkit_conformance.errors import NotBridgeableError

Kind = Literal["class", "callable", "factory", "objects"]
"""``"objects"``: a class whose instances process one request each."""

_ARITY: Final[dict[int, Kind]] = {1: "factory", 2: "callable", 3: "callable"}
_FORMS = "(output_ids, logits), (prompt_ids, output_ids, logits), or a factory (sampling_params) of one of these"


def kind_of_class(label: str, interfaces: frozenset[str]) -> Kind:
    """Return the kind of a class with these interfaces. Raises NotBridgeableError if the bridge does not apply."""
    if interfaces == BOTH:
        raise NotBridgeableError(f"{label} runs on both of vLLM's runners already: there is nothing to wrap")
    if interfaces == V2:
        raise NotBridgeableError(
            f"{label} implements only vLLM's V2 interface, and the bridge goes from V1 to V2: derive it from "
            "lpkit.LogitsProcessor, which runs on both runners"
        )
    assert interfaces == V1
    return "class"


def kind_of_callable(label: str, positional: int) -> Kind:
    """Return the kind of a callable with this number of positional arguments. Raises NotBridgeableError if no
    kind fits."""
    if positional not in _ARITY:
        raise NotBridgeableError(f"{label} takes {positional} positional arguments; what can be bridged takes {_FORMS}")
    return _ARITY[positional]


def no_processor(label: str, problem: str) -> str:
    """Return an error message: the problem, and how to bridge a class of callables."""
    what = problem or f"{label} is not a logits processor"
    return (
        f"{what}. A class whose instances are request-level callables is wrapped through a factory: "
        "def make(sampling_params): return TheClass(...)"
    )
