"""Bakes the project template with cookiecutter, without touching anything outside the target folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.errors import OutputError, UsageError

from lpkit_cli.scaffold.naming import Names


def template_directory() -> Path:
    """The template bundled in an installed wheel, or the checkout's own.

    Raises:
        OutputError: if this installation has neither.
    """
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / "_template", here.parents[1] / "template"):
        if (candidate / "cookiecutter.json").is_file():
            return candidate
    raise OutputError(f"the project template is missing from this installation ({here / '_template'})")


def bake(names: Names, style: str, output: Path, more: Mapping[str, Any] | None = None) -> Path:
    """Write the project into ``output / names.project`` and return that folder; ``more`` are the style's own variables.

    Raises:
        UsageError: cookiecutter is not installed.
        OutputError: the folder cannot be written.
    """
    try:
        from cookiecutter.exceptions import CookiecutterException
        from cookiecutter.main import cookiecutter
    except ImportError as error:
        remedy = "install cookiecutter, or vllm-lpkit with its extra 'new'"
        raise UsageError(f"it needs cookiecutter ({error})", remedy) from None
    with tempfile.TemporaryDirectory(prefix="lpkit-new-") as scratch_name:
        scratch = Path(scratch_name)
        # pip byte-compiles an installed template, and cookiecutter would copy __pycache__ into the project.
        template = shutil.copytree(
            template_directory(), scratch / "template", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
        try:
            made = cookiecutter(
                str(template),
                no_input=True,
                extra_context={
                    "project_name": names.project,
                    "package_name": names.package,
                    "class_name": names.class_name,
                    "style": style,
                    **(more or {}),
                },
                output_dir=str(output),
                config_file=str(_config(scratch)),
            )
        except CookiecutterException as error:
            raise OutputError(f"the template could not be rendered: {error}") from error
        except OSError as error:
            raise OutputError(f"cannot write {output / names.project}: {error.strerror or error}") from error
    return Path(made)


def _config(scratch: Path) -> Path:
    """A cookiecutter configuration that neither reads nor writes HOME, which may be read-only."""
    # JSON is YAML, and quotes a Windows path correctly.
    config = {
        "replay_dir": str(scratch / "replay"),
        "cookiecutters_dir": str(scratch / "cookiecutters"),
        "default_context": {},
    }
    path = scratch / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
