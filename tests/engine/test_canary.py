"""The canary's readers, on the sources of the installed vLLM: they read what the table says, and notice a change."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest
from lpkit_conformance.vllm_api.facts import VLLM
from lpkit_conformance.vllm_api.releases import Release, parse_release

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance" / "tools"))

from vllm_canary.readers import (
    BUILTIN,
    CONFIG,
    CPU,
    ENVS,
    EXCEPTIONS,
    INTERFACE,
    LOADER,
    READERS,
    RUNNER,
    SCHEDULER,
    SPECULATIVE,
    STATE,
    V2_INTERFACE,
    V2_LOADER,
    WANTED,
    read_all,
)
from vllm_canary.source import Source

pytestmark = pytest.mark.engine

V1_SAMPLER, V2_SAMPLER = "vllm/v1/sample/sampler.py", "vllm/v1/worker/gpu/sample/sampler.py"
METHOD = "class LogitsProcessor(ABC):\n"


@cache
def files() -> dict[str, str]:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parents[1]
    return {path: (root / path).read_text("utf-8") for path in WANTED if (root / path).exists()}


@cache
def installed() -> Source:
    return Source(files())


@cache
def read() -> dict[str, str]:
    return read_all(installed())


def changed(path: str, text: str) -> Source:
    """The sources with another text of one file; the others are parsed once."""
    found = Source({**files(), path: text})
    found._trees.update({name: installed().tree(name) for name in files() if name != path})
    return found


def test_the_installed_vllm_is_read_as_the_table_says(release: Release) -> None:
    assert read() == {key: VLLM.value(key, release) for key in READERS}


CHANGES = [
    ("v1-members", INTERFACE, "def apply(self, logits: torch.Tensor)", "def apply(self, logits, rows)"),
    ("v1-members", INTERFACE, METHOD, f"{METHOD}    def needed(self): ...\n"),
    ("v1-update", INTERFACE, "    added: Sequence[AddedRequest]\n    moved: Sequence[MovedRequest]\n",
     "    moved: Sequence[MovedRequest]\n    added: Sequence[AddedRequest]\n"),
    ("v1-added", INTERFACE, "| None, list[int]]", "| None, list[int], str]"),
    ("v1-moves", INTERFACE, "    SWAP = auto()\n", "    SWAP = auto()\n    ROTATE = auto()\n"),
    ("v1-moves", INTERFACE, "SWAP = auto()", "SWAP = 7"),
    ("v1-builder", STATE, "added: list[AddedRequest] | None = None,", "added=None, other=None,"),
    ("v1-behaviour", STATE, "raise RuntimeError", "return RuntimeError"),
    ("v1-behaviour", STATE, "reverse=True", "reverse=False"),
    ("v1-behaviour", STATE, "return self._removed[-1]", "return self._removed[0]"),
    ("v1-behaviour", STATE, "        self._removed = []\n", ""),
    ("v1-behaviour", BUILTIN, "if req_entries.pop(index, None):", "if req_entries.pop(index, None) is not None:"),
    ("v1-behaviour", BUILTIN, "direct == MoveDirectionality.SWAP", "direct"),
    ("v1-behaviour", BUILTIN, "b_entry = req_entries.pop(b_index, None)\n", "b_entry = req_entries.get(b_index)\n"),
    ("v1-behaviour", BUILTIN, "    return updated", "    return bool(batch_update.added)"),
    ("v1-behaviour", BUILTIN, "import torch\n", "import torch\n1 / 0\n"),
    ("v1-adapter", LOADER, "params: SamplingParams,\n    ) -> Req", "params: SamplingParams, x,\n    ) -> Req"),
    ("v1-adapter-prompt", LOADER, "parameters) == 3", "parameters) > 2"),
    ("v1-builtins", LOADER, "    MinTokensLogitsProcessor,\n    LogitBias", "    LogitBias"),
    ("v1-order", V1_SAMPLER, "logits = self.apply_penalties(", "logits = self.apply_others("),
    ("v1-order", V1_SAMPLER, "raw_logprobs = self.compute_logprobs(", "raw_logprobs = self.apply_temperature("),
    ("group", V2_LOADER, '"vllm.logits_processors"', '"vllm.logits_processors_v2"'),
    ("v1-installed", LOADER, "append(entrypoint.load())", "append(issubclass(entrypoint.load(), LogitsProcessor))"),
    ("v1-passed", LOADER, "issubclass(", "isinstance("),
    ("v2-installed", V2_LOADER, "isinstance(cls, type) and issubclass(cls, LogitsProcessor)", "cls"),
    ("v2-passed", V2_LOADER, "not issubclass(", "not isinstance("),
    ("v1-drafts", LOADER, "if vllm_config.speculative_config:", "if vllm_config.unheard_of:"),
    ("v1-drafts", LOADER, "[MinTokensLogitsProcessor(vllm_config", "[*_load_custom_logitsprocs(vllm_config"),
    ("v1-pooling", LOADER, "            raise ValueError(STR_POOLING_REJECTS_LOGITSPROCS)\n", "            pass\n"),
    ("tpu", LOADER, "current_platform.is_tpu()", "never"),
    ("validated", "vllm/v1/engine/input_processor.py", "validate_logits_processors_param", "validate_param"),
    ("validation-error", EXCEPTIONS, "VLLMError(Exception)", "VLLMError(ValueError)"),
    ("async-default", SCHEDULER, "async_scheduling: bool | None = None", "async_scheduling: bool = False"),
    ("async-default", CONFIG, "async_scheduling = True", "async_scheduling = False"),
    ("async-cpu", CPU, "scheduler_config.async_scheduling = False", "pass"),
    ("repair", RUNNER, "bool(custom_logitsprocs)", "True"),
    ("v2-members", V2_INTERFACE, "req_idx: int, sampling_params", "req_idx: int, request_id, sampling_params"),
    ("v2-state", V2_INTERFACE, "    prefill_len: UvaBackedTensor\n", ""),
    ("v2-context", V2_INTERFACE, "    input_ids: torch.Tensor\n", ""),
    ("v2-order", V2_SAMPLER, "self.thinking_budget_state.apply(logits, ctx)", "pass"),
    ("v2-order", V2_SAMPLER, "torch.empty_like(logits, dtype=torch.float32)", "torch.empty_like(logits)"),
    ("switch", ENVS, "maybe_convert_bool(\n        os.getenv(\"VLLM_USE_V2", "parse(\n        os.getenv(\"VLLM_USE_V2"),
    ("before-the-switch", CONFIG, '                raise ValueError(\n                    "HiSparse requires',
     '                print(\n                    "HiSparse requires'),
    ("before-the-switch", CONFIG, 'getattr(self, "watermark_config", None) is not None:\n            if envs',
     'getattr(self, "other_config", None) is not None:\n            if envs'),
    ("default-runner", CONFIG, "            return False\n\n        return True\n\n    def _is_dfl",
     "            return False\n\n        return False\n\n    def _is_dfl"),
    ("only-on-v1", CONFIG, '                "suffix",\n', '                "suffix",\n                "eagle",\n'),
    ("v2-unsupported", CONFIG, "heterogeneous-vocabulary draft models", "other draft models"),
    ("v2-unsupported", CONFIG, 'not in ("dflash", "dspark")', 'not in ("dflash", "dspark", "eagle3")'),
    ("v2-unsupported", CONFIG, "if self.parallel_config.use_ubatching:\n            unsupported",
     "if self.parallel_config.enable_dbo:\n            unsupported"),
    ("v1-unsupported", CONFIG, "        if self.parallel_config.enable_batch_sharded_sampling:\n            unsup",
     "        if self.other:\n            unsup"),
    ("acceptance", SPECULATIVE, '["standard", "synthetic", "block"]', '["standard", "synthetic"]'),
    ("acceptance", SPECULATIVE, 'RejectionSampleMethod = "standard"', 'RejectionSampleMethod = "block"'),
    ("mask-replay", CONFIG, "does not support custom logits processors", "does not support some processors"),
    ("trace-replay", CONFIG, "trace replay requires Model Runner V2", "trace replay requires nothing"),
    ("triton", CONFIG, "if not HAS_TRITON:", "if never:"),
]  # fmt: skip
ALSO = {"only-on-v1": {"v2-unsupported"}}
"""These methods are a condition of what V2 does not support."""


@pytest.mark.parametrize(("fact", "path", "old", "new"), CHANGES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CHANGES)])
def test_a_change_of_the_sources_changes_its_fact_alone(
    fact: str, path: str, old: str, new: str, release: Release
) -> None:
    text = files().get(path, "")
    if old not in text and release != parse_release(VLLM.developed_with):
        pytest.skip(f"needs vLLM {VLLM.developed_with}: this one is written otherwise")
    assert old in text
    found = read_all(changed(path, text.replace(old, new)))
    assert {key for key, value in found.items() if value != read()[key]} - ALSO.get(fact, set()) == {fact}


@pytest.mark.parametrize(
    "line", ["    needs_output_token_ids = True\n", "    needs_output_token_ids: bool = True\n",
             "    def needs_output_token_ids(self): ...\n"]
)  # fmt: skip
@pytest.mark.parametrize("path", [INTERFACE, V2_INTERFACE])
def test_a_reserved_name_that_is_taken_is_read(path: str, line: str) -> None:
    if path not in files():
        pytest.skip("needs vLLM 0.31")
    found = read_all(changed(path, files()[path].replace(METHOD, f"{METHOD}{line}")))
    assert found["reserved"] == "needs_output_token_ids" != read()["reserved"]


def test_before_v2_has_processors_what_else_it_lacks_does_not_matter() -> None:
    found = read_all(Source({path: text for path, text in files().items() if path != V2_INTERFACE}))
    assert {found[name] for name in ("v2-unsupported", "v2-dbo", "acceptance")} == {"-"}
    assert found["v1-unsupported"] == read()["v1-unsupported"]
