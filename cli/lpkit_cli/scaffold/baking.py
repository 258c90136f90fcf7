"""Bakes the project template with cookiecutter, without touching anything outside the target folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.discovery.metadata import ordered
from lpkit_conformance.errors import OutputError, UsageError

from lpkit_cli.scaffold.naming import Names

PAST = "past"
"""The template's folder of released templates: ``lpkit update`` bakes them again. Absent before the first release."""


def bundled_template() -> Path:
    """Today's template: in an installed wheel, or in the checkout.

    Raises:
        OutputError: if this installation has neither.
    """
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / "_template", here.parents[1] / "template"):
        if (candidate / "cookiecutter.json").is_file():
            return candidate
    raise OutputError(f"the project template is missing from this installation ({here / '_template'})")


def template_directory(version: str = "") -> Path:
    """The template of this version, by default today's.

    Raises:
        OutputError: if this installation has no template.
        UsageError: if it has no template of that version.
    """
    today = bundled_template()
    if version in ("", _version(today)):
        return today
    if not (today / PAST / version / "cookiecutter.json").is_file():
        raise UsageError(f"lpkit has no template {version}", f"it has {', '.join(template_versions())}")
    return today / PAST / version


def template_versions() -> list[str]:
    """The versions of the templates that there are, today's last."""
    today = bundled_template()
    past = [file.parent.name for file in today.glob(f"{PAST}/*/cookiecutter.json")]
    return [*sorted(past, key=ordered), _version(today)]


def _version(template: Path) -> str:
    return str(json.loads((template / "cookiecutter.json").read_text(encoding="utf-8"))["_template_version"])


def bake(names: Names, style: str, output: Path, more: Mapping[str, Any] | None = None) -> Path:
    """Write the project into ``output / names.project`` and return that folder; ``more`` are other variables.

    Raises:
        UsageError: cookiecutter is not installed.
        OutputError: the folder cannot be written.
    """
    named = {"project_name": names.project, "package_name": names.package, "class_name": names.class_name}
    return render({**named, "style": style, **(more or {})}, output)


def render(answers: Mapping[str, Any], output: Path, version: str = "") -> Path:
    """Write the project of ``answers``, a template's variables, into a new folder in ``output``; return the folder.

    Args:
        version: of the template; by default the current version.

    Raises:
        UsageError: cookiecutter is not installed, or the template does not exist.
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
            template_directory(version),
            scratch / "template",
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc", PAST),
        )
        try:
            made = cookiecutter(
                str(template),
                no_input=True,
                extra_context=dict(answers),
                output_dir=str(output),
                config_file=str(_config(scratch)),
            )
        except CookiecutterException as error:
            raise OutputError(f"the template could not be rendered: {error}") from error
        except OSError as error:
            raise OutputError(f"cannot write {output / answers['project_name']}: {error.strerror or error}") from error
    return Path(made)


def _config(scratch: Path) -> Path:
    """Make a cookiecutter configuration that neither reads nor writes HOME, which may be read-only."""
    # JSON is YAML, and quotes a Windows path correctly.
    config = {
        "replay_dir": str(scratch / "replay"),
        "cookiecutters_dir": str(scratch / "cookiecutters"),
        "default_context": {},
    }
    path = scratch / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
