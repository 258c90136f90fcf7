"""Kernels keep to the Python that all supported releases of Triton understand."""

from __future__ import annotations

import ast
from pathlib import Path

import lpkit
import pytest

SOURCES = sorted(Path(lpkit.__file__).parent.glob("kernels/triton_*.py"))


def kernels(source: Path) -> list[ast.FunctionDef]:
    """The functions that Triton compiles."""
    functions = [node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    return [node for node in functions if any("triton.jit" in ast.unparse(item) for item in node.decorator_list)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_kernel_unpacks_no_tuple_inside_a_tuple(source: Path) -> None:
    """Triton 3.6 raises TypeError when it computes the hash of such a kernel for the first time."""
    assert kernels(source)
    tuples = [node for kernel in kernels(source) for node in ast.walk(kernel) if isinstance(node, ast.Tuple)]
    targets = [node for node in tuples if isinstance(node.ctx, ast.Store)]
    assert [ast.unparse(node) for node in targets if any(isinstance(item, ast.Tuple) for item in node.elts)] == []
