"""Reads a ``vllm serve`` command: the options that matter for logits processors."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from lpkit._nearest import suggest

from lpkit_conformance.discovery import runner_choice
from lpkit_conformance.discovery.runner_choice import Demands
from lpkit_conformance.errors import UsageError
from lpkit_conformance.vllm_api.facts import VLLM
from lpkit_conformance.vllm_api.releases import Release, parse_release

_JSON = (
    *("speculative-config", "watermark-config", "attention-config", "kv-transfer-config", "compilation-config"),
    "diffusion-config",
)
"""Options that hold an object, as JSON or field by field: ``--speculative-config.method suffix``."""

_MANY = ("logits-processors",)
"""Options that take several values."""

_NEAR = 0.8
"""How similar a misspelt option is to an option, for ``difflib``."""

_SHORT = {
    "-sc": "speculative-config",
    "-pp": "pipeline-parallel-size",
    "-tp": "tensor-parallel-size",
    "-ac": "attention-config",
    "-cc": "compilation-config",
    "-dc": "diffusion-config",
}

_READ = (
    *(*_JSON, *_MANY, "async-scheduling", "config", "convert", "distributed-executor-backend", "enable-lora", "runner"),
    *("enable-batch-sharded-sampling", "enable-dbo", "enable-elastic-ep", "enable-trace-replay", "mamba-cache-mode"),
    *("return-sampling-mask", "task", "ubatch-size"),
    *(f"{kind}-parallel-size" for kind in ("tensor", "pipeline", "prefill-context", "decode-context")),
)
"""Options that change what happens to processors."""

_POOLING = ("classify", "embed", "embedding", "reward", "score")
"""Values of ``--convert`` and ``--task`` that make a pooling model."""

_CHOICES = {
    "runner": ("auto", "draft", "generate", "pooling"),
    "convert": ("auto", "none", *_POOLING),
    "mamba-cache-mode": ("align", "all", "none"),
}
"""Values of any release."""

_MODULES = frozenset({"vllm.entrypoints.openai.api_server"})
"""Modules that serve when run with ``python -m``."""

_LISTED = parse_release(VLLM.developed_with)
"""The release whose options are listed."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True)
class Serving:
    """The arguments of an engine that matter for logits processors.

    Attributes:
        passed: ``module:Class``, from ``--logits-processors``.
        model: its folder or its name on Hugging Face; empty if the command names none.
        environment: variables set in front of the command.
        options: all options, by name without leading dashes; objects as dictionaries.
    """

    passed: tuple[str, ...] = ()
    drafts: bool = False
    no_async: bool = False
    model: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def demands(self, release: Release | None) -> Demands:
        """Return what these arguments demand of a runner, by the rules of a release."""
        watermark = VLLM.has("before-the-switch", "watermark: V2, even if it is 0", release)
        return Demands(
            "vLLM's own watermark" if watermark and self.options.get("watermark-config") else "",
            self._hisparse(release),
            self._for_v1(release),
            _lacking("v1-unsupported", self._features_without_v1(), release),
        )

    def on(self, option: str) -> bool:
        """Return True if the option is given, and not as false."""
        return str(self.options.get(option, False)).lower() not in ("false", "0")

    @property
    def draft(self) -> dict[str, Any]:
        """The configuration of speculative decoding; empty without it."""
        return self.options.get("speculative-config") or {}

    @property
    def pooling(self) -> str:
        """The option that makes the model a pooling model, which samples no tokens; or ""."""
        for name, values in (("runner", ("pooling",)), ("convert", _POOLING), ("task", _POOLING)):
            if self.options.get(name) in values:
                return f"--{name} {self.options[name]}"
        return ""

    def _hisparse(self, release: Release | None) -> bool:
        if not VLLM.has("before-the-switch", "hisparse: 0 is refused", release):
            return False
        transfer = json.dumps(self.options.get("kv-transfer-config", {}))
        return "HiSparseConnector" in transfer or bool(self.options.get("attention-config", {}).get("hisparse_config"))

    def _for_v1(self, release: Release | None) -> tuple[str, ...]:
        method = self.draft.get("method")
        only_on_v1 = (f"speculative method {method!r}",) if method in VLLM.entries("only-on-v1", release) else ()
        return only_on_v1 + _lacking("v2-unsupported", self._features_without_v2(), release)

    def _features_without_v2(self) -> Iterator[tuple[str, str]]:
        """Features in use that some release's V2 lacks: vLLM's name, and the words for a user."""
        draft = self.draft
        if draft.get("parallel_drafting") and draft.get("method") not in ("dflash", "dspark"):
            yield "parallel drafting for EAGLE speculative decoding", "parallel drafting"
        if draft.get("use_heterogeneous_vocab"):
            yield "heterogeneous-vocabulary draft models", "a drafter with another vocabulary"
        if self.options.get("distributed-executor-backend") == "external_launcher" and self._several("pipeline"):
            yield "pipeline parallelism with external_launcher", "pipeline parallelism with external_launcher"
        if self.on("enable-dbo") or str(self.options.get("ubatch-size", "0")) not in ("0", "1"):
            for words in self._overlapping():
                yield "_get_dbo_unsupported_features()", words
        compiled = self.options.get("compilation-config", {})
        if str(compiled.get("mode")).lower() in ("1", "stock_torch_compile"):
            yield "stock torch.compile", "stock torch.compile"
        if compiled.get("pass_config", {}).get("enable_sp") and self._several("tensor"):
            yield "sequence parallelism", "sequence parallelism"
        if self.on("enable-elastic-ep"):
            yield "elastic expert parallelism", "elastic expert parallelism"
        if self.options.get("mamba-cache-mode") == "all":
            yield "mamba cache mode 'all'", "mamba cache mode 'all'"

    def _overlapping(self) -> Iterator[str]:
        """Dual batch overlap: V2 has it only if the switch is set, and not with every other option."""
        if runner_choice.SWITCH not in environment_of(self):
            yield "dual batch overlap"
            return
        if self.on("enable-lora"):
            yield "dual batch overlap with LoRA"
        if self.drafts:
            yield "dual batch overlap with speculative decoding"
        if self._several("pipeline"):
            yield "dual batch overlap with pipeline parallelism"
        if self._several("decode-context") or self._several("prefill-context"):
            yield "dual batch overlap with context parallelism"

    def _features_without_v1(self) -> Iterator[tuple[str, str]]:
        """The same for V1."""
        draft = self.draft
        if self._several("prefill-context"):
            yield "prefill context parallel", "prefill context parallelism"
        if draft.get("method") == "dspark":
            yield "dspark speculative decoding", "speculative method 'dspark'"
        if draft.get("enable_adaptive_verification"):
            yield "adaptive draft verification", "adaptive verification of drafts"
        if self.on("enable-batch-sharded-sampling"):
            yield "batch-sharded sampling", "batch-sharded sampling"
        if self._several("pipeline") and self.on("async-scheduling"):
            yield "pipeline parallelism with async scheduling", "pipeline parallelism with asynchronous scheduling"

    def _several(self, kind: str) -> bool:
        return str(self.options.get(f"{kind}-parallel-size", "1")) != "1"


def _lacking(fact: str, features: Iterator[tuple[str, str]], release: Release | None) -> tuple[str, ...]:
    """Return the features in use that the fact lists for a release, in words."""
    return tuple(words for feature, words in features if VLLM.has(fact, feature, release))


def read_command(command: Sequence[str], release: Release | None = None) -> Serving:
    """Read ``VARIABLE=... vllm serve MODEL --option ...``, and skip options that do not matter here.

    ``release``: of the vLLM that serves, if it is known.

    Raises:
        UsageError: an object is not JSON, the command does not serve, an option or its value is misspelt, or its
            ``--config`` cannot be read.
    """
    before, words = _divided(command)
    environment = dict(word.split("=", 1) for word in before if _VARIABLE.fullmatch(word))
    options = _options(words)
    if "config" in options:
        options = {**_options([*_words_of(options["config"])]), **options}
    for name, value in options.items():
        _check_name(name, release)
        if isinstance(value, str) and value not in _CHOICES.get(name, (value,)):
            raise UsageError(f"--{name} cannot be {value!r}", suggest(value, _CHOICES[name]))
    return Serving(
        passed=tuple(options.get("logits-processors", ())),
        drafts=bool(options.get("speculative-config")),
        no_async="no-async-scheduling" in options,
        model=words[0] if words and not words[0].startswith("-") else str(options.get("model", "")),
        environment=environment,
        options=options,
    )


@cache
def _listed() -> Sequence[str]:
    return (files(__package__) / "options.txt").read_text(encoding="utf-8").split()


def _check_name(name: str, release: Release | None) -> None:
    """Refuse a misspelt option.

    Another release than the listed one may have an option with a similar name: a misspelt name is then near to an
    option that matters here, or differs in a letter, or in the order of two.
    """
    plain = name.removeprefix("no-")
    if plain in _listed() or plain in _READ or name.startswith("-"):
        return
    listed = release == _LISTED
    least = _NEAR if listed or release is None else max(_NEAR, 1 - 1.01 / len(plain))
    near = difflib.get_close_matches(plain, _READ, 1, _NEAR) or difflib.get_close_matches(plain, _listed(), 1, least)
    if near or listed:
        remedy = f"did you mean '--{near[0]}'?" if near else "see vllm serve --help=all"
        other = "" if release else "; for another release, add --vllm VERSION"
        raise UsageError(f"vllm serve has no option --{name} in {VLLM.developed_with}", remedy + other)


def _divided(command: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split a command into the words before the engine's arguments, and the arguments."""
    for n, word in enumerate(command):
        serves = word == "serve" and n > 0 and command[n - 1].rpartition("/")[2] == "vllm"
        if serves or word in _MODULES:
            return command[:n], command[n + 1 :]
    if command:
        shown = " ".join(command)[:80]
        raise UsageError(f"there is no `vllm serve` in the command {shown!r}: put the whole command behind the dashes")
    return (), ()


def _words_of(file: Any) -> Iterator[str]:
    """Yield the options in a file of ``--config`` as the words of a command; those of the command win."""
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise UsageError("--config is YAML, and PyYAML is not installed here", "pip install pyyaml") from None
    try:
        held = yaml.safe_load(Path(str(file)).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"--config {file} cannot be read: {error}") from None
    if not isinstance(held, dict):
        raise UsageError(f"--config {file} holds no options")
    for key, value in held.items():
        if value is not False:
            yield f"--{key}"
        if not isinstance(value, bool):
            items = value if isinstance(value, list) else [value]
            yield from (json.dumps(item, default=str) if isinstance(item, dict) else str(item) for item in items)


def _options(words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        option = re.match(r"--?[A-Za-z][^=]*", word)
        if option:
            head, dot, inner = option[0].partition(".")
            name = _SHORT.get(head, head.removeprefix("--")) + dot + inner
            _take(options, name, word[option.end() + 1 :] if "=" in word else None)
        elif name:
            _take(options, name, word)
            if _normal(name) not in _MANY:
                name = ""
    return options


def _normal(name: str) -> str:
    """Return the name as vLLM's parser reads it: with dashes, and written out if it is the beginning of one option."""
    head, dot, rest = name.partition(".")
    head = head.replace("_", "-")
    plain = head.removeprefix("no-")
    begun = [option for option in _listed() if option.startswith(plain)]
    if len(begun) == 1 and plain not in _READ:
        head = head.removesuffix(plain) + begun[0]
    return head + dot + rest.replace("-", "_")


def _take(options: dict[str, Any], name: str, value: str | None) -> None:
    """Add an option, or a value of an option, to ``found``."""
    name = _normal(name)
    head, _, inner = name.partition(".")
    if head in _JSON:
        held = options.setdefault(head, {})
        if value is None:
            return
        if inner:
            *path, last = inner.split(".")
            for part in path:
                held = held.setdefault(part, {})
            held[last] = _scalar(value)
        else:
            held.update(_object(head, value))
    elif head in _MANY:
        options.setdefault(head, []).extend([] if value is None else [value])
    else:
        options[head] = True if value is None else value


def _scalar(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return {"True": True, "False": False}.get(value, value)


def _object(name: str, value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise UsageError(f"--{name} takes a JSON object, and {value[:80]} is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise UsageError(f"--{name} takes a JSON object, not {value[:80]}")
    return parsed


def environment_of(serving: Serving) -> dict[str, str]:
    """Return the environment that the engine would have."""
    return {**os.environ, **serving.environment}
