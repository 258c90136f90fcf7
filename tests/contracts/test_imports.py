"""Names that plugins and generated projects import, and the arguments that they may give."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
from typing import Any

from golden import FOLDER, WRITING, hold

UNLISTED = {
    "lpkit_conformance.errors": ("CaseError", "ProjectError"),
    "lpkit_cli.app": ("main",),
}
"""Names that others import from modules whose ``__all__`` is absent, or longer."""

LISTED = (
    "lpkit",
    "lpkit.dynamo",
    "lpkit.export",
    "lpkit.front_end",
    "lpkit.kernels",
    "lpkit.loading",
    "lpkit.rng",
    "lpkit.runtime",
    "lpkit.sampling_params",
    "lpkit.sequences",
    "lpkit.train",
    "lpkit.v1",
    "lpkit.v2",
    "lpkit_conformance.testing",
    "lpkit_conformance.traces",
)

MEMBERS = {
    "lpkit:LogitsProcessor": ("Params", "admit", "edit", "history", "process", "stage", "validate_params"),
    "lpkit:AdapterLogitsProcessor": ("history", "new_req_logits_processor", "params", "stage", "validate_params"),
    "lpkit:Bridged": ("concerns", "history", "keys", "validate_params"),
    "lpkit:Params": ("parse",),
    "lpkit:Request": ("params", "prompt_token_ids", "sampling_params", "slot"),
    "lpkit:Rows": (  # and index, n, slots, whole: fixtures/plugins.py
        "is_output",
        "output_len",
        "prompt_len",
        "temperature",
        "tokens",
        "total_len",
    ),
    "lpkit:SparseLogits": ("__getitem__", "__setitem__"),
    "lpkit:Column": ("__getitem__", "__setitem__"),
    "lpkit:RaggedColumn": ("__getitem__", "__setitem__"),
    "lpkit:TokenSetColumn": ("__getitem__", "__setitem__", "contains", "keep_only_"),
    "lpkit.runtime:Scheduler": ("step", "submit", "unfinished"),
    "lpkit_conformance.settings.cases:Case": ("params", "prompt_token_ids", "text"),
    "lpkit_conformance.testing:BoundCheck": ("run",),
}
"""Members of the main classes that people use."""


MADE_BY_OTHERS = frozenset(
    {
        "lpkit:AdapterLogitsProcessor",
        "lpkit:Bridged",
        "lpkit:Column",
        "lpkit:Field",  # pydantic's
        "lpkit:LogitsProcessor",
        "lpkit:Params",
        "lpkit:RaggedColumn",
        "lpkit:Request",
        "lpkit:Rows",
        "lpkit:SparseLogits",
        "lpkit:TokenSetColumn",
        "lpkit.dynamo:DynamoLogitsProcessor",
        "lpkit_conformance.testing:BoundCheck",
    }
)
"""Classes whose instances engines and lpkit make, not authors."""

INTERNAL = {
    "lpkit.train": frozenset({"Comparison", "Difference", "ForbiddenToken", "Masked"}),
    "lpkit.runtime": frozenset(
        {"Engine", "Sampled", "StepResult", "StepRow", "V1AsyncEngine", "V1Sampler", "V2Row", "V2Sampler", "V2Slots"}
    ),
    "lpkit_conformance.traces": frozenset(
        {"Added", "Apply", "EngineInfo", "Move", "Placement", "Trace", "TraceRequest", "Update", "V1Step", "V2Step"}
    ),
}
"""Classes that people get and read, or that only lpkit's own tests construct."""


def arguments(value: Any) -> str:
    """Names of the parameters; ``=`` marks those that have a default, types are left out."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = [item.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty) for item in parameters]
    optional = [item.default is not inspect.Parameter.empty for item in parameters]
    signature = str(
        inspect.Signature([item.replace(default=0) if has else item for item, has in zip(shown, optional, strict=True)])
    )
    return signature.replace("=0", "=")


def describe(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if f"{module}:{name}" in MADE_BY_OTHERS or name in INTERNAL.get(module, ()):
        return "class" if inspect.isclass(value) else "def"
    if inspect.isclass(value):
        special = issubclass(value, enum.Enum | BaseException) or getattr(value, "_is_protocol", False)
        return "class" if special else f"class{arguments(value)}"
    return f"def{arguments(value)}" if inspect.isroutine(value) else "value"


def test_every_public_name() -> None:
    """Names may be added; none may go."""
    table: dict[str, Any] = {module: importlib.import_module(module).__all__ for module in LISTED} | UNLISTED
    if not WRITING:
        table = json.loads((FOLDER / "imports.json").read_text(encoding="utf-8"))
    names = {module: sorted({*table[module]} - {"__version__"}) for module in sorted(table)}
    hold("imports", {module: {name: describe(module, name) for name in names[module]} for module in names})


def members(owner: str) -> dict[str, str]:
    module, _, name = owner.partition(":")
    cls = getattr(importlib.import_module(module), name)
    annotated = {key for base in cls.__mro__ for key in getattr(base, "__annotations__", ())}

    def kind(member: str) -> str:
        if callable(getattr(cls, member, None)) and not inspect.isclass(getattr(cls, member)):
            return f"def{arguments(getattr(cls, member))}"
        return "attribute" if hasattr(cls, member) or member in annotated else "missing"

    return {member: kind(member) for member in MEMBERS[owner]}


def test_what_people_use_of_the_main_classes() -> None:
    hold("members", {owner: members(owner) for owner in MEMBERS})
