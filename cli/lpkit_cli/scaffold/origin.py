"""Where a project installs lpkit from: the package index, a reference that pip takes, or a wheel inside the project."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lpkit_conformance.errors import UsageError

from lpkit_cli.scaffold import git

INDEX = "index"
WHEELHOUSE = "wheelhouse"
"""The answer, and the folder of the project that the wheel is copied into."""

DISTRIBUTION = "vllm-lpkit"
_REFERENCE = re.compile(r"(git\+)?(https?|ssh|file)://\S+")


@dataclass(frozen=True)
class Origin:
    """``answer`` is what the project records; ``local`` a wheel, or a checkout of lpkit, whose wheel it needs."""

    answer: str
    local: Path | None = None

    def wheel(self, scratch: Path) -> Path | None:
        """The wheel for the project, built in ``scratch`` where ``local`` is a checkout.

        Raises:
            UsageError: it cannot be built.
        """
        if self.local is None or self.local.is_file():
            return self.local
        return _build(self.local, scratch)


def parse(text: str) -> Origin:
    """What ``--lpkit-from`` says.

    Raises:
        UsageError: there is no lpkit there.
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
    remedy = "take index, a URL such as git+https://..., a wheel, a folder with one, or a checkout"
    raise UsageError(f"--lpkit-from: there is no lpkit in {text!r}", remedy)


def own() -> Origin:
    """Where this lpkit was installed from itself: that works."""
    from lpkit_conformance.discovery import metadata

    dist = metadata.find(DISTRIBUTION)
    try:
        direct = json.loads((dist.read_text("direct_url.json") if dist else None) or "{}")
        url = str(direct.get("url", ""))
        if "vcs_info" in direct:
            return Origin(f"{direct['vcs_info']['vcs']}+{url}@{direct['vcs_info']['commit_id']}")
    except (ValueError, KeyError, TypeError, AttributeError):  # damaged
        return Origin(INDEX)
    if not url.startswith("file:"):
        return Origin(url or INDEX)
    path = Path(url2pathname(urlsplit(url).path))
    if not path.exists():
        return Origin(INDEX)
    return _published(path) or Origin(WHEELHOUSE, path)


def _published(checkout: Path) -> Origin | None:
    """The commit that is checked out, if the repository it was cloned from has it."""
    if not (checkout / ".git").exists():
        return None
    page, commit = git.origin(checkout), git.line("rev-parse", "HEAD", folder=checkout)
    if not page or not commit or not git.line("branch", "--remotes", "--contains", commit, folder=checkout):
        return None
    return Origin(f"git+{page}@{commit}")


def _build(checkout: Path, scratch: Path) -> Path:
    if importlib.util.find_spec("hatchling") is not None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)]
    else:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(scratch), "."]
    done = subprocess.run(command, cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = list(scratch.glob("*.whl"))
    if done.returncode or not found:
        raise UsageError(
            f"no wheel can be built from {checkout}", "say where lpkit comes from: --lpkit-from", done.stderr
        )
    return found[0]


def bring(wheel: Path, project: Path) -> None:
    """Copy ``wheel`` into the project."""
    folder = project / WHEELHOUSE
    folder.mkdir(exist_ok=True)
    shutil.copyfile(wheel, folder / wheel.name)
