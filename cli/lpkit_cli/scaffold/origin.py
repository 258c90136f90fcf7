"""Sources that a project installs lpkit from: the package index, a URL that pip takes, or a wheel in the project."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from lpkit_conformance.errors import UsageError

from lpkit_cli.scaffold import git

INDEX = "index"
WHEELHOUSE = "wheelhouse"
"""The answer, and the project's folder for the wheel."""

DISTRIBUTION = "vllm-lpkit"
_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Files of the metadata that pip adds, or that are rewritten."""

_REFERENCE = re.compile(r"(git\+)?(https?|ssh|file)://\S+")


@dataclass(frozen=True)
class Origin:
    """The project records ``answer``. For a wheelhouse, ``local`` is the wheel, or a checkout of lpkit.

    Without ``local``, the wheel is packed from the installed files.
    """

    answer: str
    local: Path | None = None

    def wheel(self, scratch: Path) -> Path | None:
        """Return the wheel that the project needs; it is made in ``scratch`` if necessary.

        Raises:
            UsageError: the wheel cannot be built.
        """
        if self.answer != WHEELHOUSE or (self.local is not None and self.local.is_file()):
            return self.local
        return _packed(scratch) if self.local is None else _build(self.local, scratch)


def parse(text: str) -> Origin:
    """Parse the value of ``--lpkit-from``.

    Raises:
        UsageError: the value names no lpkit.
    """
    if text == INDEX or _REFERENCE.fullmatch(text):
        return Origin(text)
    path = Path(text).expanduser()
    if path.is_file() and path.suffix == ".whl":
        return Origin(WHEELHOUSE, path)
    if (path / "cli" / "lpkit_cli").is_dir():
        return Origin(WHEELHOUSE, path)
    wheels = sorted(path.glob("vllm_lpkit-*.whl"), key=lambda wheel: wheel.stat().st_mtime) if path.is_dir() else []
    if wheels:
        return Origin(WHEELHOUSE, wheels[-1])
    remedy = "take index, a URL such as git+https://..., a wheel, a folder with a wheel, or a checkout"
    raise UsageError(f"--lpkit-from: there is no lpkit in {text!r}", remedy)


def own() -> Origin:
    """Return the source that this lpkit was installed from."""
    from lpkit_conformance.discovery import metadata

    dist = metadata.find(DISTRIBUTION)
    direct = metadata.direct_url(dist) if dist else {}
    url, vcs = str(direct.get("url", "")), direct.get("vcs_info")
    if isinstance(vcs, dict):
        return Origin(f"{vcs['vcs']}+{url}@{vcs['commit_id']}") if {"vcs", "commit_id"} <= vcs.keys() else Origin(INDEX)
    path = metadata.source_folder(dist) if dist else None
    if dist is None or path is None:
        return Origin(url or INDEX)
    return _published(path) or Origin(WHEELHOUSE, path if metadata.is_editable(dist) else None)


def _published(checkout: Path) -> Origin | None:
    """Return the commit that is checked out, if the repository's origin has it."""
    if not (checkout / ".git").exists():
        return None
    page, commit = git.origin(checkout), git.line("rev-parse", "HEAD", folder=checkout)
    if not page or not commit or not git.line("branch", "--remotes", "--contains", commit, folder=checkout):
        return None
    return Origin(f"git+{page}@{commit}")


def _packed(scratch: Path) -> Path:
    """Pack the installed files into a wheel again."""
    from lpkit_conformance.discovery import metadata

    dist = metadata.find(DISTRIBUTION)
    files = [file for file in (dist.files if dist else None) or () if ".." not in file.parts and file.suffix != ".pyc"]
    about = next((file.parent for file in files if file.name == "WHEEL"), None)
    if dist is None or about is None:
        raise UsageError("this installation of lpkit is incomplete", "name the source of lpkit: --lpkit-from")
    packed = [file for file in files if file.parent != about or file.name not in _INSTALLERS]
    tag = re.search(r"^Tag: (\S+)", (dist.read_text("WHEEL") or ""), re.M)
    wheel = scratch / f"{about.name.removesuffix('.dist-info')}-{tag[1] if tag else 'py3-none-any'}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in packed:
            archive.write(str(file.locate()), file.as_posix())
        lines = [f"{file.as_posix()},{file.hash.mode}={file.hash.value},{file.size}" for file in packed if file.hash]
        archive.writestr(f"{about.as_posix()}/RECORD", "\n".join([*lines, f"{about.as_posix()}/RECORD,,", ""]))
    return wheel


def _build(checkout: Path, scratch: Path) -> Path:
    if importlib.util.find_spec("hatchling") is not None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)]
    else:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(scratch), "."]
    done = subprocess.run(command, cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise UsageError(
            f"no wheel can be built from {checkout}", "name the source of lpkit: --lpkit-from", done.stderr
        )
    return wheels[0]


def bring(wheel: Path, project: Path) -> None:
    """Copy ``wheel`` into the project."""
    folder = project / WHEELHOUSE
    folder.mkdir(exist_ok=True)
    shutil.copyfile(wheel, folder / wheel.name)
