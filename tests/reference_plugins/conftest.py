"""The plugins in the source tree, and the hand-driven hosts of the SDK's tests."""

import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in sorted(ROOT.glob("reference_plugins/*/src"))]
sys.path.insert(0, str(ROOT / "tests" / "sdk" / "helpers"))


@pytest.fixture(scope="session")
def transformers_rules() -> ModuleType:
    """transformers' own logits processors: the oracles. They share no line with lpkit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.generation import logits_process

    return logits_process
