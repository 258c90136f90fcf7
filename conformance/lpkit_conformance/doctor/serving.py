"""How an engine is started: what the options of ``vllm serve`` mean for logits processors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lpkit_conformance.discovery import releases
from lpkit_conformance.discovery.releases import Demands, Release, is_before
from lpkit_conformance.errors import UsageError

_JSON = ("speculative-config", "watermark-config", "attention-config", "kv-transfer-config", "compilation-config")
"""Options that hold an object, as JSON or field by field: ``--speculative-config.method suffix``."""

_MANY = ("logits-processors",)
"""Options that take several values."""

_SHORT = {
    "-sc": "speculative-config",
    "-pp": "pipeline-parallel-size",
    "-tp": "tensor-parallel-size",
    "-ac": "attention-config",
    "-cc": "compilation-config",
}

_MODULES = frozenset({"vllm.entrypoints.openai.api_server"})
"""What else serves, by ``python -m``."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True)
class Serving:
    """What matters of an engine's arguments.

    Attributes:
        passed: ``module:Class``, from ``--logits-processors``.
        drafts: speculative decoding is on.
        no_async: asynchronous scheduling was turned off.
        verification: how drafts are accepted, vLLM's ``rejection_sample_method``.
        mask_replay: ``--return-sampling-mask``.
        trace_replay: ``--enable-trace-replay``.
        environment: variables that were set in front of the command.
        options: everything that was given, by the option's name without dashes in front; objects as dictionaries.
    """

    passed: tuple[str, ...] = ()
    drafts: bool = False
    no_async: bool = False
    verification: str = "standard"
    mask_replay: bool = False
    trace_replay: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def demands(self, release: Release | None) -> Demands:
        """What these arguments ask of the choice of a runner, by the rules of a release."""
        only_v2 = () if is_before(release, releases.V2_DEFAULT_SINCE) else tuple(self._refused_by_v1(release))
        return Demands(self._for_v2(release), self._hisparse(release), tuple(self._for_v1(release)), only_v2)

    def _for_v2(self, release: Release | None) -> str:
        watermark = self.options.get("watermark-config") and not is_before(release, releases.FORCED_V2_SINCE)
        return "vLLM's own watermark" if watermark else ""

    def _hisparse(self, release: Release | None) -> bool:
        if is_before(release, releases.FORCED_V2_SINCE):
            return False
        transfer = json.dumps(self.options.get("kv-transfer-config", {}))
        return "HiSparseConnector" in transfer or bool(self.options.get("attention-config", {}).get("hisparse_config"))

    def _for_v1(self, release: Release | None) -> Iterator[str]:
        draft = self.options.get("speculative-config") or {}
        if draft.get("method") in releases.methods_on_v1(release):
            yield f"speculative method {draft['method']!r}"
        if draft.get("parallel_drafting") and draft.get("method") not in ("dflash", "dspark"):
            yield "parallel drafting"
        if draft.get("use_heterogeneous_vocab") and not is_before(release, (0, 32, 0)):
            yield "a drafter with another vocabulary"
        if self.options.get("distributed-executor-backend") == "external_launcher" and self._several("pipeline"):
            yield "pipeline parallelism with external_launcher"
        if _on(self.options, "enable-dbo") or str(self.options.get("ubatch-size", "0")) not in ("0", "1"):
            yield from self._overlapping()
        if is_before(release, (0, 32, 0)):
            yield from self._on_v2_since_0_32()

    def _overlapping(self) -> Iterator[str]:
        """Dual batch overlap: V2 has it where the switch asks for it, but not with everything."""
        if releases.SWITCH not in environment_of(self):
            yield "dual batch overlap"
            return
        if _on(self.options, "enable-lora"):
            yield "dual batch overlap with LoRA"
        if self.drafts:
            yield "dual batch overlap with speculative decoding"
        if self._several("pipeline"):
            yield "dual batch overlap with pipeline parallelism"
        if self._several("decode-context") or self._several("prefill-context"):
            yield "dual batch overlap with context parallelism"

    def _refused_by_v1(self, release: Release | None) -> Iterator[str]:
        draft = self.options.get("speculative-config") or {}
        if self._several("prefill-context"):
            yield "prefill context parallelism"
        if draft.get("method") == "dspark":
            yield "speculative method 'dspark'"
        if draft.get("enable_adaptive_verification"):
            yield "adaptive verification of drafts"
        if _on(self.options, "enable-batch-sharded-sampling"):
            yield "batch-sharded sampling"
        asked = self._several("pipeline") and _on(self.options, "async-scheduling")
        if asked and not is_before(release, releases.V2_PROCESSORS_SINCE):
            yield "pipeline parallelism with asynchronous scheduling"

    def _several(self, kind: str) -> bool:
        return str(self.options.get(f"{kind}-parallel-size", "1")) != "1"

    def _on_v2_since_0_32(self) -> Iterator[str]:
        compiled = self.options.get("compilation-config", {})
        if str(compiled.get("mode")).lower() in ("1", "stock_torch_compile"):
            yield "stock torch.compile"
        if compiled.get("pass_config", {}).get("enable_sp") and self._several("tensor"):
            yield "sequence parallelism"
        if _on(self.options, "enable-elastic-ep"):
            yield "elastic expert parallelism"
        if self.options.get("mamba-cache-mode") == "all":
            yield "mamba cache mode 'all'"


def read_command(command: Sequence[str]) -> Serving:
    """What ``VARIABLE=... vllm serve MODEL --option ...`` says; options that do not matter here are passed over.

    Raises:
        UsageError: an object that is not JSON, or a command that serves nothing.
    """
    before, words = _divided(command)
    environment = dict(word.split("=", 1) for word in before if _VARIABLE.fullmatch(word))
    options = _options(words)
    draft = options.get("speculative-config") or {}
    return Serving(
        passed=tuple(options.get("logits-processors", ())),
        drafts=bool(draft),
        no_async=_on(options, "no-async-scheduling"),
        verification=str(draft.get("rejection_sample_method", "standard")),
        mask_replay=_on(options, "return-sampling-mask"),
        trace_replay=_on(options, "enable-trace-replay"),
        environment=environment,
        options=options,
    )


def _divided(command: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before the engine's own arguments, and these."""
    for n, word in enumerate(command):
        serves = word == "serve" and n > 0 and command[n - 1].rpartition("/")[2] == "vllm"
        if serves or word in _MODULES:
            return command[:n], command[n + 1 :]
    if command:
        said = " ".join(command)[:80]
        raise UsageError(f"there is no `vllm serve` in the command {said!r}: put the whole command behind the dashes")
    return (), ()


def _on(options: Mapping[str, Any], name: str) -> bool:
    return str(options.get(name, False)).lower() not in ("false", "0")


def _options(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        option = re.match(r"--?[A-Za-z][^=]*", word)
        if option:
            head, dot, inner = option[0].partition(".")
            name = _SHORT.get(head, head.lstrip("-")) + dot + inner
            _take(found, name, word[option.end() + 1 :] if "=" in word else None)
        elif name:
            _take(found, name, word)
            if _normal(name) not in _MANY:
                name = ""
    return found


def _normal(name: str) -> str:
    head, dot, rest = name.partition(".")
    return head.replace("_", "-") + dot + rest.replace("-", "_")


def _take(found: dict[str, Any], name: str, value: str | None) -> None:
    """One option: without a value so far, or with one."""
    name = _normal(name)
    head, _, inner = name.partition(".")
    if head in _JSON:
        held = found.setdefault(head, {})
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
        found.setdefault(head, []).extend([] if value is None else [value])
    else:
        found[head] = True if value is None else value


def _scalar(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return {"True": True, "False": False}.get(value, value)


def _object(name: str, value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise UsageError(f"--{name} takes a JSON object, and {value[:80]} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"--{name} takes a JSON object, not {value[:80]}")
    return found


def environment_of(serving: Serving) -> dict[str, str]:
    """The environment that the engine would have."""
    return {**os.environ, **serving.environment}
