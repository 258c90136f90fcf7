"""A misspelt hook is refused when the class is made; helpers with names of their own are not."""

from __future__ import annotations

from typing import Any

import lpkit
import pytest
from lpkit.portable.spelling import one_slip
from lpkit.v1 import LogitsProcessor as V1LogitsProcessor


def hook(*names: str) -> Any:
    """A method with arguments of these names."""
    scope: dict[str, Any] = {}
    exec(f"def method(self, {', '.join(names)}): ...", scope)
    return scope["method"]


class Old(V1LogitsProcessor):
    is_argmax_invariant = update_state = apply = __init__ = hook("value")


ADMIT, EDIT = hook("request"), hook("logits", "rows")


class Named(lpkit.Params):
    key: int


@pytest.mark.parametrize(
    ("base", "body", "meant"),
    [
        (lpkit.LogitsProcessor, {"proces": EDIT}, "process"),
        (lpkit.LogitsProcessor, {"Process": EDIT}, "process"),
        (lpkit.LogitsProcessor, {"edti": EDIT}, "edit"),
        (lpkit.LogitsProcessor, {"edit": EDIT, "admitt": ADMIT}, "admit"),
        (lpkit.LogitsProcessor, {"process": EDIT, "amdit": ADMIT}, "admit"),
        (lpkit.LogitsProcessor, {"process": EDIT, "param": Named}, "Params"),
        (lpkit.LogitsProcessor, {"process": EDIT, "stages": "sampling"}, "stage"),
        (lpkit.LogitsProcessor, {"process": EDIT, "histroy": "tokens"}, "history"),
        (lpkit.AdapterLogitsProcessor, {"new_req_logit_processor": hook("params")}, "new_req_logits_processor"),
        (lpkit.AdapterLogitsProcessor, {"Parms": Named}, "Params"),
        (lpkit.Bridged, {"wrap": Old}, "wraps"),
        (lpkit.Bridged, {"wraps": Old, "key": ("on",)}, "keys"),
        (lpkit.Bridged, {"wraps": Old, "concern": classmethod(hook("sampling_params"))}, "concerns"),
    ],
)
def test_a_misspelt_hook_is_refused_by_name(base: type, body: dict[str, Any], meant: str) -> None:
    wrong = list(body)[-1]
    with pytest.raises(TypeError, match=f"Plugin defines '{wrong}', .*; did you mean '{meant}'"):
        type("Plugin", (base,), body)


@pytest.mark.parametrize(
    "body",
    [
        {"process": EDIT, "emit": EDIT},  # process is there, so edit is not missing
        {"edit": EDIT, "processed": EDIT},
        {"process": EDIT, "admits": hook("first", "second")},
        {"process": EDIT, "_admit": ADMIT, "admit_": 3},
        {"process": EDIT, "admit": ADMIT, "admits": ADMIT},
        {"process": EDIT, "stages": ("first", "second"), "param": 1.5},
        {"process": EDIT, "params": lpkit.column},
        {"prepare": EDIT, "audit": EDIT},
    ],
    ids=lambda body: " ".join(body),
)
def test_helpers_are_the_authors_own(body: dict[str, Any]) -> None:
    type("Plugin", (lpkit.LogitsProcessor,), body)


def test_a_name_that_a_base_has_is_no_slip() -> None:
    class Mixin:
        def admits(self, request: lpkit.Request) -> bool:
            return True

    type("Plugin", (Mixin, lpkit.LogitsProcessor), {"process": EDIT, "admits": ADMIT})


@pytest.mark.parametrize("name", ["process", "proces", "processs", "pprocess", "prosess", "porcess", "procesz"])
def test_at_most_one_slip(name: str) -> None:
    assert one_slip(name, "process") and one_slip("process", name)


@pytest.mark.parametrize("name", ["proce", "processed", "precise", "sprocses", "edit", ""])
def test_more_than_one_slip(name: str) -> None:
    assert not one_slip(name, "process") and not one_slip("process", name)
