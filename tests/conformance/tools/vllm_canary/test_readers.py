"""The readers of facts, on small sources: what they read, and that a change does not pass unnoticed."""

from __future__ import annotations

import ast
import textwrap

import pytest
from lpkit_conformance.facts.vllm import VLLM
from tiny_vllm import FILES, RELEASE
from vllm_canary.compare import surprises
from vllm_canary.features import collected
from vllm_canary.readers import (
    BATCH,
    BUILTIN,
    CONFIG,
    CPU,
    ENVS,
    EXCEPTIONS,
    INTERFACE,
    LOADER,
    ONLINE,
    READERS,
    RUNNER,
    SCHEDULER,
    SPECULATIVE,
    STATE,
    V2_INTERFACE,
    V2_LOADER,
    added_request,
    read_all,
    v2_processors,
    validated,
)
from vllm_canary.source import Source

V1_SAMPLER, V2_SAMPLER = "vllm/v1/sample/sampler.py", "vllm/v1/worker/gpu/sample/sampler.py"


def changed(path: str, old: str, new: str) -> Source:
    assert old in FILES[path]
    return Source({**FILES, path: FILES[path].replace(old, new)})


def test_the_small_vllm_has_every_fact_of_its_release() -> None:
    assert read_all(Source(FILES)) == {key: VLLM.value(key, RELEASE) for key in READERS}
    assert surprises({RELEASE: read_all(Source(FILES))}) == []


CHANGES = [
    ("v1-members", INTERFACE, "def apply(self, logits)", "def apply(self, logits, rows)"),
    ("v1-members", INTERFACE, "def _private", "def needed"),
    ("v1-update", INTERFACE, "    added: list\n    moved: list\n", "    moved: list\n    added: list\n"),
    ("v1-added", INTERFACE, "| None, list[int]]", "| None, list[int], str]"),
    ("v1-moves", INTERFACE, "    SWAP = auto()\n", "    SWAP = auto()\n    ROTATE = auto()\n"),
    ("v1-moves", INTERFACE, "SWAP = auto()", "SWAP = 7"),
    ("v1-builder", STATE, "removed=None, added=None", "added=None, removed=None"),
    ("v1-helper", BUILTIN, "batch_update, new_state", "new_state, batch_update"),
    ("v1-behaviour", STATE, "raise RuntimeError", "return RuntimeError"),
    ("v1-behaviour", STATE, "reverse=True", "reverse=False"),
    ("v1-behaviour", STATE, "min(self.removed)", "max(self.removed)"),
    ("v1-behaviour", STATE, "self.__init__()", "self._read = False"),
    ("v1-behaviour", BUILTIN, "bool(req_entries.pop(index, None))", "req_entries.pop(index, None) is not None"),
    ("v1-behaviour", BUILTIN, "kind == MoveDirectionality.SWAP", "kind"),
    ("v1-behaviour", BUILTIN, "req_entries.pop(target, None)\n", "req_entries.get(target)\n"),
    ("v1-behaviour", BUILTIN, "    return updated", "    return bool(batch_update.added)"),
    ("v1-behaviour", BUILTIN, "import torch\n", "import torch\n1 / 0\n"),
    ("v1-adapter", LOADER, "def new_req_logits_processor(self, params)",
     "def new_req_logits_processor(self, params, request_id)"),
    ("v1-adapter-prompt", LOADER, "prompt_ids is None", "not prompt_ids"),
    ("v1-adapter-prompt", LOADER, "parameters) == 3", "parameters) > 2"),
    ("v1-builtins", LOADER, "[MinTokensLogitsProcessor, LogitBias", "[LogitBias"),
    ("v1-order", V1_SAMPLER, "        logits = self.apply_penalties(logits, sampling_metadata)\n", ""),
    ("v1-order", V1_SAMPLER, "raw = self.compute_logprobs(logits)", "raw = self.apply_temperature(logits)"),
    ("group", V2_LOADER, "vllm.logits_processors", "vllm.logits_processors_v2"),
    ("v1-installed", LOADER, "return [entry.load()", "return [issubclass(entry.load(), LogitsProcessor)"),
    ("v1-passed", LOADER, "not issubclass(cls, LogitsProcessor)", "cls is None"),
    ("v2-installed", V2_LOADER, "issubclass(entry.load(), LogitsProcessor)", "entry.load()"),
    ("v2-passed", V2_LOADER, "issubclass(cls, LogitsProcessor)", "cls"),
    ("v1-drafts", LOADER, "if vllm_config.speculative_config:", "if vllm_config.unheard_of:"),
    ("v1-drafts", LOADER, "        return LogitsProcessors([MinTokensLogitsProcessor()])\n", ""),
    ("v1-pooling", LOADER,
     "if is_pooling_model:\n        if custom_logitsprocs:\n            raise ValueError\n", "if is_pooling_model:\n"),
    ("tpu", LOADER, "current_platform.is_tpu()", "never"),
    ("validated", "vllm/v1/engine/input_processor.py", "validate_logits_processors_params", "validate"),
    ("validation-error", EXCEPTIONS, "VLLMError(Exception)", "VLLMError(ValueError)"),
    ("reserved", INTERFACE, "    def _private(self, anything)", "    def _x(self, *, needs_output_token_ids)"),
    ("async-default", SCHEDULER, "bool | None = None", "bool = False"),
    ("async-default", CONFIG, "async_scheduling = True", "async_scheduling = False"),
    ("async-cpu", CPU, "scheduler_config.async_scheduling = False", "pass"),
    ("repair", RUNNER, "bool(custom_logitsprocs)", "True"),
    ("v2-members", V2_INTERFACE, "req_idx, sampling_params", "req_idx, request_id, sampling_params"),
    ("v2-state", V2_INTERFACE, "    prefill_len: object\n", ""),
    ("v2-context", V2_INTERFACE, "    input_ids: object\n    pos: object\n", "    pos: object\n"),
    ("v2-order", V2_SAMPLER, "bad_words, *custom", "*custom_first, bad_words, *custom"),
    ("v2-order", V2_SAMPLER, "dtype=torch.float32", "dtype=logits.dtype"),
    ("switch", ENVS, "maybe_convert_bool(os", "parse(os"),
    ("switch", ENVS, "bool(int(value))", "value == 'true'"),
    ("before-the-switch", CONFIG, 'raise ValueError("remove it")', "pass"),
    ("before-the-switch", CONFIG, "watermark_config", "other_config"),
    ("default-runner", CONFIG, "False\n        return True\n", "False\n        return False\n"),
    ("only-on-v1", CONFIG, '("suffix", ', '("suffix", "medusa", '),
    ("v2-unsupported", CONFIG, "heterogeneous-vocabulary draft models", "other draft models"),
    ("v2-unsupported", CONFIG, 'not in ("dflash", "dspark")', 'not in ("dflash", "dspark", "eagle3")'),
    ("v2-unsupported", CONFIG, "self.parallel_config.use_ubatching", "self.parallel_config.enable_dbo"),
    ("v2-unsupported", CONFIG, "        speculative_config = self.speculative_config\n",
     '        unsupported += ["elastic expert parallelism"]\n'),
    ("v2-dbo", CONFIG,
     '            unsupported.append("dual batch overlap with LoRA")\n', "            pass\n"),
    ("v2-dbo", CONFIG, "envs.VLLM_USE_V2_MODEL_RUNNER is None:\n            return [",
     "envs.VLLM_USE_V2_MODEL_RUNNER is False:\n            return ["),
    ("v2-dbo", CONFIG, "decode_context_parallel_size > 1 or", "decode_context_parallel_size > 2 or"),
    ("v1-unsupported", CONFIG, "            elif self", "            if self"),
    ("v1-unsupported", CONFIG, "        if self.enable_batch_sharded_sampling:",
     "        if self.other:\n            unsupported.append('other')\n        if self.enable_batch_sharded_sampling:"),
    ("acceptance", SPECULATIVE, '"block", "fly"', '"block"'),
    ("acceptance", SPECULATIVE, '"block", "fly"', '"block", "fly", OtherMethods'),
    ("acceptance", SPECULATIVE, "Literal[", "LiteralString or Literal["),
    ("acceptance", SPECULATIVE, 'RejectionSampleMethod = "standard"', 'RejectionSampleMethod = "block"'),
    ("mask-replay", CONFIG, "custom logits processors", "some logits processors"),
    ("trace-replay", CONFIG, "that requires Model Runner V2", "that requires nothing"),
    ("triton", CONFIG, "if not HAS_TRITON:", "if never:"),
]  # fmt: skip


ALSO = {"v1-helper": {"v1-behaviour"}, "only-on-v1": {"v2-unsupported"}}
"""Arguments in another order make another behaviour, and the methods are a condition of what V2 does not support."""


@pytest.mark.parametrize(("fact", "path", "old", "new"), CHANGES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CHANGES)])
def test_a_changed_fact_is_a_surprise(fact: str, path: str, old: str, new: str) -> None:
    found = surprises({RELEASE: read_all(changed(path, old, new))})
    if fact == "reserved":  # a parameter of that name takes nothing
        assert found == []
        return
    assert {item.fact for item in found} - ALSO.get(fact, set()) == {fact}
    assert all(item.found != item.expected for item in found)


@pytest.mark.parametrize(
    "line", ["    needs_output_token_ids = True\n", "    needs_output_token_ids: bool = True\n",
             "    def needs_output_token_ids(self): ...\n"]
)  # fmt: skip
@pytest.mark.parametrize("path", [INTERFACE, V2_INTERFACE])
def test_a_reserved_name_that_is_taken_is_a_surprise(path: str, line: str) -> None:
    source = changed(path, "class LogitsProcessor(ABC):\n", f"class LogitsProcessor(ABC):\n{line}")
    (found,) = [item for item in surprises({RELEASE: read_all(source)}) if item.fact == "reserved"]
    assert found.found == "needs_output_token_ids"


def test_every_fact_is_changed_by_some_case() -> None:
    untouched = set(READERS) - {case[0] for case in CHANGES}
    assert untouched == {"v2-processors"}


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("entry_points(group='vllm.logits_processors'); return ['custom logits processors']",
         "none, passed or installed"),
        ("return ['custom logits processors']", "refuses passed, forgets installed"),
        ("return []", "forgets them"),
    ],
)  # fmt: skip
def test_what_v2_made_of_processors_before_it_ran_them(features: str, expected: str) -> None:
    config = f"class VllmConfig:\n    def _validate_v2_model_runner(self):\n        {features}\n"
    files = {CONFIG: config, ENVS: FILES[ENVS]}
    assert v2_processors(Source(files)) == expected


def test_an_older_prompt_may_be_missing_before_its_annotation_says_so() -> None:
    files = {
        INTERFACE: "AddedRequest = tuple[int, SamplingParams, list[int], list[int]]\n",
        BATCH: "class CachedRequestState:\n    prompt_token_ids: Optional[list[int]]\n",
    }
    assert added_request(Source(files)) == "index, params, prompt or None, output"
    assert added_request(Source({**files, BATCH: ""})) == "index, params, prompt, output"


def test_a_release_without_any_of_the_files_has_nothing() -> None:
    found = read_all(Source({}))
    values = {"-", "never", "none taken", "as set", "V1", ""}
    assert {name: value for name, value in found.items() if value not in values} == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("unsupported.append('a')", "a"),
        ("if self.x_config is not None and self.x_config.y: unsupported.append('a')", "a when y"),
        ("if self.x_config is not None and self.y: unsupported.append('a')", "a when x_config is not None and y"),
        ("if a or b:\n  if c: unsupported.append('a')", "a when (a or b) and c"),
        ("if a: unsupported.append('a')\nelse: unsupported.append('b')", "a when a; b when not a"),
        ("unsupported.append(f'a {self.x_config.y}')", "a {y}"),
        ("unsupported.extend(self._more())", "_more()"),
        ("return ['a', 'b']", "a; b"),
        ("'text'\nunsupported: list = []\nx = self.x_config\nreturn unsupported", "nothing"),
        ("unsupported = ['a']", "?"),
        ("unsupported += ['a']", "?"),
        ("unsupported.append(what)", "?"),
        ("unsupported.extend(['a'])", "?"),
        ("for what in self.x: unsupported.append(what)", "?"),
        ("return unsupported + self._more()", "?"),
    ],
)  # fmt: skip
def test_what_is_collected_as_unsupported(code: str, expected: str) -> None:
    (function,) = ast.parse(f"def collect(self):\n{textwrap.indent(code, '    ')}").body
    assert isinstance(function, ast.FunctionDef)
    assert collected(function) == expected


def test_before_v2_has_processors_what_else_it_lacks_does_not_matter() -> None:
    found = read_all(Source({path: text for path, text in FILES.items() if path != V2_INTERFACE}))
    assert {found[name] for name in ("v2-unsupported", "v2-dbo", "acceptance")} == {"-"}
    assert found["v1-unsupported"] == VLLM.value("v1-unsupported", RELEASE)


def test_online_validation_is_told_from_offline() -> None:
    interface = {INTERFACE: FILES[INTERFACE]}
    online = {**interface, ONLINE[0]: "validate_logits_processors_parameters(given, params)\n"}
    assert validated(Source(interface)) == "-"
    assert validated(Source(online)) == "online"
