"""``make canary``: exit code 0: every fact is as expected; 1: one is not; 2: a release could not be read."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_canary.facts import WANTED, read_all
from vllm_canary.history import FIRST, surprises
from vllm_canary.page import page
from vllm_canary.releases import FetchError, Release, cached, fetch, origin_of, read_index, release_of, written

INDEX = "https://pypi.org/simple"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="vllm_canary", description=__doc__)
    parser.add_argument("--index", default=os.environ.get("PIP_INDEX_URL", INDEX), help="a simple package index")
    parser.add_argument("--cache", type=Path, default=Path(".canary"), help="where the files are kept")
    parser.add_argument("--page", type=Path, help="write the page when every release could be read")
    parser.add_argument("--release", action="append", default=[], metavar="VERSION", help="only this one; repeatable")
    parser.add_argument("--offline", action="store_true", help="only what is in the cache")
    options = parser.parse_args(arguments)

    found: dict[Release, dict[str, str]] = {}
    try:
        for release in _releases(options):
            folder = options.cache / written(release)
            source = cached(folder, WANTED)
            if source is None:
                raise FetchError(f"{folder} is from before a file was added to those that are read: run it online")
            found[release] = read_all(source)
    except FetchError as error:
        print(f"canary: {error}", file=sys.stderr)
        return 2
    if not found:
        print("canary: there is no release to read", file=sys.stderr)
        return 2
    strange = surprises(found)
    for item in strange:
        print(f"vLLM {written(item.release)}: {item.fact}\n  expected  {item.expected}\n  found     {item.found}")
    if options.page is not None and not options.release:
        origins = {release: origin_of(options.cache / written(release)) for release in found}
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        options.page.write_text(page(found, origins, date), encoding="utf-8")
    newest = written(max(found))
    print(f"{len(found)} releases, up to {newest}: {f'{len(strange)} surprises' if strange else 'all as expected'}.")
    return 1 if strange else 0


def _releases(options: argparse.Namespace) -> list[Release]:
    """The releases to read, each in the cache from here on.

    Raises:
        FetchError: one of them cannot be had.
    """
    if options.offline:
        known = sorted(release_of(path.parent.name) for path in options.cache.glob("*/origin.json"))
        return [release for release in known if not options.release or written(release) in options.release]
    index = read_index(options.index)
    wanted = [release_of(version) for version in options.release] or [item for item in index if item >= FIRST]
    for number, release in enumerate(wanted, 1):
        folder = options.cache / written(release)
        if release not in index:
            raise FetchError(f"{options.index} has no vLLM {written(release)}")
        if cached(folder, WANTED) is None:
            if sys.stderr.isatty():
                print(f"[{number}/{len(wanted)}] {index[release].file}", file=sys.stderr)
            fetch(index[release], folder, WANTED)
    return wanted


if __name__ == "__main__":
    sys.exit(main())
