"""Readers of the facts: each takes a release's sources and returns a value for ``vllm_api/facts.toml``.

A value is "-" where the release has nothing of the kind, and "?" for code that a reader does not recognise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final

from lpkit_conformance.vllm_api.facts import ABSENT, joined

from vllm_canary.behaviour import behaviour
from vllm_canary.features import collected
from vllm_canary.source import Source, called, fields, members, names, strings
from vllm_canary.stages import v1_order, v2_order

INTERFACE = "vllm/v1/sample/logits_processor/interface.py"
LOADER = "vllm/v1/sample/logits_processor/__init__.py"
BUILTIN = "vllm/v1/sample/logits_processor/builtin.py"
STATE = "vllm/v1/sample/logits_processor/state.py"
V2_INTERFACE = "vllm/v1/worker/gpu/sample/logits_processor/interface.py"
V2_LOADER = "vllm/v1/worker/gpu/sample/logits_processor/loader.py"
V2_RUNNER = "vllm/v1/worker/gpu/model_runner.py"
CONFIG = "vllm/config/vllm.py"
SPECULATIVE = "vllm/config/speculative.py"
ENVS = "vllm/envs.py"
BATCH = "vllm/v1/worker/gpu_input_batch.py"
RUNNER = "vllm/v1/worker/gpu_model_runner.py"
SCHEDULER = "vllm/config/scheduler.py"
CPU = "vllm/platforms/cpu.py"
EXCEPTIONS = "vllm/exceptions.py"
ONLINE: Final = (
    "vllm/entrypoints/openai/serving_chat.py",
    "vllm/entrypoints/openai/serving_completion.py",
    "vllm/entrypoints/openai/chat_completion/serving.py",
    "vllm/entrypoints/openai/completion/serving.py",
)
OFFLINE: Final = ("vllm/sampling_params.py", "vllm/v1/engine/input_processor.py")
WANTED: Final = (
    INTERFACE, LOADER, BUILTIN, STATE, V2_INTERFACE, V2_LOADER, V2_RUNNER, CONFIG, SPECULATIVE, ENVS, BATCH, RUNNER,
    SCHEDULER, CPU, EXCEPTIONS, *ONLINE, *OFFLINE, "vllm/v1/sample/sampler.py", "vllm/v1/worker/gpu/sample/sampler.py",
    "vllm/config/__init__.py", "vllm/v1/worker/gpu/sample/logits_processor/__init__.py",
)  # fmt: skip
"""The files that are kept of a release."""

RESERVED: Final = ("needs_output_token_ids", "supports_spec_decode", "apply_with_spec_decode")
"""Names that open proposals want to give to processors; lpkit does not use them."""


def dash(text: str) -> str:
    return text or ABSENT


# -- V1 ----------------------------------------------------------------------------------------------------------


def added_request(source: Source) -> str:
    """Read the items of an Add; the request's state shows earlier than the annotation that a prompt may be missing."""
    value = source.value(INTERFACE, "AddedRequest")
    items = value.slice.elts if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple) else []
    if len(items) != 4:
        return "?" if value is not None else ABSENT
    state = source.cls(BATCH, "CachedRequestState")
    prompt = [
        ast.unparse(item.annotation)
        for item in (state.body if state is not None else [])
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "prompt_token_ids"
    ]
    optional = any("None" in text or "Optional" in text for text in [*prompt, ast.unparse(items[2])])
    return f"index, params, prompt{' or None' if optional else ''}, output"


def directions(source: Source) -> str:
    node = source.cls(INTERFACE, "MoveDirectionality")
    members: list[str] = []
    for item in node.body if node is not None else []:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            number = len(members) + 1 if "auto" in names(item.value) else ast.unparse(item.value)
            members.append(f"{item.targets[0].id} = {number}")
    return dash(", ".join(members))


def helper(source: Source) -> str:
    function = source.function(BUILTIN, "process_dict_updates")
    return dash(", ".join(argument.arg for argument in function.args.args) if function is not None else "")


def adapter_prompt(source: Source) -> str:
    function = source.function(LOADER, "_new_state", "AdapterLogitsProcessor")
    if function is None:
        return ABSENT
    text = ast.unparse(function)
    if "len(inspect.signature(req_lp).parameters) == 3" not in text:
        return "?"
    return "3 parameters; raises without a prompt" if "prompt_ids is None" in text else "3 parameters"


def builtins(source: Source) -> str:
    value = source.value(LOADER, "BUILTIN_LOGITS_PROCESSORS")
    return dash(", ".join(ast.unparse(item).removesuffix("LogitsProcessor") for item in getattr(value, "elts", [])))


# -- loading -----------------------------------------------------------------------------------------------------


def group(source: Source) -> str:
    paths = [path for path in (LOADER, V2_LOADER) if path in source]
    groups = {ast.unparse(value) for path in paths if (value := source.value(path, "LOGITSPROCS_GROUP")) is not None}
    return dash(" and ".join(sorted(groups)).replace("'", ""))


def _checks(source: Source, path: str, function: str) -> str:
    node = source.function(path, function)
    if node is None:
        return ABSENT
    return "subclass" if any(called(item) == "issubclass" for item in ast.walk(node)) else "nothing"


def _guarded(source: Source, condition: str) -> str:
    """Read what ``build_logitsprocs`` does under an ``if`` of that condition, before it loads anything."""
    function = source.function(LOADER, "build_logitsprocs")
    for node in function.body if function is not None else []:
        if any(called(item).startswith("_load") for item in ast.walk(node)):
            break
        if isinstance(node, ast.If) and ast.unparse(node.test) == condition:
            if not any(isinstance(item, ast.Return) for item in node.body):
                return "?"
            raising = any(isinstance(item, ast.Raise) for item in ast.walk(node))
            return f"passed: {'refused' if raising else 'left out'}; installed: left out"
    return "built all the same" if function is not None else ABSENT


def tpu(source: Source) -> str:
    function = source.function(LOADER, "_load_custom_logitsprocs")
    for node in function.body if function is not None else []:
        if isinstance(node, ast.If) and "is_tpu" in names(node.test):
            return "none loaded" if ast.unparse(node.body[-1]) == "return []" else "?"
    return "loaded" if function is not None else ABSENT


def validated(source: Source) -> str:
    called_in = [
        where
        for where, paths in (("online", ONLINE), ("offline", OFFLINE))
        if any("validate_logits_processors_params" in names(source.tree(path)) for path in paths)
        or any("validate_logits_processors_parameters" in names(source.tree(path)) for path in paths)
    ]
    exists = source.function(INTERFACE, "validate_params", "LogitsProcessor") is not None
    if not exists:
        return ABSENT
    # What the engine's front end checks is checked for the API server, too.
    return joined(["online", "offline"]) if "offline" in called_in else dash(" ".join(called_in))


def validation_error(source: Source) -> str:
    """Look for ValueError among the bases of vLLM's own error for bad parameters."""
    node, seen = source.cls(EXCEPTIONS, "VLLMValidationError"), []
    if node is None:
        return ABSENT
    while node is not None:
        bases = [ast.unparse(base) for base in node.bases]
        seen += bases
        node = next((parent for base in bases if (parent := source.cls(EXCEPTIONS, base)) is not None), None)
    return "a ValueError" if "ValueError" in seen else "no ValueError"


def reserved(source: Source) -> str:
    """Look for the reserved names among the attributes of the interfaces."""
    taken = []
    for path in (INTERFACE, V2_INTERFACE):
        node = source.cls(path, "LogitsProcessor")
        for item in node.body if node is not None else []:
            bound = {getattr(item, "name", ""), *(getattr(t, "id", "") for t in getattr(item, "targets", ()))}
            bound.add(getattr(getattr(item, "target", None), "id", ""))
            taken += [name for name in RESERVED if name in bound]
    return ", ".join(taken) or "none taken"


# -- asynchronous scheduling ---------------------------------------------------------------------------------------


def async_default(source: Source) -> str:
    """Read the field's default, and vLLM's replacement for None."""
    node = source.cls(SCHEDULER, "SchedulerConfig")
    for item in node.body if node is not None else []:
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "async_scheduling":
            text = ast.unparse(item.value) if item.value is not None else ""
            if text == "False":
                return "off"
            if text in ("None", "Field(default=None)"):
                return "on" if _none_turns_on(source) else "?"
            return "?"
    return ABSENT


def _none_turns_on(source: Source) -> bool:
    for node in ast.walk(source.tree(CONFIG)):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("async_scheduling is None"):
            return any(
                isinstance(item, ast.Assign) and ast.unparse(item).endswith("async_scheduling = True")
                for item in ast.walk(node)
            )
    return False


def async_cpu(source: Source) -> str:
    assigned = [ast.unparse(node) for node in ast.walk(source.tree(CPU)) if isinstance(node, ast.Assign)]
    return "off" if any(text.endswith("scheduler_config.async_scheduling = False") for text in assigned) else "as set"


def repair(source: Source) -> str:
    """Read when the input batch of V1 replaces placeholders on behalf of processors."""
    for node in ast.walk(source.tree(RUNNER)):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            text = ast.unparse(keyword.value)
            if keyword.arg == "logitsprocs_need_output_token_ids" and "input_batch" not in text:
                rest = text.replace("bool(custom_logitsprocs)", "a processor is passed")
                return rest.replace("self.vllm_config.reasoning_config is not None", "a reasoning model is served")
    return "never"


# -- the runner ----------------------------------------------------------------------------------------------------


def switch(source: Source) -> str:
    """Read the default of ``VLLM_USE_V2_MODEL_RUNNER``, and how vLLM converts a value."""
    for node in ast.walk(source.tree(ENVS)):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == "VLLM_USE_V2_MODEL_RUNNER":
                text = ast.unparse(value)
                if "int(os.getenv('VLLM_USE_V2_MODEL_RUNNER', '0'))" in text:
                    return "a number; 0 unless set"
                convert = source.function(ENVS, "maybe_convert_bool")
                number = convert is not None and "bool(int(" in ast.unparse(convert)
                return "a number; not set: vLLM decides" if "maybe_convert_bool" in text and number else "?"
    return ABSENT


def before_the_switch(source: Source) -> str:
    """List the features that decide before vLLM reads the switch."""
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    lines = []
    for node in chooser.body if chooser is not None else []:
        if not isinstance(node, ast.If) or ast.unparse(node.body[-1]) != "return True":
            break
        feature = re.findall(r"\w+(?=_config\b)", ast.unparse(node.test))[-1:]
        refused = any(isinstance(item, ast.Raise) for item in ast.walk(node))
        lines.append(f"{feature[0] if feature else '?'}: {'0 is refused' if refused else 'V2, even if it is 0'}")
    return dash(joined(lines))


def default_runner(source: Source) -> str:
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    if chooser is None:
        return "V1"
    if ast.unparse(chooser.body[-1]) != "return True":
        return "?"
    return "V2 for some models" if "_is_default_v2_model_runner_model" in names(chooser) else "V2"


def triton(source: Source) -> str:
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    return ABSENT if chooser is None else "V1 without Triton" if "HAS_TRITON" in names(chooser) else "?"


def v2_processors(source: Source) -> str:
    """Read how V2 treats custom processors."""
    if source.cls(V2_INTERFACE, "LogitsProcessor") is not None:
        return "runs them"
    features = [node for node in ast.walk(source.tree(CONFIG)) if isinstance(node, ast.FunctionDef)]
    for node in features:
        if "custom logits processors" not in strings(node) or "_v2_model_runner" not in node.name:
            continue
        installed = any(called(item) == "entry_points" for item in ast.walk(node))
        return "none, passed or installed" if installed else "refuses passed, forgets installed"
    return "forgets them" if switch(source) != ABSENT else ABSENT


def own_sampler(source: Source) -> str:
    """Read whether a model may bring its own sampler, in releases whose V2 has processors."""
    if V2_INTERFACE not in source:
        return ABSENT
    return "a model's `custom_sampler`" if "custom_sampler" in names(source.tree(V2_RUNNER)) else "nothing"


def only_on_v1(source: Source) -> str:
    """List the methods of speculative decoding that V2 lacks, in releases whose V2 has processors."""
    function = source.function(CONFIG, "_get_v2_model_runner_unsupported_features", "VllmConfig")
    if function is None or V2_INTERFACE not in source:
        return ABSENT
    for node in ast.walk(function):
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)):
            continue
        if ast.unparse(node.left).endswith("speculative_config.method"):
            return joined(sorted(ast.literal_eval(node.comparators[0])))
    return "?"


def _unsupported(source: Source, what: str) -> str:
    """List what ``VllmConfig`` collects as unsupported, with the conditions."""
    function = source.function(CONFIG, f"_get_{what}_unsupported_features", "VllmConfig")
    return collected(function) if function is not None else ABSENT


def _unsupported_by_v2(source: Source, what: str) -> str:
    """The same, in releases whose V2 has processors. Older releases lack processors on V2, so the rest does not
    matter."""
    return _unsupported(source, what) if V2_INTERFACE in source else ABSENT


def acceptance(source: Source) -> str:
    """List the methods of accepting drafts and the default, in releases that run processors with drafts."""
    methods, config = source.value(SPECULATIVE, "RejectionSampleMethod"), source.cls(SPECULATIVE, "SpeculativeConfig")
    if V2_INTERFACE not in source or methods is None:
        return ABSENT
    default = [
        ast.unparse(item.value).strip("'")
        for item in (config.body if config is not None else [])
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "rejection_sample_method" and item.value
    ]
    listed = methods.slice.elts if isinstance(methods, ast.Subscript) and isinstance(methods.slice, ast.Tuple) else []
    named = [ast.unparse(item).strip("'") for item in listed]
    return joined([*(named or ["?"]), f"unless set: {''.join(default) or '?'}"])


def _replay(source: Source, function: str) -> str:
    """Read what a kind of replay refuses."""
    node = source.function(CONFIG, function, "VllmConfig")
    if node is None:
        return ABSENT
    texts = strings(node)
    refused = [
        what for what, text in (("V1", "requires Model Runner V2"), ("passed", "custom logits proc")) if text in texts
    ]
    installed = any(called(item) == "entry_points" for item in ast.walk(node))
    return f"refuses {' and '.join(refused)}{'; looks at installed' if installed else ''}"


READERS: Final[dict[str, Callable[[Source], str]]] = {
    "v1-members": lambda s: dash(members(s.cls(INTERFACE, "LogitsProcessor"))),
    "v1-update": lambda s: dash(fields(s.cls(INTERFACE, "BatchUpdate"))),
    "v1-added": added_request,
    "v1-moves": directions,
    "v1-builder": lambda s: dash(members(s.cls(STATE, "BatchUpdateBuilder"))),
    "v1-helper": helper,
    "v1-behaviour": behaviour,
    "v1-adapter": lambda s: dash(members(s.cls(LOADER, "AdapterLogitsProcessor"))),
    "v1-adapter-prompt": adapter_prompt,
    "v1-builtins": builtins,
    "v1-order": v1_order,
    "group": group,
    "v1-installed": lambda s: _checks(s, LOADER, "_load_logitsprocs_plugins"),
    "v1-passed": lambda s: _checks(s, LOADER, "_load_logitsprocs_by_fqcns"),
    "v2-installed": lambda s: _checks(s, V2_LOADER, "_load_v2_logitsprocs_plugins"),
    "v2-passed": lambda s: _checks(s, V2_LOADER, "_load_v2_logitsprocs_by_fqcns"),
    "v1-drafts": lambda s: _guarded(s, "vllm_config.speculative_config"),
    "v1-pooling": lambda s: _guarded(s, "is_pooling_model"),
    "tpu": tpu,
    "validated": validated,
    "validation-error": validation_error,
    "reserved": reserved,
    "async-default": async_default,
    "async-cpu": async_cpu,
    "repair": repair,
    "v2-members": lambda s: dash(members(s.cls(V2_INTERFACE, "LogitsProcessor"))),
    "v2-state": lambda s: dash(fields(s.cls(V2_INTERFACE, "LogitsProcRequestState"))),
    "v2-context": lambda s: dash(fields(s.cls(V2_INTERFACE, "LogitsContext"))),
    "v2-order": lambda s: v2_order(s) if V2_INTERFACE in s else ABSENT,
    "switch": switch,
    "before-the-switch": before_the_switch,
    "default-runner": default_runner,
    "triton": triton,
    "v2-processors": v2_processors,
    "v2-own-sampler": own_sampler,
    "only-on-v1": only_on_v1,
    "v2-unsupported": lambda s: _unsupported_by_v2(s, "v2_model_runner"),
    "v2-dbo": lambda s: _unsupported_by_v2(s, "dbo"),
    "v1-unsupported": lambda s: _unsupported(s, "v1_model_runner"),
    "acceptance": acceptance,
    "mask-replay": lambda s: _replay(s, "_verify_sampling_replay_config"),
    "trace-replay": lambda s: _replay(s, "_verify_trace_replay_config"),
}
"""Readers by the key of a fact."""


def read_all(source: Source) -> dict[str, str]:
    """Read every fact of one release."""
    return {key: read(source) for key, read in READERS.items()}
