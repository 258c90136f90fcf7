"""The examples of the checks' pages: each wrong form is a planted defect, each right form a correct processor."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from lpkit_conformance.checks import examples

from zoo.registry import defect, sound

FOLDER = Path(__file__).parents[3] / "build" / "examples"
"""Checks read sources, and other processes import them: wrong forms need files."""


def loaded(name: str, source: str) -> ModuleType:
    """The module of a wrong form, from a file that other processes of the tests may be writing, too."""
    file = FOLDER / f"{name}.py"
    if not file.exists() or file.read_text(encoding="utf-8") != source:
        FOLDER.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(source, encoding="utf-8")
        draft.replace(file)
    return importlib.import_module(name)


def processor(module: ModuleType) -> Any:
    """The class that a module of an example defines."""
    (cls,) = (item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__)
    return cls


sys.path.append(str(FOLDER))

for name, case in examples.CASES.items():
    right = processor(importlib.import_module(f"{examples.__name__}.{name}"))
    sound("the right form of examples", case=case, name=f"Example{name.title()}")(right)

for name in examples.names():
    code, example = name.partition(".")[0], examples.example(name)
    wrong = processor(loaded(f"example_{name.lower().replace('.', '_')}", example.wrong))
    defect(
        code,
        f"the example of {code}",
        case=examples.CASES[example.module],
        name=f"Example{code}",
        also=example.also,
        **example.texts,
    )(wrong)
