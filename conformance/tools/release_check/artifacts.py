"""The wheel and the sdist: built from a commit, compared, and read."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

from commands import output

PACKAGES = ("lpkit", "lpkit_conformance", "lpkit_cli")
MOST_BYTES = 2 * 1024 * 1024
"""A wheel or sdist above this holds something that does not belong there."""


@dataclass(frozen=True)
class Built:
    """A wheel and the sdist that it was made from."""

    wheel: Path
    sdist: Path

    def digests(self) -> dict[str, str]:
        """SHA-256 by file name."""
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (self.wheel, self.sdist)}


def export(repository: Path, folder: Path) -> Path:
    """Write the committed files, without history, to ``folder``, with the time of the call."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    output(["git", "-C", str(repository), "archive", "-o", str(archive), "HEAD"])
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    archive.unlink()
    return folder


def build(source: Path, folder: Path, umask: int) -> Built:
    """``python -m build`` of ``source`` under another umask: permissions must not end up in the archives."""
    before = os.umask(umask)
    try:
        output([sys.executable, "-m", "build", "-o", str(folder), str(source)])
    finally:
        os.umask(before)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def problems(built: Built, repository: Path) -> Iterator[str]:
    """Return the defects of the files of a release, a line each."""
    for file in (built.wheel, built.sdist):
        if file.stat().st_size > MOST_BYTES:
            yield f"{file.name} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}"
    wheel = zipfile.ZipFile(built.wheel)
    names = wheel.namelist()
    for kind, missing in _missing(names, repository).items():
        yield from (f"the wheel has no {kind} {name}" for name in missing)
    with tarfile.open(built.sdist) as content:
        inside = {name.partition("/")[2] for name in content.getnames()}
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"):
        if needed not in inside:
            yield f"the sdist has no {needed}"
    yield from (f"byte code is shipped: {name}" for name in [*names, *inside] if name.endswith(".pyc"))
    yield from _metadata_problems(metadata(built.wheel), repository)


def metadata(wheel: Path) -> Message:
    """``METADATA`` of a wheel."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(name).decode())


def relative_links(text: str) -> list[str]:
    """Targets of Markdown links and pictures that only work inside the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    return [target for target in targets if not re.match(r"https://|#|mailto:", target)]


def _missing(names: list[str], repository: Path) -> dict[str, list[str]]:
    data = [
        *(f"conformance/{file}" for file in ("**/*.jsonl", "**/*.css")),
        *(f"{parent}/**/py.typed" for parent in ("sdk", "conformance", "cli")),
    ]
    files = [path.relative_to(repository).parts[1:] for pattern in data for path in repository.glob(pattern)]
    template = repository / "template"
    bundled = {path.relative_to(template).as_posix() for path in template.rglob("*") if path.is_file()}
    licences = [] if any(name.endswith(".dist-info/licenses/LICENSE") for name in names) else ["LICENSE"]
    return {
        "data file": sorted({"/".join(parts) for parts in files} - set(names)),
        "file of the template": sorted({f"lpkit_cli/_template/{name}" for name in bundled} - set(names)),
        "licence": licences,
        "package": [package for package in PACKAGES if f"{package}/__init__.py" not in names],
    }


def _metadata_problems(metadata: Message, repository: Path) -> Iterator[str]:
    version = str(metadata["Version"])
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## [{version}]" not in changelog:
        yield f"CHANGELOG.md has no section for {version}"
    urls = dict(text.split(", ", 1) for text in metadata.get_all("Project-URL", []))
    yield from (f"[project.urls] has no {name}" for name in ("Documentation", "Changelog") if name not in urls)
    dead = relative_links(str(metadata.get_payload()))
    yield from (f"the index page would show a dead link: {target}" for target in dead)
