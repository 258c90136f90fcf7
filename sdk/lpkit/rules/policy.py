"""An operator's policy for documents: which rules requests may use, limits, and rules that hold for all requests."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_core import to_json

from lpkit._nearest import did_you_mean, suggest
from lpkit._toml import tomllib
from lpkit.rules.document import RULES, DocumentError, DocumentStep, steps_of
from lpkit.rules.presets import from_preset

VARIABLE = "LPKIT_RULES"
"""Environment variable with the path of the operator's file."""

KEY = "rules"
"""Key of ``extra_args`` that holds a request's document."""

_REMEMBERED = 256


class PolicyError(ValueError):
    """The operator's file is wrong; the message names it and the mistake."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Part):
    """Limits of a request's document.

    Attributes:
        steps: number of steps.
        bytes: length of its JSON.
    """

    steps: int = Field(default=16, ge=0)
    bytes: int = Field(default=65_536, ge=0)


class Policy(_Part):
    """Rules that an operator allows and adds.

    Attributes:
        allow: names of the rules that requests may use.
        limits: of a request's document.
        sets: lists of words, phrases or token ids, by names that steps refer to: ``{"set": "NAME"}`` in a list.
        documents: documents by names that requests refer to: ``"rules": "NAME"``.
        first, last: steps before and behind those of every request. They may use every rule.
        receipt: count how often each step changes logits, and log it when a request leaves.
    """

    allow: tuple[str, ...] = tuple(RULES)
    limits: Limits = Limits()
    sets: Mapping[str, list[str | int]] = {}
    documents: Mapping[str, list[Any]] = {}
    first: list[Any] = []
    last: list[Any] = []
    receipt: bool = False
    _memo: dict[Any, tuple[DocumentStep, ...]] = PrivateAttr(default_factory=dict)

    @classmethod
    def here(cls) -> Policy:
        """Return the policy of this process.

        Raises:
            PolicyError: the operator's file is wrong.
        """
        return _loaded(os.environ.get(VARIABLE, ""))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises:
            PolicyError: the file is wrong.
        """
        try:
            text = to_json(tomllib.loads(Path(path).read_text("utf-8")))
            policy = cls.model_validate_json(text, strict=True)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PolicyError(f"{path}: {error}") from None
        except ValidationError as error:
            mistakes = error.errors(include_url=False)
            raise PolicyError(f"{path}: " + "; ".join(_mistake(item) for item in mistakes)) from None
        for name in policy.allow:
            if name not in RULES:
                raise PolicyError(f"{path}: allow: {name!r} is no rule; {suggest(name, RULES)}")
        try:
            policy.operators  # noqa: B018 - reads them
        except DocumentError as error:
            raise PolicyError(f"{path}: {error}") from None
        return policy

    @cached_property
    def operators(self) -> Mapping[str, tuple[DocumentStep, ...]]:
        """The operator's own steps, by the part of the file that holds them.

        Raises:
            DocumentError: a step is wrong; the message begins with its position in the file.
        """
        named = {f"documents.{name}": steps for name, steps in self.documents.items()}
        parts = {"first": self.first, "last": self.last, **named}
        return {part: self._read(steps, part=part) for part, steps in parts.items()}

    @property
    def rules(self) -> frozenset[str]:
        """Names of the rules that a request can meet."""
        return frozenset(self.allow).union(step.rule for steps in self.operators.values() for step in steps)

    def steps(self, extra_args: Mapping[str, Any] | None) -> tuple[DocumentStep, ...]:
        """Return the steps for a request: the operator's first, its own, and the operator's last.

        Args:
            extra_args: of the request.

        Raises:
            ValueError: the document is wrong; the message begins with ``rules`` and a JSON pointer.
        """
        given = (extra_args or {}).get(KEY)
        try:
            text = given if given is None or isinstance(given, str) else to_json(given).decode()
            if text not in self._memo:
                of_request = () if text is None else self._of_request(text)
                if len(self._memo) >= _REMEMBERED:
                    self._memo.clear()
                self._memo[text] = (*self.operators["first"], *of_request, *self.operators["last"])
            return self._memo[text]
        except ValueError as error:
            raise ValueError(f"{KEY}{error}") from None

    def _of_request(self, text: str) -> tuple[DocumentStep, ...]:
        if text in self.documents:
            return self.operators[f"documents.{text}"]
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > self.limits.bytes:
            raise DocumentError(f"/: {size} bytes; at most {self.limits.bytes} are read")
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            if text.lstrip().startswith(("[", "{")):
                raise DocumentError(f"/: not JSON ({error})") from None
            reason = f"/: neither JSON nor the name of a document here: {text[:100]!r}; "
            raise DocumentError((reason + did_you_mean(text[:100], self.documents)).rstrip("; ")) from None
        if isinstance(document, dict) and document.keys() == {"preset"}:
            return self._preset(document["preset"])
        if not isinstance(document, list):
            hint = "; put the step into brackets" if isinstance(document, dict) and "rule" in document else ""
            raise DocumentError(f"/: a document is a list of steps, not {type(document).__name__}{hint}")
        if len(document) > self.limits.steps:
            raise DocumentError(f"/: {len(document)} steps; at most {self.limits.steps} are run")
        return self._read(document, self.allow)

    def _preset(self, given: Any) -> tuple[DocumentStep, ...]:
        steps = from_preset(given)
        try:
            return self._read(steps, self.allow)
        except DocumentError as error:
            number, _, reason = str(error).removeprefix("/").partition("/")
            name = steps[int(number)]["rule"] if number.isdigit() else number
            raise DocumentError(f"/preset: as the rule {name}: {reason}") from None

    def _read(
        self, document: list[Any], rules: tuple[str, ...] = tuple(RULES), part: str = ""
    ) -> tuple[DocumentStep, ...]:
        filled = [self._with_sets(f"{part}/{number}", step) for number, step in enumerate(document)]
        return steps_of(filled, rules, part)

    def _with_sets(self, where: str, step: Any) -> Any:
        """Replace references to sets in the lists of a step by their items."""
        if not isinstance(step, dict):
            return step
        filled = {}
        for key, value in step.items():
            if key == "when":
                value = self._with_sets(f"{where}/when", value)
            if isinstance(value, list) and any(isinstance(item, dict) for item in value):
                items: list[Any] = []
                for item in value:
                    name = item.get("set") if isinstance(item, dict) and item.keys() == {"set"} else None
                    if not isinstance(name, str):
                        items.append(item)
                    elif name in self.sets:
                        items += self.sets[name]
                    else:
                        raise DocumentError(f"{where}/{key}: no set {name[:100]!r}; {_alternatives(name, self.sets)}")
                value = items
            filled[key] = value
        return filled


def _alternatives(name: str, entries: Mapping[str, Any]) -> str:
    return suggest(name[:100], entries) if entries else "there are none"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _mistake(item: Any) -> str:
    where = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        fields = Limits.model_fields if len(item["loc"]) > 1 else Policy.model_fields
        return f"{where}: unknown; {suggest(str(item['loc'][-1]), fields)}"
    return f"{where}: {item['msg']}"


@lru_cache(4)
def _loaded(path: str) -> Policy:
    return Policy.load(path) if path else Policy()
