"""Deduces from a class's source how much of a request's output it reads.

This matters on V1, whose asynchronous scheduling writes -1 for tokens that are not known yet. The answer may be
"unknown": a class that keeps the output list may read it later, or only count it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from lpkit_conformance.discovery.interfaces import KNOWN, Deduction
from lpkit_conformance.vllm_api.runners import V1, V2

Reads: TypeAlias = Literal["none", "length", "tokens", "unknown"]

_DECLARED: Final[dict[str, Reads]] = {"none": "none", "length": "length", "tokens": "tokens"}
_DEFAULTS: Final[dict[str, Reads]] = {"LogitsProcessor": "none", "PortableProcessor": "none"}
_STRENGTH: Final[tuple[Reads, ...]] = ("none", "length", "unknown", "tokens")
_OUTPUT: Final = 3
"""Index of the output list in an Add of a ``BatchUpdate``: index, parameters, prompt, output."""


def reads(deduction: Deduction) -> Reads:
    """Return how much of its requests' output a class reads; ``found``: the deduction about the class."""
    if not deduction.complete:
        return "unknown"
    portable = [name for name in deduction.outside if name.startswith("lpkit.") and _interfaces(name) >= {V1, V2}]
    if portable:
        return _declared(deduction.bodies, portable[0].rpartition(".")[2])
    if V1 not in deduction.interfaces or any(name.endswith(".AdapterLogitsProcessor") for name in deduction.outside):
        return "unknown"
    if any(not name.endswith(".LogitsProcessor") for name in deduction.outside):
        return "unknown"  # derives from a built-in of vLLM
    return _strongest(_lists(deduction.bodies))


def _interfaces(name: str) -> frozenset[str]:
    module, _, cls = name.rpartition(".")
    return KNOWN.get(module, {}).get(cls, frozenset())


def _declared(bodies: Iterable[ast.ClassDef], base: str) -> Reads:
    """Return the ``history`` that a class on lpkit's bases declares; the class gets nothing else."""
    for body in bodies:
        for statement in body.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if not any(isinstance(target, ast.Name) and target.id == "history" for target in targets):
                continue
            value = getattr(statement, "value", None)
            return _DECLARED.get(str(value.value), "unknown") if isinstance(value, ast.Constant) else "unknown"
    return _DEFAULTS.get(base, "tokens")


def _strongest(answers: Iterable[Reads]) -> Reads:
    return max(answers, key=_STRENGTH.index, default="none")


def _lists(bodies: Sequence[ast.ClassDef]) -> Iterator[Reads]:
    """Yield the use of each expression with an output list; "unknown" if no code reads the added requests."""
    methods: dict[str, ast.FunctionDef] = {}
    for body in bodies:
        for item in body.body:
            if isinstance(item, ast.FunctionDef):
                methods.setdefault(item.name, item)
    update = methods.get("update_state")
    if update is None:
        yield "unknown"
        return
    examined = list(methods.values())
    if any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(update)):
        inherited = (item for body in bodies for item in body.body if isinstance(item, ast.FunctionDef))
        examined += [item for item in inherited if item.name == "update_state" and item is not update]
    met = False
    for method in examined:
        for node in ast.walk(method):
            if isinstance(node, ast.For | ast.comprehension) and getattr(node.iter, "attr", "") == "added":
                met = True
                scope = node.body if isinstance(node, ast.For) else [method]
                yield _element(node.target, scope)
            elif isinstance(node, ast.Call) and _called(node) == "process_dict_updates":
                met = True
                yield _callback(node, methods)
    if not met and not _ignores_updates(update):
        yield "unknown"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _ignores_updates(update: ast.FunctionDef) -> bool:
    """Return True if ``update_state`` does not use its argument."""
    names = {node.id for node in ast.walk(update) if isinstance(node, ast.Name)}
    return not names & {argument.arg for argument in update.args.args[1:]}


def _element(target: ast.expr, scope: Iterable[ast.AST]) -> Reads:
    if not isinstance(target, ast.Tuple):
        return "unknown"
    if len(target.elts) <= _OUTPUT or any(isinstance(item, ast.Starred) for item in target.elts):
        starred = isinstance(target.elts[-1], ast.Starred) and getattr(target.elts[-1].value, "id", "").startswith("_")
        return "none" if starred else "unknown"
    item = target.elts[_OUTPUT]
    return _use(item.id, scope) if isinstance(item, ast.Name) else "unknown"


def _callback(call: ast.Call, methods: dict[str, ast.FunctionDef]) -> Reads:
    """Judge the function that ``process_dict_updates`` calls with parameters, prompt and output."""
    given = call.args[2] if len(call.args) > 2 else None
    if isinstance(given, ast.Lambda):
        names = [argument.arg for argument in given.args.args]
        return _use(names[2], [given.body]) if len(names) > 2 else "unknown"
    name = given.attr if isinstance(given, ast.Attribute) else getattr(given, "id", "")
    function = methods.get(name)
    if function is None:
        return "unknown"
    names = [argument.arg for argument in function.args.args]
    return _use(names[-1], function.body) if len(names) >= 3 else "unknown"


def _use(name: str, scope: Iterable[ast.AST]) -> Reads:
    """Return the strongest use of the list of that name: counted, read, or kept for later."""
    answers: list[Reads] = []
    for top in scope:
        parents = {child: parent for parent in ast.walk(top) for child in ast.iter_child_nodes(parent)}
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                answers.append(_one_use(node, parents.get(node)))
    return _strongest(answers)


def _one_use(node: ast.Name, parent: ast.AST | None) -> Reads:
    if isinstance(parent, ast.Attribute):
        return "tokens" if parent.attr in ("count", "index") else "unknown"
    if isinstance(parent, ast.Call):
        called = _called(parent)
        if called == "len":
            return "length"
        return "tokens" if called in ("set", "Counter", "tensor", "as_tensor", "array", "asarray", "sum") else "unknown"
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return "tokens"
    if isinstance(parent, ast.For | ast.comprehension) and parent.iter is node:
        return "tokens"
    if isinstance(parent, ast.Compare):
        return "tokens" if node in parent.comparators else "unknown"
    if isinstance(parent, ast.If | ast.IfExp | ast.BoolOp | ast.UnaryOp | ast.While):
        return "length"  # asks only if it is empty
    return "unknown"
