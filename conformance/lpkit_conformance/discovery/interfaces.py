"""Deduces from source which of vLLM's interfaces a class implements, by following base classes by name.

The answer may be "unknown", but never wrong.
"""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass
from typing import Final, TypeAlias

from lpkit._nearest import did_you_mean

from lpkit_conformance.discovery.bindings import Binding, Either, FromImport, Opaque, Scope, read_scope
from lpkit_conformance.discovery.module_finder import ModuleFile, SourceError, Sources
from lpkit_conformance.vllm_api import runners

V1: Final = frozenset({runners.V1})
V2: Final = frozenset({runners.V2})
BOTH: Final = V1 | V2
NONE: Final[frozenset[str]] = frozenset()

_V1_BASES = {"LogitsProcessor": V1, "AdapterLogitsProcessor": V1}
_BUILTINS = dict.fromkeys(("LogitBiasLogitsProcessor", "MinPLogitsProcessor", "MinTokensLogitsProcessor"), V1)

KNOWN: Final[dict[str, dict[str, frozenset[str]]]] = {
    "vllm.v1.sample.logits_processor": _V1_BASES | _BUILTINS,
    "vllm.v1.sample.logits_processor.interface": {"LogitsProcessor": V1},
    "vllm.v1.sample.logits_processor.builtin": {"LogitsProcessor": V1} | _BUILTINS,
    "vllm.model_executor.models.deepseek_ocr": {"NGramPerReqLogitsProcessor": V1},
    "vllm.model_executor.models.unlimited_ocr": {"NGramPerReqLogitsProcessor": V1},
    "vllm.v1.worker.gpu.sample.logits_processor": {"LogitsProcessor": V2},
    "vllm.v1.worker.gpu.sample.logits_processor.interface": {"LogitsProcessor": V2},
    "lpkit": {"LogitsProcessor": BOTH, "AdapterLogitsProcessor": BOTH, "Bridged": BOTH},
    "lpkit.bridging.bridged": {"Bridged": BOTH},
    "lpkit.portable.processor": {"LogitsProcessor": BOTH},
    "lpkit.portable.adapter": {"AdapterLogitsProcessor": BOTH},
    "lpkit.portable.base": {"PortableProcessor": BOTH},
    "lpkit.rules.chain": {"Rules": BOTH},
    "lpkit.v1": {"LogitsProcessor": V1},
    "lpkit.v2": {"LogitsProcessor": V2},
    "lpkit.interfaces.v1_interface": {"LogitsProcessor": V1},
    "lpkit.interfaces.v2_interface": {"LogitsProcessor": V2},
    # Namesakes: the model's layer, V0's callable type.
    "vllm.model_executor.layers.logits_processor": {"LogitsProcessor": NONE},
    "vllm.logits_process": {"LogitsProcessor": NONE},
}
"""Base classes outside the plugin, with their interfaces."""

# Modules without interfaces, which need not be read.
_NEUTRAL = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "pydantic", "transformers", "typing_extensions"}
_MAKES_PORTABLE = frozenset({"lpkit.bridge", "lpkit.bridging.make.bridge"})


@dataclass(frozen=True)
class Deduction:
    """The result for a target.

    Attributes:
        complete: True if every base was followed, so the class has no other interface.
        problem: why loading it would fail, or why it is not a processor; "" if there is no known problem.
        unknown: the base that could not be followed, or "".
        importable: False if ``problem`` keeps the target from being imported.
        defined: the class's own ``module:Class``, however it was reached; "" if unknown.
        bodies: the class statement, then those of its bases, depth first.
        outside: the bases outside the plugin, as in ``KNOWN``: ``module.Class``.
    """

    interfaces: frozenset[str] = NONE
    complete: bool = False
    problem: str = ""
    unknown: str = ""
    importable: bool = True
    defined: str = ""
    bodies: tuple[ast.ClassDef, ...] = ()
    outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Known:
    interfaces: frozenset[str]
    makes_classes: bool = False
    name: str = ""


@dataclass(frozen=True)
class _Class:
    scope: Scope
    node: ast.ClassDef


@dataclass(frozen=True)
class _Module:
    name: str


@dataclass(frozen=True)
class _NoClass:
    what: str


@dataclass(frozen=True)
class _Missing:
    problem: str


_Entity: TypeAlias = "_Known | _Class | _Module | _NoClass | _Missing | Opaque"


class Deducer:
    """Deduces interfaces for targets whose modules are in ``sources``."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._scopes: dict[str, Scope | _Missing | Opaque] = {}
        self._package = ""

    def target(self, module: str, qualname: str, *, hooked: bool = False) -> Deduction:
        """Deduce for the class ``qualname`` of ``module``; ``hooked``: an import hook may know more modules."""
        self._package = module.partition(".")[0]
        if not qualname:
            return Deduction(problem=f"{module!r} names a module; write {module}:Class")
        entity = self._dotted(_Module(module), qualname.split("."))
        if isinstance(entity, _Missing):
            if hooked and self._sources.find(self._package) is None:
                return Deduction(unknown="an editable install behind an import hook")
            return Deduction(problem=entity.problem, importable=False)
        if isinstance(entity, Opaque):
            return Deduction(unknown=entity.reason)
        if isinstance(entity, _NoClass | _Module):
            what = entity.what if isinstance(entity, _NoClass) else "a module"
            return Deduction(problem=f"{module}:{qualname} is {what}, not a class")
        return self._interfaces(entity, qualname)

    def _interfaces(self, entity: _Known | _Class, label: str) -> Deduction:
        if isinstance(entity, _Known):
            return Deduction(entity.interfaces, complete=True, outside=(entity.name,) if entity.name else ())
        interfaces, unknown = NONE, ""
        bodies, outside = [entity.node], list[str]()
        for base in entity.node.bases:
            text = ast.unparse(base)
            parent = self._expression(entity.scope, base)
            if isinstance(parent, _Known | _Class):
                below = self._interfaces(parent, text)
                if below.problem and not below.importable:
                    return below
                interfaces |= below.interfaces
                unknown = unknown or below.unknown
                bodies += below.bodies
                outside += below.outside
            elif isinstance(parent, _Missing):
                return Deduction(problem=f"base class {text} of {label}: {parent.problem}", importable=False)
            else:
                reason = parent.reason if isinstance(parent, Opaque) else "it is not a class"
                unknown = unknown or f"base class {text}: {reason}"
        problem = ""
        if not interfaces and not unknown:
            bases = ", ".join(ast.unparse(base) for base in entity.node.bases)
            derives = f"derives from {bases}, which is" if bases else "has no base class, so it implements"
            problem = f"{label} {derives} neither of vLLM's interfaces"
        return Deduction(
            interfaces,
            not unknown,
            problem,
            unknown,
            defined=f"{entity.scope.module}:{entity.node.name}",
            bodies=tuple(bodies),
            outside=tuple(outside),
        )

    def _expression(self, scope: Scope, node: ast.expr) -> _Entity:
        if isinstance(node, ast.Name):
            return self._name(scope, node.id)
        if isinstance(node, ast.Attribute):
            owner = self._expression(scope, node.value)
            return self._dotted(owner, [node.attr])
        if isinstance(node, ast.Subscript):  # Base[T]
            return self._expression(scope, node.value)
        if isinstance(node, ast.Call):
            made_by = self._expression(scope, node.func)
            if isinstance(made_by, _Known) and made_by.makes_classes:
                return made_by
            if isinstance(made_by, _Class):
                return _NoClass(f"an instance of {made_by.node.name}")
            return Opaque(f"{ast.unparse(node.func)}() makes it")
        if isinstance(node, ast.Constant | ast.Lambda | ast.Dict | ast.List | ast.Tuple):
            return _NoClass(f"a {type(node.value).__name__}" if isinstance(node, ast.Constant) else "a value")
        return Opaque(f"it is computed ({ast.unparse(node)[:40]})")

    def _name(self, scope: Scope, name: str) -> _Entity:
        binding = scope.names.get(name)
        if binding is not None:
            return self._bound(scope, name, binding)
        for module in scope.stars:
            starred = self._dotted(_Module(module), [name])
            if not isinstance(starred, _Missing):
                return starred
        if isinstance(getattr(builtins, name, None), type):
            return _Known(NONE)
        if "__getattr__" in scope.names:
            return Opaque(f"{scope.module}.__getattr__ makes it")
        hint = did_you_mean(name, scope.names)
        return _Missing(f"{scope.module} has no {name!r}{f'; {hint}' if hint else ''}")

    def _bound(self, scope: Scope, name: str, binding: Binding) -> _Entity:
        if isinstance(binding, Opaque):
            return binding
        if isinstance(binding, ast.ClassDef):
            return _Class(scope, binding)
        if isinstance(binding, ast.FunctionDef | ast.AsyncFunctionDef):
            return _NoClass("a function")
        if isinstance(binding, FromImport):
            owner = _Module(binding.module)
            return self._dotted(owner, [binding.name]) if binding.name else owner
        if isinstance(binding, Either):
            return self._either(name, [self._bound(scope, name, option) for option in binding.options], binding)
        if isinstance(binding, ast.Name) and binding.id == name:
            return Opaque(f"{name} is assigned to itself")
        return self._expression(scope, binding)

    def _either(self, name: str, options: list[_Entity], binding: Either) -> _Entity:
        if binding.preference:
            return next((option for option in options if not isinstance(option, _Missing)), options[0])
        answers = set()
        for option in options:
            if not isinstance(option, _Known | _Class):
                return Opaque(f"{name} depends on a condition")
            below = self._interfaces(option, name)
            answers.add((below.interfaces, below.complete))
        return options[0] if len(answers) == 1 else Opaque(f"{name} depends on a condition")

    def _dotted(self, owner: _Entity, names: list[str]) -> _Entity:
        for name in names:
            if isinstance(owner, _Module):
                owner = self._in_module(owner.name, name)
            elif isinstance(owner, _Class):
                body = read_scope(owner.scope.module, "", owner.node.body)
                if name in body.names:
                    nested = Scope(body.module, owner.scope.names | body.names, owner.scope.stars)
                    owner = self._bound(nested, name, body.names[name])
                else:
                    owner = Opaque(f"{owner.node.name}.{name} is inherited or made at run time")
            elif isinstance(owner, _Known) and owner.interfaces:
                owner = Opaque(f".{name} of a class outside the plugin")
            elif isinstance(owner, _NoClass):
                owner = Opaque(f".{name} of {owner.what}")
        return owner

    def _in_module(self, module: str, name: str) -> _Entity:
        top = module.partition(".")[0]
        if name in KNOWN.get(module, ()):
            return _Known(KNOWN[module][name], name=f"{module}.{name}")
        submodule = f"{module}.{name}"
        if submodule in _MAKES_PORTABLE:
            return _Known(BOTH, makes_classes=True, name=submodule)
        if any(package == submodule or package.startswith(f"{submodule}.") for package in KNOWN):
            return _Module(submodule)
        if top in ("vllm", "lpkit") and not module.startswith("lpkit.rules."):  # a rule is read as a plugin's own code
            return Opaque(f"{submodule} is not known to lpkit")
        if top in _NEUTRAL:
            return _Known(NONE)
        scope = self._scope(module)
        if not isinstance(scope, Scope):
            return scope
        # "from . import sub" in a package's own __init__ means the submodule.
        imports_itself = scope.names.get(name) == FromImport(module, name)
        entity = _Missing(f"{module} has no {name!r}") if imports_itself else self._name(scope, name)
        if isinstance(entity, _Missing) and self._sources.find(submodule) is not None:
            return _Module(submodule)
        return entity

    def _scope(self, module: str) -> Scope | _Missing | Opaque:
        file = self._sources.find(module)
        if file is None:
            problem = f"there is no module {module!r}"
            # Another distribution's module may come from an import hook that this search does not know.
            in_package = module.partition(".")[0] == self._package
            return _Missing(problem) if in_package else Opaque(f"{problem} along sys.path")
        if module not in self._scopes:
            self._scopes[module] = self._read(module, file)
        return self._scopes[module]

    def _read(self, module: str, file: ModuleFile) -> Scope | _Missing | Opaque:
        if file.opaque:
            return Opaque(f"{module} is {file.opaque}")
        if file.file is None:
            return Scope(module)
        try:
            tree = self._sources.parse(file.file)
        except SourceError as error:
            return _Missing(str(error))
        package = module if file.folders else module.rpartition(".")[0]
        return read_scope(module, package, tree.body)
