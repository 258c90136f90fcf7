"""vLLM's rule for DeepSeek-OCR, without the model's images: its module imports torchvision."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch


def ngram_class() -> Any:
    """``NGramPerReqLogitsProcessor`` of the installed vLLM, from the file of its model."""
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    spec = importlib.util.find_spec("vllm.model_executor.models.deepseek_ocr")
    assert spec is not None and spec.origin is not None
    names = ("NoRepeatNGramLogitsProcessor", "NGramPerReqLogitsProcessor")
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    classes: list[ast.stmt] = [node for node in body if isinstance(node, ast.ClassDef) and node.name in names]
    namespace: dict[str, Any] = {"AdapterLogitsProcessor": AdapterLogitsProcessor, "Iterable": Iterable, "torch": torch}
    exec(compile(ast.Module(classes, []), spec.origin, "exec"), namespace)
    return namespace[names[1]]
