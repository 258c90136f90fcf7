"""Finds what ``lpkit new --wrap`` can bridge: a V1-only class, a request-level callable, a factory or a class of
callables.

A child process imports the target, because an import may hang, exit or need a vLLM that is not installed.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Literal

from lpkit import loading
from lpkit.interfaces.lookup import GROUP
from lpkit.loading import imports

from lpkit_conformance.discovery.load import TIME_LIMIT, import_problem
from lpkit_conformance.discovery.metadata import packages_distributions, unique
from lpkit_conformance.errors import NotBridgeableError
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.supervise import Child, Lost
from lpkit_conformance.vllm_api.runners import V1, V2

Kind = Literal["class", "callable", "factory", "objects"]
"""``"objects"``: a class whose instances process one request each."""

_ARITY: Final[dict[int, Kind]] = {1: "factory", 2: "callable", 3: "callable"}
_FORMS = "(output_ids, logits), (prompt_ids, output_ids, logits), or a factory (sampling_params) of one of these"


@dataclass(frozen=True)
class Bridgeable:
    """A target for a bridge.

    Attributes:
        module, name: ``module:name`` of the target; the name may be dotted.
        kind: what it is.
        keys: keys of ``extra_args`` that its module reads, according to its source; for a class of callables, the
            constructor's arguments that a request supplies.
        distributions: the distributions with its top-level module; empty if it is not installed.
        entry_points: names under which vLLM loads something of the same module automatically.
    """

    module: str
    name: str
    kind: Kind
    keys: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()


def find(target: str) -> Bridgeable:
    """Examine ``module:Name``.

    Raises:
        NotBridgeableError: it does not exist, is not a V1 processor, or already runs on V2.
    """
    with Child("lpkit_conformance.discovery.bridgeable:judge") as child:
        try:
            kind, keys, problem = child.call({"path": sys.path, "target": target}, TIME_LIMIT)
        except Lost as loss:
            raise NotBridgeableError(f"importing {target} {import_problem(loss)}") from None
    if problem:
        raise NotBridgeableError(problem)
    module, _, name = target.partition(":")
    top = module.partition(".")[0]
    entries = (entry for _, dist in unique() for entry in dist.entry_points if entry.group == GROUP)
    return Bridgeable(
        module,
        name,
        kind,
        tuple(keys),
        tuple(dict.fromkeys(packages_distributions().get(top, ()))),
        tuple(entry.name for entry in entries if entry.value.partition(":")[0].split(".")[0] == top),
    )


# -- in the child ----------------------------------------------------------------------------------------------


def judge(parent: Parent) -> None:
    """Answer with the kind and the keys of the job's target, or with the reason why no bridge fits it."""
    job = parent.job()
    if importlib.util.find_spec("vllm") is None:
        from lpkit_conformance.vllm_api import stub

        stub.install()
    sys.path[:] = job["path"]
    try:
        parent.answer([*examined(job["target"]), ""])
    except (NotBridgeableError, loading.LoadError) as error:
        parent.answer(["", [], str(error)])


def examined(target: str) -> tuple[Kind, tuple[str, ...]]:
    """Import the target, and return its kind and keys as in :class:`Bridgeable`. Raises as :func:`find`."""
    # Imported late: these take vLLM's classes, or the stand-in's.
    from lpkit.bridging.foreign import body_of, is_foreign, request_keys
    from lpkit.portable.adapter import positional_arguments

    path, name = imports.split_fqcn(target)
    module = imports.import_module(path)
    obj = imports.attribute(module, path, name)
    try:
        if isinstance(obj, type) and not loading.interfaces_of(obj) and is_foreign(obj):
            keys = request_keys(obj)
            body_of(obj, {key: key for key in keys})
            return "objects", keys
        if isinstance(obj, type):
            return _kind_of_class(target, obj), _keys_of(module, name)
        if not callable(obj):
            raise NotBridgeableError(f"{target} is {loading.describe(obj)}, not a class or a callable")
        count = positional_arguments(obj)
    except TypeError as error:
        raise NotBridgeableError(f"{target} cannot be bridged: {error}") from None
    if count not in _ARITY:
        raise NotBridgeableError(f"{target} takes {count} positional arguments; what can be bridged takes {_FORMS}")
    return _ARITY[count], _keys_of(module, name)


def _kind_of_class(target: str, cls: type[Any]) -> Kind:
    interfaces = loading.interfaces_of(cls)
    if interfaces == {V1, V2}:
        raise NotBridgeableError(f"{target} runs on both of vLLM's runners already: there is nothing to wrap")
    if interfaces == {V2}:
        raise NotBridgeableError(
            f"{target} implements only vLLM's V2 interface, and the bridge goes from V1 to V2: derive it from "
            "lpkit.LogitsProcessor, which runs on both runners"
        )
    if not interfaces:
        raise NotBridgeableError(
            f"{target} derives from neither of vLLM's interfaces. A class whose instances are request-level callables "
            "is wrapped through a factory: def make(sampling_params): return TheClass(...)"
        )
    if inspect.isabstract(cls) and cls.__module__.partition(".")[0] in ("vllm", "lpkit"):
        raise NotBridgeableError(f"{target} is the interface itself; name a class that implements it")
    return "class"


def _keys_of(module: ModuleType, name: str) -> tuple[str, ...]:
    try:
        return keys_read(ast.parse(inspect.getsource(module)), name)
    except (OSError, SyntaxError):  # a module without source
        return ()


def keys_read(tree: ast.Module, name: str) -> tuple[str, ...]:
    """Return the constant keys that ``name`` and its helpers read from ``extra_args``, or else all of the module."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    aliases = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and not isinstance(node.value, ast.Call)
        and "extra_args" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    definitions = _reached(tree, name.partition(".")[0])
    return _keys_in(definitions, aliases, constants) or _keys_in([tree], aliases, constants)


def _reached(tree: ast.Module, name: str) -> list[ast.AST]:
    """Return the definition of ``name`` in a module, and the definitions that it uses, directly or indirectly."""
    definitions: dict[str, ast.AST] = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    reached: dict[str, ast.AST] = {}
    pending = [name]
    while pending:
        current = pending.pop()
        if current in reached or current not in definitions:
            continue
        reached[current] = definitions[current]
        pending += [node.id for node in ast.walk(reached[current]) if isinstance(node, ast.Name)]
    return [node for key, node in definitions.items() if key in reached]


def _keys_in(trees: list[Any], aliases: set[str], constants: dict[str, str]) -> tuple[str, ...]:
    keys: dict[str, None] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        owner, key = _lookup(node)
        if owner is None or key is None:
            continue
        if "extra_args" not in ast.unparse(owner) and not (isinstance(owner, ast.Name) and owner.id in aliases):
            continue
        value = (
            key.value if isinstance(key, ast.Constant) else constants.get(key.id) if isinstance(key, ast.Name) else None
        )
        if isinstance(value, str):
            keys[value] = None
    return tuple(keys)


def _lookup(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the mapping and the key of ``m.get(key)``, ``m[key]`` or ``key in m``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None
