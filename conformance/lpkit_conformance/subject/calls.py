"""Calls of a plugin: a host's record of one ``apply``, and errors of the plugin with their location."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lpkit_conformance.errors import StandinError
from lpkit_conformance.instruments.author_lines import Follow
from lpkit_conformance.instruments.author_lines import location_of as location_of
from lpkit_conformance.processes import pulse
from lpkit_conformance.results import Blocked, Failed, Skipped
from lpkit_conformance.vllm_api.parts import lacking, not_in_config
from lpkit_conformance.vllm_api.stub import is_installed


@dataclass(frozen=True)
class SeenRow:
    """One row of one step.

    Attributes:
        position: number of tokens before the next token.
        discarded: the engine discards this row's result, and the checks ignore it.
        local: index among the request's rows: the number of drafts before this row.
    """

    request: str
    position: int
    discarded: bool = False
    local: int = 0


@dataclass(frozen=True)
class Observation:
    """One ``apply``: rows, and logits ``[rows, vocab]`` before and after."""

    step: int
    rows: tuple[SeenRow, ...]
    before: torch.Tensor
    after: torch.Tensor

    def shows(self, step: int, request: str) -> bool:
        """Return True for a call of this step with a row of the request; without a request, with any rows."""
        return self.step == step and (not request or request in [row.request for row in self.rows])


class PluginError(Exception):
    """The plugin raised, or returned something that is not a batch of logits.

    Attributes:
        exception: the type of what it raised; empty if it returned.
        fix: what to change, if that is known.
    """

    def __init__(self, method: str, summary: str, location: str = "", exception: str = "", fix: str = "") -> None:
        super().__init__(f"{method}: {summary}")
        self.method = method
        self.summary = summary
        self.location = location
        self.exception = exception
        self.fix = fix

    @classmethod
    def of(cls, method: str, error: BaseException) -> PluginError:
        """An exception that the plugin raised in ``method``."""
        kind = type(error).__name__
        return cls(method, f"raised {kind}: {error}"[:500], location_of(error), kind)


class calling:  # noqa: N801 - read as a word, like those of contextlib
    """Turn exceptions of the plugin within the context into a :class:`PluginError` with file and line.

    ``Blocked`` (a method that hung) and ``StandinError`` (a gap of the stand-in for vLLM) pass through.

    Args:
        as_engine: run in inference mode, as the engine does for every method except the constructor.
        given: text after the method's name if the call does not return.

    Attributes:
        follow: traces every call while it is set.
    """

    follow: ClassVar[Follow | None] = None

    def __init__(self, method: str, as_engine: bool = False, given: str = "") -> None:
        self._method, self._name, self._outer = method, method + given, ""
        self._traced: Any = None
        self._mode = torch.inference_mode() if as_engine and not torch.is_inference_mode_enabled() else None

    def __enter__(self) -> None:
        if label := pulse.hung(self._name):
            raise Blocked(label)
        self._outer = pulse.call(self._name)
        if self._mode is not None:
            self._mode.__enter__()
        if calling.follow is not None:
            self._traced = sys.gettrace()
            sys.settrace(calling.follow)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if calling.follow is not None:
            sys.settrace(self._traced)
        if self._mode is not None:
            self._mode.__exit__(kind, error, trace)
        pulse.call(self._outer)
        if error is not None and (beyond := not_in_config(error) or (lacking(error) if is_installed() else "")):
            raise StandinError(beyond) from error
        # What a check raises from within the plugin's call, having wrapped a method, is its finding.
        passing = PluginError | StandinError | Blocked | Failed | Skipped | KeyboardInterrupt
        if error is not None and not isinstance(error, passing):
            raise PluginError.of(self._method, error) from error


def checked(result: Any, before: torch.Tensor) -> torch.Tensor:
    """``result`` if the engine could go on with it; else :class:`PluginError`."""
    if not isinstance(result, torch.Tensor):
        what = "None" if result is None else type(result).__name__
        raise _returned(f"{what} instead of the logits", "end every path through `apply` with `return logits`")
    if result.shape != before.shape:
        shapes = f"shape {list(result.shape)} for logits of shape {list(before.shape)}"
        raise _returned(shapes, "return all rows and all tokens of the logits, also if you computed on some of them")
    if result.dtype != before.dtype:
        cast = f"convert the result back: `.to(logits.dtype)`, which is {before.dtype}"
        raise _returned(f"{result.dtype} for {before.dtype} logits", cast)
    # vLLM's kernels step through a row one element at a time, and its sampler edits rows in place.
    if result.stride() != before.stride() and (result.stride(1) != 1 or 0 in result.stride()) and result.numel():
        contiguous = "return `result.contiguous()`, or write the result into `logits`"
        raise _returned(f"logits with strides {list(result.stride())}: no rows of their own", contiguous)
    if result.device != before.device:
        moved = "compute on `logits.device`, or move the result back to it"
        raise _returned(f"logits on {result.device}, got them on {before.device}", moved)
    return result


def _returned(what: str, fix: str) -> PluginError:
    return PluginError("apply", f"returned {what}", fix=fix)
