"""A plugin: its class, the interfaces it implements, and its validation of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lpkit.loading import interfaces_of
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.instruments.module_state import ModuleState
from lpkit_conformance.instruments.process_settings import same_random_numbers
from lpkit_conformance.settings.cases import ALONE
from lpkit_conformance.settings.class_code import fields_read
from lpkit_conformance.subject.calls import PluginError, calling
from lpkit_conformance.vllm_api.releases import VALIDATED_SINCE, Release, is_before


@dataclass(frozen=True)
class Plugin:
    """A class under test.

    Attributes:
        target: the plugin's name as the user gave it.
        cls: the class; any object until LP001 has judged it.
        release: the vLLM release whose rules apply; None: the newest.
        modules: values of the plugin's modules before its first use; None: they are not restored.
    """

    target: str
    cls: Any
    release: Release | None = None
    modules: ModuleState | None = None

    @cached_property
    def interfaces(self) -> frozenset[str]:
        """The interfaces, ``v1`` or ``v2``, that the class implements."""
        return interfaces_of(self.cls)

    @cached_property
    def fields_read(self) -> list[str]:
        """Fields of vLLM's that the class's code reads."""
        return fields_read(self.cls, ALONE)

    def refusal(self, params: SamplingParams) -> BaseException | None:
        """Return the exception of ``validate_params`` for a request; None if it accepts, or if vLLM would not ask."""
        validate = getattr(self.cls, "validate_params", None)
        if is_before(self.release, VALIDATED_SINCE):
            return None
        try:
            if validate is not None:
                with calling("validate_params"):
                    validate(params)
        except PluginError as error:
            return error.__cause__
        return None

    def accepts(self, params: SamplingParams) -> bool:
        """Return True if ``validate_params`` lets the request in."""
        return self.refusal(params) is None

    def restore_modules(self) -> None:
        """Put the plugin's modules back to their state at import, as far as it is known."""
        if self.modules is not None:
            self.modules.restore()

    @contextmanager
    def as_imported(self) -> Iterator[None]:
        """Run with the modules as imported and fixed random numbers; then put back what was there before."""
        with same_random_numbers():
            now = None if self.modules is None or self.modules.unchanged() else self.modules.now()
            if now is not None:
                self.restore_modules()
            try:
                yield
            finally:
                if self.modules is not None and not self.modules.unchanged():
                    self.modules.restore()
                if now is not None:
                    now.restore()
