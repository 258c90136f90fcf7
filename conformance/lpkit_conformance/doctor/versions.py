"""Versions of what matters, from metadata and files; nothing is imported, CUDA is not initialised."""

from __future__ import annotations

import ast
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpkit_conformance.discovery.metadata import field, find
from lpkit_conformance.discovery.module_finder import SourceError, Sources

_DRIVER = Path("/proc/driver/nvidia/version")
_DEVICES = ("/proc/driver/nvidia/gpus/*", "/dev/kfd", "/dev/dxg")
_TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-xpu", "triton-cpu")


@dataclass(frozen=True)
class Versions:
    """Installed versions; None if a package is missing, or if its files do not show the version.

    Attributes:
        python: of this interpreter, e.g. ``"3.12.4"``.
        torch: with its local part, e.g. ``"2.9.0+cu129"``.
        cuda: the version that torch was built for, e.g. ``"12.9"``; ``"rocm 6.4"`` for a ROCm build.
        driver: of the NVIDIA kernel module.
        gpu: True if a GPU's device files are visible.
    """

    python: str
    lpkit: str | None
    torch: str | None
    cuda: str | None
    driver: str | None
    triton: str | None
    gpu: bool


def read_versions(sources: Sources, path: Sequence[str] | None = None) -> Versions:
    """Look along ``path`` (``sys.path`` by default)."""
    return Versions(
        python=platform.python_version(),
        lpkit=_version(("vllm-lpkit",), path),
        torch=_version(("torch",), path),
        cuda=_cuda(sources),
        driver=_driver(),
        triton=_version(_TRITONS, path),
        gpu=gpu_visible(),
    )


def gpu_visible() -> bool:
    """True if a GPU's device files exist and the environment does not hide them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    patterns = (pattern.removeprefix("/") for pattern in _DEVICES)
    return any(next(Path("/").glob(pattern), None) is not None for pattern in patterns)


def _version(names: Sequence[str], path: Sequence[str] | None) -> str | None:
    for name in names:
        dist = find(name, path)
        if dist is not None:
            return field(dist, "Version")
    return None


def _cuda(sources: Sources) -> str | None:
    """torch writes what it was built for into torch/version.py."""
    torch = sources.find("torch")
    if torch is None or not torch.folders:
        return None
    file = torch.folders[0] / "version.py"
    try:
        body = sources.parse(file).body if file.is_file() else []
    except SourceError:
        return None
    values: dict[str, str] = {}
    for node in body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(node.value.value, str):
            values[getattr(target, "id", "")] = node.value.value
    return f"rocm {values['hip']}" if "hip" in values else values.get("cuda")


def _driver() -> str | None:
    try:
        text = _DRIVER.read_text("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None
