"""``make canary``: exit code 0: every fact is as expected; 1: a fact differs; 2: a release could not be read.

Prints the differences between ``vllm_api/facts.toml`` and vLLM's sources, and the section of a missing release.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lpkit_conformance.vllm_api.facts import VLLM, Release, in_full, numbers

from vllm_canary.compare import sections, surprises
from vllm_canary.readers import WANTED, read_all
from vllm_canary.releases import FetchError, cached, fetch, read_index

INDEX = "https://pypi.org/simple"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="vllm_canary", description=__doc__)
    parser.add_argument("--index", default=os.environ.get("PIP_INDEX_URL", INDEX), help="a simple package index")
    parser.add_argument("--cache", type=Path, default=Path(".canary"), help="where the files are kept")
    parser.add_argument("--release", action="append", default=[], metavar="VERSION", help="only this one; repeatable")
    parser.add_argument("--offline", action="store_true", help="only what is in the cache")
    options = parser.parse_args(arguments)

    facts: dict[Release, dict[str, str]] = {}
    try:
        for release in _releases(options):
            folder = options.cache / in_full(release)
            source = cached(folder, WANTED)
            if source is None:
                raise FetchError(f"{folder} lacks a file that the canary reads now: run it online")
            facts[release] = read_all(source)
    except FetchError as error:
        print(f"canary: {error}", file=sys.stderr)
        return 2
    if not facts:
        print("canary: there is no release to read", file=sys.stderr)
        return 2
    strange = surprises(facts)
    for item in strange:
        print(f"vLLM {in_full(item.release)}: {item.fact}\n  expected  {item.expected}\n  found     {item.found}")
    missing = sections(facts)
    if missing:
        print("conformance/lpkit_conformance/vllm_api/facts.toml lacks:", *missing, sep="\n\n", end="\n\n")
    newest = in_full(max(facts))
    print(f"{len(facts)} releases, up to {newest}: {f'{len(strange)} surprises' if strange else 'all as expected'}.")
    return 1 if strange else 0


def _releases(options: argparse.Namespace) -> list[Release]:
    """The releases to read, each in the cache from here on.

    Raises:
        FetchError: one of them cannot be fetched.
    """
    if options.offline:
        in_cache = sorted(numbers(path.parent.name) for path in options.cache.glob("*/origin.json"))
        return [release for release in in_cache if not options.release or in_full(release) in options.release]
    index = read_index(options.index)
    wanted = [numbers(version) for version in options.release] or [
        item for item in index if item >= VLLM.rows[0].release
    ]
    for number, release in enumerate(wanted, 1):
        folder = options.cache / in_full(release)
        if release not in index:
            raise FetchError(f"{options.index} has no vLLM {in_full(release)}")
        if cached(folder, WANTED) is None:
            if sys.stderr.isatty():
                print(f"[{number}/{len(wanted)}] {index[release].file}", file=sys.stderr)
            fetch(index[release], folder, WANTED)
    return wanted


if __name__ == "__main__":
    sys.exit(main())
