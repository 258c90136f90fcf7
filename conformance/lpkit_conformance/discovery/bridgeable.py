"""Finds what ``lpkit new --wrap`` can bridge: a V1-only class, a request-level callable, a factory or a class of
callables.

It reads the source. If the source does not decide, a child process imports the target, because an import may hang, exit
or need a vLLM that is not installed.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import Any

from lpkit.interfaces.lookup import GROUP
from lpkit.loading.imports import LoadError, split_fqcn

from lpkit_conformance.discovery.interfaces import BOTH, V1, Deducer
from lpkit_conformance.discovery.kinds import Kind, kind_of_callable, kind_of_class, no_processor
from lpkit_conformance.discovery.load import TIME_LIMIT, import_problem
from lpkit_conformance.discovery.metadata import packages_distributions, unique
from lpkit_conformance.discovery.module_finder import SourceError, Sources
from lpkit_conformance.errors import NotBridgeableError
from lpkit_conformance.processes.supervise import Child, Lost


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
    try:
        module, name = split_fqcn(target)
    except LoadError as error:
        raise NotBridgeableError(str(error)) from None
    sources = Sources()
    tree = _tree(sources, module)
    kind, keys = _read(sources, tree, module, name), keys_read(tree, name) if tree is not None else ()
    if kind is None:
        kind, arguments = _imported(target)
        keys = arguments if kind == "objects" else keys
    top = module.partition(".")[0]
    entries = (entry for _, dist in unique() for entry in dist.entry_points if entry.group == GROUP)
    return Bridgeable(
        module,
        name,
        kind,
        keys,
        tuple(dict.fromkeys(packages_distributions().get(top, ()))),
        tuple(entry.name for entry in entries if entry.value.partition(":")[0].split(".")[0] == top),
    )


def _tree(sources: Sources, module: str) -> ast.Module | None:
    found = sources.find(module)
    if found is None or found.file is None:
        return None
    try:
        return sources.parse(found.file)
    except SourceError:
        return None


# -- from source -----------------------------------------------------------------------------------------------


def _read(sources: Sources, tree: ast.Module | None, module: str, name: str) -> Kind | None:
    """Return the kind according to the source; None if the source does not decide."""
    label = f"{module}:{name}"
    try:
        found = Deducer(sources).target(module, name)
    except RecursionError:  # its source is nested too deeply
        return None
    if name in ("LogitsProcessor", "AdapterLogitsProcessor") and found.interfaces == V1 and not _is_authors(module):
        raise NotBridgeableError(f"{label} is the interface itself; name a class that implements it")
    if not found.importable:
        raise NotBridgeableError(found.problem)
    if found.interfaces:
        return kind_of_class(label, found.interfaces) if found.complete or found.interfaces == BOTH else None
    function = next((node for node in tree.body if _is_plain_function(node, name)), None) if tree is not None else None
    if isinstance(function, ast.FunctionDef):
        arguments = function.args
        if not arguments.vararg and not any(default is None for default in arguments.kw_defaults):
            return kind_of_callable(label, len(arguments.posonlyargs) + len(arguments.args))
    if found.complete and not (tree is not None and _may_be_class_of_callables(tree, name)):
        raise NotBridgeableError(no_processor(label, found.problem))
    return None


def _is_authors(module: str) -> bool:
    return module.partition(".")[0] not in ("vllm", "lpkit")


def _may_be_class_of_callables(tree: ast.Module, name: str) -> bool:
    """Return True if ``name`` may be a class with ``__call__``: its own, inherited, or imported from elsewhere."""
    here = next((node for node in tree.body if getattr(node, "name", "") == name), None)
    if not isinstance(here, ast.ClassDef):
        return here is None and name not in {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
    return bool(here.bases) or any(isinstance(item, ast.FunctionDef) and item.name == "__call__" for item in here.body)


def _is_plain_function(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name and not node.decorator_list


def keys_read(tree: ast.Module, name: str) -> tuple[str, ...]:
    """Return the constant keys that ``name`` and its helpers read from ``extra_args``, or else those of the module."""
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
    found: dict[str, None] = {}
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
            found[value] = None
    return tuple(found)


def _lookup(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the mapping and the key of ``m.get(key)``, ``m[key]`` or ``key in m``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None


# -- by importing ----------------------------------------------------------------------------------------------


def _imported(target: str) -> tuple[Kind, tuple[str, ...]]:
    """Return the kind and the constructor's arguments from a child process that imports the target."""
    with Child("lpkit_conformance.discovery.child:judge") as child:
        child.send({"path": sys.path, "target": target}, TIME_LIMIT)
        try:
            (answer,) = (event for event in child.events(TIME_LIMIT) if event["event"] == "judged")
        except Lost as loss:
            raise NotBridgeableError(f"importing {target} {import_problem(loss)}") from None
    if answer["problem"]:
        raise NotBridgeableError(answer["problem"])
    return answer["kind"], tuple(answer["keys"])
