"""Every fact that lpkit relies on: what it is, and how it is read off a release's sources.

A value is a short text for the table of docs/evidence/vllm-releases.md; "-" where the release has nothing of it.
A reader answers "?" for code that it does not recognise, which no history expects.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
    INTERFACE, LOADER, BUILTIN, STATE, V2_INTERFACE, V2_LOADER, CONFIG, SPECULATIVE, ENVS, BATCH, RUNNER, SCHEDULER,
    CPU, EXCEPTIONS, *ONLINE, *OFFLINE, "vllm/v1/sample/sampler.py", "vllm/v1/worker/gpu/sample/sampler.py",
    "vllm/config/__init__.py", "vllm/v1/worker/gpu/sample/logits_processor/__init__.py",
)  # fmt: skip
"""The files that are kept of a release."""

RESERVED: Final = ("needs_output_token_ids", "supports_spec_decode", "apply_with_spec_decode")
"""Names that open proposals want to give to processors; lpkit does not use them."""


@dataclass(frozen=True)
class Fact:
    """One thing to read.

    Attributes:
        name: stable.
        title: what it is, in the table.
        group: heading of its table.
        read: from a release's sources to the value.
    """

    name: str
    title: str
    group: str
    read: Callable[[Source], str]


def dash(text: str) -> str:
    return text or "-"


# -- V1 ----------------------------------------------------------------------------------------------------------


def added_request(source: Source) -> str:
    """What an Add holds; whether the prompt may be missing is the request state's matter, ahead of the annotation."""
    value = source.value(INTERFACE, "AddedRequest")
    items = value.slice.elts if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple) else []
    if len(items) != 4:
        return "?" if value is not None else "-"
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
    found: list[str] = []
    for item in node.body if node is not None else []:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            number = len(found) + 1 if "auto" in names(item.value) else ast.unparse(item.value)
            found.append(f"{item.targets[0].id} = {number}")
    return dash(", ".join(found))


def helper(source: Source) -> str:
    function = source.function(BUILTIN, "process_dict_updates")
    return dash(", ".join(argument.arg for argument in function.args.args) if function is not None else "")


def adapter(source: Source) -> str:
    return dash(members(source.cls(LOADER, "AdapterLogitsProcessor")))


def adapter_prompt(source: Source) -> str:
    function = source.function(LOADER, "_new_state", "AdapterLogitsProcessor")
    if function is None:
        return "-"
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
    found = {ast.unparse(value) for path in paths if (value := source.value(path, "LOGITSPROCS_GROUP")) is not None}
    return dash(" and ".join(sorted(found)).replace("'", ""))


def _checks(source: Source, path: str, function: str) -> str:
    node = source.function(path, function)
    if node is None:
        return "-"
    return "subclass" if any(called(item) == "issubclass" for item in ast.walk(node)) else "nothing"


def pooling(source: Source) -> str:
    return _guarded(source, "is_pooling_model")


def drafts(source: Source) -> str:
    return _guarded(source, "vllm_config.speculative_config")


def _guarded(source: Source, condition: str) -> str:
    """What ``build_logitsprocs`` does under an ``if`` of that condition, before it loads anything."""
    function = source.function(LOADER, "build_logitsprocs")
    for node in function.body if function is not None else []:
        if any(called(item).startswith("_load") for item in ast.walk(node)):
            break
        if isinstance(node, ast.If) and ast.unparse(node.test) == condition:
            if not any(isinstance(item, ast.Return) for item in node.body):
                return "?"
            raising = any(isinstance(item, ast.Raise) for item in ast.walk(node))
            return f"passed: {'refused' if raising else 'left out'}; installed: left out"
    return "built all the same" if function is not None else "-"


def tpu(source: Source) -> str:
    function = source.function(LOADER, "_load_custom_logitsprocs")
    for node in function.body if function is not None else []:
        if isinstance(node, ast.If) and "is_tpu" in names(node.test):
            return "none loaded" if ast.unparse(node.body[-1]) == "return []" else "?"
    return "loaded" if function is not None else "-"


def validated(source: Source) -> str:
    called_in = [
        where
        for where, paths in (("online", ONLINE), ("offline", OFFLINE))
        if any("validate_logits_processors_params" in names(source.tree(path)) for path in paths)
        or any("validate_logits_processors_parameters" in names(source.tree(path)) for path in paths)
    ]
    exists = source.function(INTERFACE, "validate_params", "LogitsProcessor") is not None
    if not exists:
        return "-"
    # What the engine's front end checks is checked for the API server, too.
    return "online and offline" if "offline" in called_in else dash(" ".join(called_in))


def validation_error(source: Source) -> str:
    """Whether vLLM's own error for bad parameters is a ValueError."""
    node, seen = source.cls(EXCEPTIONS, "VLLMValidationError"), []
    if node is None:
        return "-"
    while node is not None:
        bases = [ast.unparse(base) for base in node.bases]
        seen += bases
        node = next((found for base in bases if (found := source.cls(EXCEPTIONS, base)) is not None), None)
    return "a ValueError" if "ValueError" in seen else "no ValueError"


def reserved(source: Source) -> str:
    """Whether one of the reserved names is now an attribute of an interface."""
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
    """The field's default, and what becomes of None."""
    node = source.cls(SCHEDULER, "SchedulerConfig")
    for item in node.body if node is not None else []:
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "async_scheduling":
            text = ast.unparse(item.value) if item.value is not None else ""
            if text == "False":
                return "off"
            if text in ("None", "Field(default=None)"):
                return "on" if _none_turns_on(source) else "?"
            return "?"
    return "-"


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
    """When the input batch of V1 replaces placeholders on behalf of processors."""
    for node in ast.walk(source.tree(RUNNER)):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            text = ast.unparse(keyword.value)
            if keyword.arg == "logitsprocs_need_output_token_ids" and "input_batch" not in text:
                rest = text.replace("bool(custom_logitsprocs)", "a processor is passed")
                return rest.replace("self.vllm_config.reasoning_config is not None", "a reasoning model is served")
    return "never"


# -- V2 ------------------------------------------------------------------------------------------------------------


def v2_state(source: Source) -> str:
    return dash(fields(source.cls(V2_INTERFACE, "LogitsProcRequestState")))


def v2_context(source: Source) -> str:
    return dash(fields(source.cls(V2_INTERFACE, "LogitsContext")))


# -- the runner ----------------------------------------------------------------------------------------------------


def switch(source: Source) -> str:
    """``VLLM_USE_V2_MODEL_RUNNER``: its default, and how it is converted."""
    for node in ast.walk(source.tree(ENVS)):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == "VLLM_USE_V2_MODEL_RUNNER":
                text = ast.unparse(value)
                if "int(os.getenv('VLLM_USE_V2_MODEL_RUNNER', '0'))" in text:
                    return "a number; 0 unless set"
                convert = source.function(ENVS, "maybe_convert_bool")
                number = convert is not None and "bool(int(" in ast.unparse(convert)
                return "a number; not set: vLLM decides" if "maybe_convert_bool" in text and number else "?"
    return "-"


def before_the_switch(source: Source) -> str:
    """The features that decide before the switch is read."""
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    found = []
    for node in chooser.body if chooser is not None else []:
        if not isinstance(node, ast.If) or ast.unparse(node.body[-1]) != "return True":
            break
        feature = re.findall(r"\w+(?=_config\b)", ast.unparse(node.test))[-1:]
        refused = any(isinstance(item, ast.Raise) for item in ast.walk(node))
        found.append(f"{feature[0] if feature else '?'}: {'0 is refused' if refused else 'V2, even if it is 0'}")
    return "; ".join(found) or "-"


def default_runner(source: Source) -> str:
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    if chooser is None:
        return "V1"
    if ast.unparse(chooser.body[-1]) != "return True":
        return "?"
    return "V2 for some models" if "_is_default_v2_model_runner_model" in names(chooser) else "V2"


def triton(source: Source) -> str:
    chooser = source.function(CONFIG, "use_v2_model_runner", "VllmConfig")
    return "-" if chooser is None else "V1 without Triton" if "HAS_TRITON" in names(chooser) else "?"


def v2_processors(source: Source) -> str:
    """What V2 makes of custom processors."""
    if source.cls(V2_INTERFACE, "LogitsProcessor") is not None:
        return "runs them"
    features = [node for node in ast.walk(source.tree(CONFIG)) if isinstance(node, ast.FunctionDef)]
    for node in features:
        if "custom logits processors" not in strings(node) or "_v2_model_runner" not in node.name:
            continue
        installed = any(called(item) == "entry_points" for item in ast.walk(node))
        return "none, passed or installed" if installed else "refuses passed, forgets installed"
    return "forgets them" if switch(source) != "-" else "-"


def only_on_v1(source: Source) -> str:
    """Methods of speculative decoding that V2 lacks, of releases whose V2 has processors."""
    function = source.function(CONFIG, "_get_v2_model_runner_unsupported_features", "VllmConfig")
    if function is None or V2_INTERFACE not in source:
        return "-"
    for node in ast.walk(function):
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)):
            continue
        if ast.unparse(node.left).endswith("speculative_config.method"):
            return ", ".join(sorted(ast.literal_eval(node.comparators[0])))
    return "?"


def _unsupported(source: Source, what: str) -> str:
    """What ``VllmConfig`` collects as unsupported, and on which condition."""
    function = source.function(CONFIG, f"_get_{what}_unsupported_features", "VllmConfig")
    return collected(function) if function is not None else "-"


def _unsupported_by_v2(source: Source, what: str) -> str:
    """The same, of releases whose V2 has processors; before, a processor is among it and the rest does not matter."""
    return _unsupported(source, what) if V2_INTERFACE in source else "-"


def acceptance(source: Source) -> str:
    """How drafts are accepted, of releases that run processors with drafts: the methods, and the default."""
    methods, config = source.value(SPECULATIVE, "RejectionSampleMethod"), source.cls(SPECULATIVE, "SpeculativeConfig")
    if V2_INTERFACE not in source or methods is None:
        return "-"
    default = [
        ast.unparse(item.value).strip("'")
        for item in (config.body if config is not None else [])
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "rejection_sample_method" and item.value
    ]
    listed = methods.slice.elts if isinstance(methods, ast.Subscript) and isinstance(methods.slice, ast.Tuple) else []
    named = [ast.unparse(item).strip("'") for item in listed]
    return f"{', '.join(named) or '?'}; unless set: {''.join(default) or '?'}"


def _replay(source: Source, function: str) -> str:
    """What a kind of replay refuses."""
    node = source.function(CONFIG, function, "VllmConfig")
    if node is None:
        return "-"
    texts = strings(node)
    refused = [
        what for what, text in (("V1", "requires Model Runner V2"), ("passed", "custom logits proc")) if text in texts
    ]
    installed = any(called(item) == "entry_points" for item in ast.walk(node))
    return f"refuses {' and '.join(refused)}{'; looks at installed' if installed else ''}"


V1 = "The V1 interface"
LOADING = "Loading and validation"
PLACEHOLDERS = "Asynchronous scheduling on V1"
V2 = "The V2 interface"
CHOICE = "Which runner"

FACTS: Final = (
    Fact("v1-members", "`LogitsProcessor`", V1, lambda s: dash(members(s.cls(INTERFACE, "LogitsProcessor")))),
    Fact("v1-update", "`BatchUpdate`, in order", V1, lambda s: dash(fields(s.cls(INTERFACE, "BatchUpdate")))),
    Fact("v1-added", "an Add", V1, added_request),
    Fact("v1-moves", "`MoveDirectionality`", V1, directions),
    Fact("v1-builder", "`BatchUpdateBuilder`", V1, lambda s: dash(members(s.cls(STATE, "BatchUpdateBuilder")))),
    Fact("v1-helper", "`process_dict_updates`", V1, helper),
    Fact("v1-behaviour", "what both of these do", V1, behaviour),
    Fact("v1-adapter", "`AdapterLogitsProcessor`", V1, adapter),
    Fact("v1-adapter-prompt", "which of its callables get the prompt", V1, adapter_prompt),
    Fact("v1-builtins", "before custom ones", V1, builtins),
    Fact("v1-order", "sampler", V1, v1_order),
    Fact("group", "entry-point group", LOADING, group),
    Fact("v1-installed", "V1 checks of an installed class", LOADING,
         lambda s: _checks(s, LOADER, "_load_logitsprocs_plugins")),
    Fact("v1-passed", "V1 checks of a passed class", LOADING,
         lambda s: _checks(s, LOADER, "_load_logitsprocs_by_fqcns")),
    Fact("v2-installed", "V2 checks of an installed class", LOADING,
         lambda s: _checks(s, V2_LOADER, "_load_v2_logitsprocs_plugins")),
    Fact("v2-passed", "V2 checks of a passed class", LOADING,
         lambda s: _checks(s, V2_LOADER, "_load_v2_logitsprocs_by_fqcns")),
    Fact("v1-drafts", "V1 with speculative decoding", LOADING, drafts),
    Fact("v1-pooling", "pooling models", LOADING, pooling),
    Fact("tpu", "TPUs, on V1", LOADING, tpu),
    Fact("validated", "`validate_params` is asked", LOADING, validated),
    Fact("validation-error", "`VLLMValidationError`", LOADING, validation_error),
    Fact("reserved", "names that lpkit reserves", LOADING, reserved),
    Fact("async-default", "default", PLACEHOLDERS, async_default),
    Fact("async-cpu", "on a CPU", PLACEHOLDERS, async_cpu),
    Fact("repair", "placeholders are replaced for processors if", PLACEHOLDERS, repair),
    Fact("v2-members", "`LogitsProcessor`", V2, lambda s: dash(members(s.cls(V2_INTERFACE, "LogitsProcessor")))),
    Fact("v2-state", "`LogitsProcRequestState`", V2, v2_state),
    Fact("v2-context", "`LogitsContext`", V2, v2_context),
    Fact("v2-order", "sampler", V2, lambda s: v2_order(s) if V2_INTERFACE in s else "-"),
    Fact("switch", "`VLLM_USE_V2_MODEL_RUNNER`", CHOICE, switch),
    Fact("before-the-switch", "what is asked before it", CHOICE, before_the_switch),
    Fact("default-runner", "default, without processors", CHOICE, default_runner),
    Fact("triton", "Triton", CHOICE, triton),
    Fact("v2-processors", "V2 and custom processors", CHOICE, v2_processors),
    Fact("only-on-v1", "methods of speculative decoding that need V1", CHOICE, only_on_v1),
    Fact("v2-unsupported", "what V2 with processors does not support", CHOICE,
         lambda s: _unsupported_by_v2(s, "v2_model_runner")),
    Fact("v2-dbo", "of this, with dual batch overlap", CHOICE, lambda s: _unsupported_by_v2(s, "dbo")),
    Fact("v1-unsupported", "what V1 does not support", CHOICE, lambda s: _unsupported(s, "v1_model_runner")),
    Fact("acceptance", "how drafts are accepted, with processors", CHOICE, acceptance),
    Fact("mask-replay", "`--return-sampling-mask`", CHOICE, lambda s: _replay(s, "_verify_sampling_replay_config")),
    Fact("trace-replay", "`--enable-trace-replay`", CHOICE, lambda s: _replay(s, "_verify_trace_replay_config")),
)  # fmt: skip


def read_all(source: Source) -> dict[str, str]:
    """Every fact of one release."""
    return {fact.name: fact.read(source) for fact in FACTS}
