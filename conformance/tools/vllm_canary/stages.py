"""The order of the samplers' stages, read off the calls in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_canary.source import Source, called, in_order

V1_CALLS = {
    "apply_bad_words": "bad words",
    "apply_bad_words_with_drafts": "bad words",
    "apply_all_penalties": "penalties",
    "apply_to_logits": "thinking budget",
    "greedy_sample": "greedy choice",
    "topk_topp_sampler": "top-k/top-p",
    "apply_temperature": "temperature",
}
V2_CALLS = {
    "apply_logit_bias": "logit bias",
    "apply_penalties": "penalties",
    "apply_bad_words": "bad words",
    "apply_temperature": "temperature",
    "apply_min_p": "min_p",
    "apply_top_k_top_p": "top-k/top-p",
}


def v1_order(source: Source) -> str:
    """Return the stages of ``Sampler.forward`` in order; the methods that it calls are written in."""
    return _joined(_v1(source, "vllm/v1/sample/sampler.py", "forward", set()))


def _v1(source: Source, path: str, method: str, seen: set[str]) -> Iterator[str]:
    function = source.function(path, method, "Sampler")
    if function is None or method in seen:
        return
    for node in _statements_in_order(function):
        name = called(node)
        if isinstance(node, ast.For):
            over = ast.unparse(node.iter)
            if over.endswith(".non_argmax_invariant"):
                yield "processors"
            elif over.endswith(".argmax_invariant"):
                yield "argmax-invariant processors"
        elif name in V1_CALLS:
            yield V1_CALLS[name]
        elif name == "to" and "float32" in ast.unparse(node):
            yield "float32"
        elif name == "masked_fill_" and "allowed_token_ids" in ast.unparse(node):
            yield "allowed ids"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_self = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            if of_self and not name.startswith(("gather", "compute")):
                yield from _v1(source, path, name, seen | {method})


def v2_order(source: Source) -> str:
    """Return the stages of the V2 sampler's ``apply_sampling_params``; its list of processors is written in."""
    path = "vllm/v1/worker/gpu/sample/sampler.py"
    function = source.function(path, "apply_sampling_params", "Sampler")
    stages: list[str] = []
    for node in _statements_in_order(function) if function is not None else ():
        name = called(node)
        if isinstance(node, ast.For) and ast.unparse(node.iter) == "self.logits_processors":
            stages += _listed(source, path)
        elif name == "copy_" and "float32" in ast.unparse(node):
            stages.append("float32")
        elif name == "apply" and "thinking_budget" in ast.unparse(node):
            stages.append("thinking budget")
        elif name in V2_CALLS:
            stages.append(V2_CALLS[name])
    return _joined(stages)


def _listed(source: Source, path: str) -> list[str]:
    """``self.logits_processors = [...]`` of the constructor: vLLM's own stages, then the custom ones."""
    stages = {"bias": "logit bias", "penalties": "penalties", "bad_words": "bad words", "custom": "processors"}
    function = source.function(path, "__init__", "Sampler")
    for node in ast.walk(function) if function is not None else ():
        value = getattr(node, "value", None)
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        if value is None or not isinstance(target, ast.Attribute) or target.attr != "logits_processors":
            continue
        written = [ast.unparse(item) for item in getattr(value, "elts", [value])]
        return [next((stage for key, stage in stages.items() if key in text.lower()), text) for text in written]
    return ["processors"]


def _statements_in_order(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Like ``in_order``, but a loop before what is in it, and nothing of what a ``return`` in an ``if`` skips."""
    for statement in function.body:
        yield from _in_one_statement(statement)


def _in_one_statement(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.For):
        yield node
        return
    if isinstance(node, ast.If):
        yield from in_order(node.test)
        for statement in [*node.body, *node.orelse]:
            yield from _in_one_statement(statement)
        return
    yield from in_order(node)


def _joined(stages: Iterator[str] | list[str]) -> str:
    """Each stage where it first comes."""
    return " > ".join(dict.fromkeys(stages))
