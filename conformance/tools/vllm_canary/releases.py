"""vLLM's released files, from a package index; only the few Python files that the canary reads are kept."""

from __future__ import annotations

import hashlib
import html
import json
import re
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lpkit_conformance.vllm_api.facts import Release, numbers

from vllm_canary.source import Source

Open = Callable[[urllib.request.Request], Any]
TIMEOUT = 120


class FetchError(Exception):
    """The index or a file is not available, or the file does not match the index."""


@dataclass(frozen=True)
class Origin:
    """One file of the index: its name and address, and its SHA-256 or ""."""

    file: str
    url: str
    sha256: str = ""


def find_releases(page: str, base: str) -> dict[Release, Origin]:
    """The final releases on an index page: the source distribution of each, else a wheel for x86-64 Linux."""
    origins: dict[Release, Origin] = {}
    for attributes, text in re.findall(r"<a\b([^>]*)>([^<]+)</a>", page):
        href = re.search(r'href="([^"]+)"', attributes)
        name = html.unescape(text).strip()
        match = re.fullmatch(r"vllm-(\d+(?:\.\d+)+)(\.tar\.gz|-(?:\d+-)?cp\w+-\w+-manylinux\w*x86_64\.whl)", name)
        if href is None or match is None or "data-yanked" in attributes:
            continue
        url, _, fragment = urllib.parse.urljoin(base, html.unescape(href[1])).partition("#")
        release = numbers(match[1])
        if name.endswith(".tar.gz") or release not in origins:
            origins[release] = Origin(name, url, fragment.removeprefix("sha256=") if "sha256=" in fragment else "")
    return dict(sorted(origins.items()))


def read_index(index: str, opener: Open | None = None) -> dict[Release, Origin]:
    """Return the releases of vLLM on ``index``, the address of a simple index.

    Raises:
        FetchError: it does not answer, or lists none.
    """
    url = f"{index.rstrip('/')}/vllm/"
    with _opened(url, opener) as answer:
        origins = find_releases(answer.read().decode("utf-8", "replace"), url)
    if not origins:
        raise FetchError(f"{url} lists no release of vLLM")
    return origins


def fetch(origin: Origin, folder: Path, wanted: Collection[str], opener: Open | None = None) -> None:
    """Write the ``wanted`` files of a release below ``folder``, and where they are from.

    Raises:
        FetchError: the file cannot be had or is damaged.
    """
    digest = hashlib.sha256()
    with tempfile.TemporaryFile() as file:
        try:
            with _opened(origin.url, opener) as answer:
                while block := answer.read(1 << 20):
                    file.write(block)
                    digest.update(block)
            file.seek(0)
            files = dict((_in_sdist if origin.file.endswith(".tar.gz") else _in_wheel)(file, wanted))
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise FetchError(f"{origin.file}: {type(error).__name__}: {error}") from error
    if origin.sha256 and digest.hexdigest() != origin.sha256:
        raise FetchError(f"{origin.file} does not have the digest that the index gives")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    # Last: a folder with this file is complete.
    record = {"file": origin.file, "url": origin.url, "wanted": sorted(wanted)}
    (folder / "origin.json").write_text(json.dumps(record), "utf-8")


def cached(folder: Path, wanted: Collection[str]) -> Source | None:
    """Return the files that ``fetch`` wrote; None if it has not run, or did not look for all of ``wanted``."""
    record = folder / "origin.json"
    if not record.is_file() or not set(wanted) <= set(json.loads(record.read_text("utf-8")).get("wanted", ())):
        return None
    return Source({path: (folder / path).read_text("utf-8") for path in wanted if (folder / path).is_file()})


def _opened(url: str, opener: Open | None) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "lpkit-canary"})
    try:
        return opener(request) if opener is not None else urllib.request.urlopen(request, timeout=TIMEOUT)
    except OSError as error:
        raise FetchError(f"{url}: {error}") from error


def _in_sdist(file: IO[bytes], wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            content = archive.extractfile(member) if path in wanted and member.isfile() else None
            if content is not None:
                yield path, content.read()


def _in_wheel(file: IO[bytes], wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        for path in sorted(set(archive.namelist()) & set(wanted)):
            yield path, archive.read(path)
