"""LP0: the plugin matches its packaging, and a default vLLM starts with it."""

from __future__ import annotations

import inspect
import pickle
import sys

from lpkit.loading import installed

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.lazily import Subject, torch
from lpkit_conformance.explanation import advice
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.vllm_api.facts import in_short
from lpkit_conformance.vllm_api.releases import V2_PROCESSORS_SINCE
from lpkit_conformance.vllm_api.runners import V2

BASES = tuple(dict.fromkeys(row.base for row in HOSTS.values()))


class LP001(Check):
    """The target is a logits processor class.

    It is a class and subclasses vLLM's V1 base, V2 base, or both.

    Why: V1 accepts any object from an entry point and crashes when it calls it; V2 refuses to start.

    Fix: point the entry point at the class itself and derive it from ``lpkit.LogitsProcessor``, or from vLLM's base.
    """

    code, name, hosts, requires, method = "LP001", "is-a-processor", (), (), "__init__"
    quick = "first"
    as_given = True

    def run(self, subject: Subject) -> str | None:
        cls = subject.plugin.cls
        if not isinstance(cls, type):
            raise Failed(
                f"{subject.plugin.target} is a {type(cls).__name__}, not a class",
                expected="a class",
                got=repr(cls)[:200],
                cause=advice.cause("no class", self.code),
                fix=advice.fix("no class", self.code),
            )
        if not subject.plugin.interfaces:
            raise Failed(
                f"{cls.__qualname__} implements neither of vLLM's interfaces",
                expected=f"a subclass of {' or '.join(BASES)}",
                got=f"bases: {', '.join(base.__qualname__ for base in cls.__mro__[1:-1]) or 'none'}",
                fix=advice.fix("no base", self.code),
            )
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        if missing:
            raise Failed(
                f"{cls.__qualname__} does not implement {missing}",
                expected="a class that can be instantiated",
                got=f"abstract methods: {missing}",
                fix=advice.fix("abstract", self.code).format(names=missing),
            )
        return f"implements {' and '.join(sorted(subject.plugin.interfaces))}"


class LP002(Check):
    """Importing the plugin does not touch CUDA.

    vLLM imports plugins with the GPUs hidden, before it starts its workers.

    Why: a CUDA context created at import either fails there or breaks every worker process.

    Fix: create device tensors in ``__init__``, on the device that is passed in.
    """

    code, name, hosts, requires, method = "LP002", "import-hygiene", (), (), "__init__"
    as_given = True

    def run(self, subject: Subject) -> str | None:
        touched = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        if touched and subject.setup.device.type == "cpu":
            raise Failed(
                "CUDA was initialised by importing the plugin",
                expected="no CUDA context after the import",
                got="torch.cuda.is_initialized() is True",
            )
        return None


class LP003(Check):
    """The class can be pickled.

    vLLM sends classes that are passed as objects to its engine process.

    Why: a class defined inside a function works in a notebook until the engine runs in another process.

    Fix: define the class at module level, under its own name.
    """

    code, name, hosts, requires, method = "LP003", "picklable", (), ("LP001", "LP005"), ""
    as_given = True

    def run(self, subject: Subject) -> str | None:
        try:
            unpickled = pickle.loads(pickle.dumps(subject.plugin.cls))
        except Exception as error:
            unpickled, got = None, f"{type(error).__name__}: {error}"
        else:
            got = f"unpickles to {unpickled!r}"
        if unpickled is not subject.plugin.cls:
            summary = f"{subject.plugin.cls.__qualname__} cannot be sent to another process"
            raise Failed(summary, expected="unpickling gives the same class", got=got)
        return None


class LP004(Check):
    """A default vLLM starts with the plugin installed.

    vLLM's default runner is V2; it refuses to start while a V1-only plugin is installed.

    Why: installing the package breaks every engine in that environment, including those that do not use the plugin.

    Fix: point the entry point at a bridge, ``class P(lpkit.Bridged): wraps = TheClass``. Or derive from
    ``lpkit.LogitsProcessor`` or ``lpkit.AdapterLogitsProcessor``, which serve both runners. Or register no entry point,
    and pass the class to the engines that should use it.
    """

    code, name, hosts, tier = "LP004", "default-engine-starts", (), "advice"
    as_given = True
    requires, method = ("LP001",), ""

    def run(self, subject: Subject) -> str | None:
        if V2 in subject.plugin.interfaces:
            return None
        release = in_short(V2_PROCESSORS_SINCE)
        raise Failed(
            f"while this class is an installed entry point, a default vLLM >= {release} does not start",
            expected="a subclass of vLLM's V2 base too",
            got="V1 interface only",
        )


class LP005(Check):
    """The module that defines the class can be imported by its name.

    vLLM's engine process imports it again by that name.

    Why: a class whose ``__module__`` is ``__main__``, or a module that no longer exists, fails only in that process.

    Fix: keep the class in a module of your package.
    """

    code, name, hosts, requires, method = "LP005", "importable-module", (), ("LP001",), ""
    as_given = True

    def run(self, subject: Subject) -> str | None:
        module = subject.plugin.cls.__module__
        if module == "__main__" or module not in sys.modules or inspect.getmodule(subject.plugin.cls) is None:
            summary = f"{subject.plugin.cls.__qualname__} is defined in {module!r}, which another process cannot import"
            raise Failed(summary, expected="a module that can be imported by name", got=module)
        if subject.plugin.cls.__qualname__ != subject.plugin.cls.__name__:
            raise Skipped("the class is nested; LP003 checks whether another process can find it")
        return None


class LP006(Check):
    """The class is registered once.

    vLLM loads every installed entry point and does not remove duplicates.

    Why: a class under two entry-point names is constructed twice and edits every row twice.

    Fix: keep one entry point per class; do not pass an installed plugin with ``--logits-processors`` as well.
    """

    code, name, hosts, requires, method = "LP006", "registered-once", (), ("LP001",), ""
    as_given = True

    def run(self, subject: Subject) -> str | None:
        target = f"{subject.plugin.cls.__module__}:{subject.plugin.cls.__qualname__}"
        names = [entry.name for entry in installed() if entry.value.split("[")[0].strip() == target]
        if len(names) > 1:
            summary = f"{target} is installed under {len(names)} entry points"
            raise Failed(summary, expected="one entry point", got=", ".join(names))
        return None
