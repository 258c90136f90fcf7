"""Count the loops that lpkit-loop-breaker sees in ordinary text: the numbers of its README.

    python benchmarks/loop_breaker_rates.py [FILE ...]

Without files: the topics of Python's own documentation (``pydoc_data``) and the license texts below ``sys.prefix``.
There is no model's tokenizer here: a token is a word, a run of spaces or a run of one punctuation mark, or else a
single character, which repeats far more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

import numpy as np

TOKENIZERS = {"words": re.compile(r"\w+|\s+|([^\w\s])\1*"), "characters": re.compile(r".", re.DOTALL)}
SETTINGS = [(2, 16), (2, 64), (3, 16), (3, 32), (3, 64), (4, 64), (8, 64)]
LONGEST_SPAN = 256
REPLY = 4096
"""Tokens of a reply: texts are cut into pieces of this length."""


def texts(files: list[str]) -> Iterator[str]:
    """Each text once."""
    if files:
        yield from (Path(name).read_text(encoding="utf-8", errors="replace") for name in files)
        return
    yield from topics.topics.values()
    licenses = {path.read_bytes() for path in Path(sys.prefix).rglob("LICENSE*") if path.is_file()}
    yield from (text.decode("utf-8", errors="replace") for text in sorted(licenses))


def in_a_loop(ids: np.ndarray, settings: list[tuple[int, int]]) -> np.ndarray:
    """bool ``[settings, positions]``: whether the text up to there ends in a loop, as the plugin defines it."""
    found = np.zeros((len(settings), len(ids)), dtype=bool)
    position = np.arange(len(ids))
    for span in range(1, min(LONGEST_SPAN, len(ids) - 1) + 1):
        differs = np.ones(len(ids), dtype=bool)
        differs[span:] = ids[span:] != ids[:-span]
        matched = position - np.maximum.accumulate(np.where(differs, position, -1))
        for row, (times, least) in zip(found, settings, strict=True):
            row |= (matched >= (times - 1) * span) & (matched + span >= least)
    return found


def main() -> None:
    """Print a table per tokenizer: replies with a loop, and tokens in one."""
    whole = list(texts(sys.argv[1:]))
    for name, pattern in TOKENIZERS.items():
        replies, tokens = 0, 0
        with_loop, positions = np.zeros(len(SETTINGS), dtype=int), np.zeros(len(SETTINGS), dtype=int)
        for text in whole:
            numbers: dict[str, int] = {}
            ids = np.array(
                [numbers.setdefault(word, len(numbers)) for word in map(re.Match.group, pattern.finditer(text))]
            )
            for start in range(0, len(ids), REPLY):
                found = in_a_loop(ids[start : start + REPLY], SETTINGS)
                replies, tokens = replies + 1, tokens + found.shape[1]
                with_loop += found.any(1)
                positions += found.sum(1)
        print(f"\n{name}: {len(whole)} texts, {replies} pieces of at most {REPLY:,} tokens, {tokens:,} tokens\n")
        print("| `loop_times` | `loop_tokens` | pieces with a loop | tokens after which the rule acts |")
        print("|---:|---:|---:|---:|")
        for (times, least), some, many in zip(SETTINGS, with_loop, positions, strict=True):
            print(f"| {times} | {least} | {some / replies:.2%} | {many / tokens:.4%} |")


if __name__ == "__main__":
    main()
