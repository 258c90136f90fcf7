"""Imports one module or class for :mod:`lpkit.loading`, with CUDA hidden and errors that name the mistake."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from lpkit._nearest import did_you_mean


class LoadError(Exception):
    """Error that kept a processor from loading: ``problem`` is the mistake, ``remedy`` the advice (or "")."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}. {self.remedy}" if self.remedy else self.problem


class InvalidTargetError(LoadError, ValueError):
    """The named object cannot be a processor."""


class WrongInterfaceError(InvalidTargetError):
    """The named object is not a class with one of vLLM's interfaces."""


class MissingAttributeError(LoadError, AttributeError):
    """The module exists, but the class does not exist in it."""


class ImportFailedError(LoadError, RuntimeError):
    """The module's import failed; ``__cause__`` is the original error."""


@contextlib.contextmanager
def hidden_cuda() -> Iterator[None]:
    """Hide CUDA as vLLM does while it imports plugins, so that an import cannot initialise CUDA."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def split_fqcn(spec: object) -> tuple[str, str]:
    """Split ``module:Class`` into ``("module", "Class")``.

    Raises:
        InvalidTargetError: ``spec`` has another form; the message has the corrected form if there is one.
    """
    if not isinstance(spec, str):
        raise InvalidTargetError(
            f"{type(spec).__qualname__} object was passed where a class or 'module:Class' is expected",
            f"Pass the class: {type(spec).__module__}:{type(spec).__qualname__}",
        )
    module, _, name = spec.partition(":")
    if module and name and ":" not in name and "/" not in spec and "\\" not in spec and not module.endswith(".py"):
        return module, name
    raise InvalidTargetError(f"{spec!r} is not of the form module:Class", _corrected(spec))


def _corrected(spec: str) -> str:
    file, _, name = spec.rpartition(":") if ":" in spec and not spec.endswith(".py") else (spec, "", "")
    if file.endswith(".py") or "/" in spec or "\\" in spec:
        path = Path(file.replace("\\", "/"))
        return f"vLLM accepts no file names: put {path.parent} on PYTHONPATH and write {path.stem}:{name or 'Class'}"
    parts = [part for part in spec.replace(":", ".").split(".") if part]
    if len(parts) < 2:
        return "Write the module, a colon and the class"
    return f"Write {colon_form('.'.join(parts))}"


def colon_form(dotted: str) -> str | None:
    """Return ``pkg.mod:Outer.Inner`` for ``pkg.mod.Outer.Inner``.

    The class starts at the first capital, or after the last dot.
    """
    parts = dotted.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return None
    start = next((i for i, part in enumerate(parts) if i and part[:1].isupper()), len(parts) - 1)
    return f"{'.'.join(parts[:start])}:{'.'.join(parts[start:])}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the sentence ``Did you mean 'x'?``, or an empty string."""
    return did_you_mean(name, names).replace("did", "Did", 1)


def import_module(name: str) -> ModuleType:
    """Import the module with CUDA hidden.

    Raises:
        ImportFailedError: the import failed; the message names the cause and the line.
    """
    with importing(name):
        return importlib.import_module(name)


@contextlib.contextmanager
def importing(name: str) -> Iterator[None]:
    """Hide CUDA, and turn any error of an import into an :class:`ImportFailedError`."""
    try:
        with hidden_cuda():
            yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ImportFailedError(f"there is no module {error.name!r}", _missing_module(error.name)) from error
        line = _innermost(error)
        where = f" at {line}" if line else ""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ImportFailedError(f"importing {name} failed{where}: {text}", _import_remedy(error)) from error


def _missing_module(missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    if not parent:
        if Path(f"{missing}.py").is_file() or Path(missing, "__init__.py").is_file():
            return f"The current folder is not importable: set PYTHONPATH={Path.cwd()}"
        return f"Install the distribution that provides {missing!r}, in the environment that runs {sys.executable}"
    package = sys.modules.get(parent)
    if hasattr(package, last):
        return f"{last!r} is an attribute of {parent!r}: the colon goes before it"
    folders = [Path(folder) for folder in getattr(package, "__path__", [])]
    return nearest(last, sorted({item.stem for folder in folders if folder.is_dir() for item in folder.iterdir()}))


def _innermost(error: BaseException) -> str:
    """Return ``file:line`` of the syntax error, or of the last frame outside of the import system and this file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename != __file__ and not frame.filename.startswith("<") and "importlib" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return ""


def _import_remedy(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.partition(".")[0] == "vllm":
            installed = importlib.util.find_spec("vllm") is not None
            return "" if installed else "vLLM is not installed here; lpkit's own classes do not need it"
        return f"Install the distribution that provides {error.name.partition('.')[0]!r}"
    if "CUDA" in text and any(sign in text for sign in ("No CUDA GPUs", "initializ", "not available", "no NVIDIA")):
        return "vLLM hides CUDA while it imports plugins: touch the device in __init__, not at import"
    if isinstance(error, SystemExit):
        return "A module that vLLM imports must not exit the process"
    return ""


def attribute(obj: Any, owner: str, qualname: str) -> Any:
    """Follow the attribute names of ``qualname``; "" returns ``obj`` itself.

    Raises:
        MissingAttributeError: an attribute is missing; the message has the nearest name.
        ImportFailedError: a lazy module's ``__getattr__`` raised.
    """
    for name in filter(None, qualname.split(".")):
        try:
            with hidden_cuda():
                obj = getattr(obj, name)
        except AttributeError as error:
            classes = [key for key, value in vars(obj).items() if isinstance(value, type)] if _scope(obj) else []
            local = [key for key in classes if getattr(vars(obj)[key], "__module__", "") == _module_of(obj)]
            hint = nearest(name, local) or nearest(name, dir(obj))
            if not hint and local:
                hint = f"Classes defined there: {', '.join(sorted(local))}"
            raise MissingAttributeError(f"{owner} has no attribute {name!r}", hint) from error
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise ImportFailedError(f"{owner}.{name} failed to load: {text}", _import_remedy(error)) from error
        owner = f"{owner}.{name}"
    return obj


def _scope(obj: Any) -> bool:
    return isinstance(obj, ModuleType | type)


def _module_of(scope: Any) -> str:
    return scope.__name__ if isinstance(scope, ModuleType) else str(scope.__module__)


def describe(obj: Any) -> str:
    """Describe in words an object found in place of a class.

    Args:
        obj: anything but a class.

    Returns:
        A phrase such as ``a function``.
    """
    if isinstance(obj, ModuleType):
        return "a module"
    if isinstance(obj, FunctionType | MethodType):
        return "a function"
    if isinstance(obj, functools.partial):
        return "a functools.partial"
    return f"an instance of {type(obj).__module__}.{type(obj).__qualname__}"
