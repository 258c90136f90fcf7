"""vLLM's released files, from a package index; only the few Python files that the canary reads are kept.

The source distribution is read as a stream, so its 10 to 45 MB are never stored on disk. For a release without a source
distribution, single members of the wheel are fetched, by ranges.
"""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from lpkit_conformance.facts.vllm import Release, numbers

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
    found: dict[Release, Origin] = {}
    for attributes, text in re.findall(r"<a\b([^>]*)>([^<]+)</a>", page):
        href = re.search(r'href="([^"]+)"', attributes)
        name = html.unescape(text).strip()
        match = re.fullmatch(r"vllm-(\d+(?:\.\d+)+)(\.tar\.gz|-(?:\d+-)?cp\w+-\w+-manylinux\w*x86_64\.whl)", name)
        if href is None or match is None or "data-yanked" in attributes:
            continue
        url, _, fragment = urllib.parse.urljoin(base, html.unescape(href[1])).partition("#")
        release = numbers(match[1])
        if name.endswith(".tar.gz") or release not in found:
            found[release] = Origin(name, url, fragment.removeprefix("sha256=") if "sha256=" in fragment else "")
    return dict(sorted(found.items()))


def read_index(index: str, opener: Open | None = None) -> dict[Release, Origin]:
    """Return the releases of vLLM on ``index``, the address of a simple index.

    Raises:
        FetchError: it does not answer, or lists none.
    """
    url = f"{index.rstrip('/')}/vllm/"
    with _opened(url, opener) as answer:
        found = find_releases(answer.read().decode("utf-8", "replace"), url)
    if not found:
        raise FetchError(f"{url} lists no release of vLLM")
    return found


def fetch(origin: Origin, folder: Path, wanted: Collection[str], opener: Open | None = None) -> None:
    """Write the ``wanted`` files of a release below ``folder``, and where they are from.

    Raises:
        FetchError: the file cannot be had or is damaged.
    """
    try:
        read = _from_sdist if origin.file.endswith(".tar.gz") else _from_wheel
        files = dict(read(origin, wanted, opener))
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FetchError(f"{origin.file}: {type(error).__name__}: {error}") from error
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


def _opened(url: str, opener: Open | None, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "lpkit-canary", **(headers or {})})
    try:
        return opener(request) if opener is not None else urllib.request.urlopen(request, timeout=TIMEOUT)
    except OSError as error:
        raise FetchError(f"{url}: {error}") from error


def _from_sdist(origin: Origin, wanted: Collection[str], opener: Open | None) -> Iterator[tuple[str, bytes]]:
    with _opened(origin.url, opener) as answer:
        stream = _Hashed(answer)
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|gz") as archive:
            for member in archive:
                path = member.name.partition("/")[2]
                content = archive.extractfile(member) if path in wanted and member.isfile() else None
                if content is not None:
                    yield path, content.read()
        while stream.read(1 << 20):  # to the end, for the digest
            pass
    if origin.sha256 and stream.digest.hexdigest() != origin.sha256:
        raise FetchError(f"{origin.file} does not have the digest that the index gives")


class _Hashed:
    def __init__(self, inner: IO[bytes]) -> None:
        self.inner = inner
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        block = self.inner.read(size)
        self.digest.update(block)
        return block


def _from_wheel(origin: Origin, wanted: Collection[str], opener: Open | None) -> Iterator[tuple[str, bytes]]:
    remote = io.BufferedReader(_Ranges(origin.url, opener), 1 << 18)
    with zipfile.ZipFile(remote) as archive:
        for path in sorted(set(archive.namelist()) & set(wanted)):
            yield path, archive.read(path)


class _Ranges(io.RawIOBase):
    """A remote file, read by ranges."""

    def __init__(self, url: str, opener: Open | None) -> None:
        self._url, self._opener, self._at = url, opener, 0
        with _opened(url, opener, {"Range": "bytes=0-0"}) as answer:
            total = re.search(r"/(\d+)$", answer.headers.get("Content-Range") or "")
        if total is None:
            raise FetchError(f"{url}: the server gives no ranges")
        self._size = int(total[1])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        last = min(self._at + len(buffer), self._size) - 1
        if last < self._at:
            return 0
        with _opened(self._url, self._opener, {"Range": f"bytes={self._at}-{last}"}) as answer:
            block = answer.read()
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)
